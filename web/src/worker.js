// The worker that owns the module.
import { Module } from "./module.js";
import { serve } from "./rpc.js";

let module;

serve(async (call, request, { progress }) => {
  if (call !== "open") {
    module.onProgress = progress;
    return module.call(call, request);
  }
  module = await Module.open({ ...request, print: (line) => console.warn(line) });
  return null;
});
