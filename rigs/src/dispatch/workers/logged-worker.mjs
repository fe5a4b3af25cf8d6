// Loaded before the TypeScript worker: every delivery is written down first, one line as `abide-receiver` writes it.

import { openSync, writeSync } from "node:fs";
import http from "node:http";

const log = openSync(process.env.DELIVERIES, "a");
const { emit } = http.Server.prototype;

http.Server.prototype.emit = function (event, request, ...rest) {
  if (event === "request") {
    const { headers } = request;
    const values = ["execution-id", "idempotency-key", "retry-attempt"].map((name) => headers[`x-tpf-${name}`] ?? "");
    const kind = headers["x-abide-probe"] ? "probe" : "delivery";
    writeSync(log, `${[...values, kind].join("\t")}\n`);
  }
  return emit.call(this, event, request, ...rest);
};
