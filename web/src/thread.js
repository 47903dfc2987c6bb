// A worker that is one thread of an engine: an instance of its module on its memory. Files and whatever else a page lends only the
// engine's own worker has, which this one lets call them.
import { outOfMemory, utcOffset, wasiImports } from "./imports.js";

const node = globalThis.process?.versions?.node ? await import("node:worker_threads") : undefined;
const tell = (message) => (node ? node.parentPort : globalThis).postMessage(message);
const task = node ? node.workerData : await new Promise((got) => addEventListener("message", ({ data }) => got(data), { once: true }));

const { compiled, memory, number, room } = task;
const doppler = { utc_offset: utcOffset, out_of_memory: outOfMemory };
const imports = { env: { memory }, doppler, wasi_snapshot_preview1: wasiImports(() => memory, (line) => tell({ line })) };
for (const { module, name } of WebAssembly.Module.imports(compiled)) {
  imports[module] ??= {};
  imports[module][name] ??= () => {
    throw new Error(`a thread has called ${module}.${name}`);
  };
}
const { exports } = await WebAssembly.instantiate(compiled, imports);

// The stack grows downwards from where the thread's variables begin.
function beginStack() {
  exports.__stack_pointer.value = room;
}
beginStack();
exports.__wasm_init_tls(room);
tell({ ready: true });
try {
  exports.serve_as_thread(number, room);
} catch (error) {
  beginStack();
  const stopped = typeof error.code === "string" ? { code: error.code, message: error.message }
    : { code: "lost", message: `A thread of the engine has stopped: ${error.message}. The next call loads the model again.` };
  const why = new TextEncoder().encode(JSON.stringify(stopped));
  const at = room - why.length - 65536; // of a stack that nobody uses any more, far from where the call below begins
  new Uint8Array(memory.buffer, at, why.length).set(why);
  exports.fail_thread(at, why.length);
  tell({ stopped }); // of an engine that does not wait for this thread just now
}
