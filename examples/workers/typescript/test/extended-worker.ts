// The real worker, with extra activities that wait for a gate or crash at a chosen point.

import { existsSync, writeFileSync } from "node:fs";
import { ACTIVITIES, ledgerAdd, SCHEMA } from "../src/activities.js";
import { main } from "../src/main.js";
import { type Call, Database, type Effect, type Json, type Transaction, WORK_SCHEMA } from "../src/receiver/index.js";

let dieAfterCommit = false;

class DyingDatabase extends Database {
  protected override commit(): void {
    super.commit();
    if (dieAfterCommit) die();
  }
}

class Gate {
  open!: () => void;
  readonly opened = new Promise<void>((resolve) => (this.open = resolve));
}

const gates = new Map<string, Gate>();

function gateOf(call: Call): Gate {
  const name = input(call).gate;
  const gate = gates.get(name) ?? new Gate();
  gates.set(name, gate);
  return gate;
}

/** Runs `ledger.add` once the gate is open. */
async function gateAdd(call: Call): Promise<Effect> {
  await gateOf(call).opened;
  return (tx) => ledgerAdd(call, tx);
}

function gateOpen(call: Call): Json {
  gateOf(call).open();
  return null;
}

/** Runs `ledger.add`, but the first call kills the process: before the commit or just after it. */
function crashAdd(call: Call, tx: Transaction): Json {
  const output = ledgerAdd(call, tx);
  const { at, marker } = input(call);
  if (!existsSync(marker)) {
    writeFileSync(marker, "");
    if (at === "before commit") die();
    dieAfterCommit = true;
  }
  return output;
}

function bug(): Json {
  throw new Error("an internal secret");
}

function input(call: Call): Record<"gate" | "at" | "marker", string> {
  return call.input as Record<"gate" | "at" | "marker", string>;
}

function die(): void {
  process.kill(process.pid, "SIGKILL");
}

const database = new DyingDatabase(process.env["DB"] ?? "", WORK_SCHEMA, SCHEMA);
await main(
  {
    ...ACTIVITIES,
    "gate.add": { prepare: gateAdd },
    "gate.open": { run: gateOpen },
    "crash.add": { run: crashAdd },
    bug: { run: bug },
  },
  database,
);
