// The worker that owns the module.
import { Module } from "./module.js";
import { serve, tellOver } from "./rpc.js";

let module;

// As long as this worker lives it has the lock: whoever waits for it is told when a browser ends workers in silence.
const holdLock = (name) => new Promise((held) => navigator.locks.request(name, () => new Promise(() => held())));

serve(async (call, request, { progress }) => {
  if (call !== "open") {
    module.onProgress = progress;
    return module.call(call, request);
  }
  const { lock, ...rest } = request;
  if (lock) await holdLock(lock);
  module = await Module.open({ ...rest, print: (line) => console.warn(line), onLost: tellOver });
  return null;
});
