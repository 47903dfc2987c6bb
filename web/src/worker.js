// The worker that owns the module: answers {id, call, request} with {id, result} or {id, error}, and tells progress on its own.
import { Module } from "./module.js";

let module;

async function answer(call, request) {
  if (call !== "open") return module.call(call, request);
  const progress = (share, what) => postMessage({ progress: [share, what] });
  module = await Module.open({ ...request, progress, print: (line) => console.warn(line) });
  return null;
}

addEventListener("message", async ({ data: { id, call, request } }) => {
  try {
    postMessage({ id, result: await answer(call, request) });
  } catch (error) {
    postMessage({ id, error: { code: error.code ?? "internal", message: error.message } });
  }
});
