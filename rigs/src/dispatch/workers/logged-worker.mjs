// Loaded before the TypeScript worker: logs every attempt first, as one line in the format of `abide-receiver`.

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
