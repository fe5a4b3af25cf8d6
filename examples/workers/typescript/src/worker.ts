// An activity worker on Node's own http module: `DB=worker.db PORT=8082 ./run`. The activities are in activities.ts.

import { ACTIVITIES } from "./activities.js";
import { main } from "./main.js";

await main(ACTIVITIES);
