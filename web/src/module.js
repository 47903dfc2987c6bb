// Module: one instance of a doppler_*.wasm on this thread, called with objects, and the threads that belong to it.
import { DopplerError } from "./errors.js";
import { gpuImports } from "./gpu.js";
import { importsFor, readerOf, readerOfBytes, textIn } from "./imports.js";
import { readKept } from "./kept.js";
import { sharedMemory, startThreads, threadsHere } from "./threads.js";

const encoder = new TextEncoder();
const AGAIN = "The next call loads the model again.";

// A function of i8x16.relaxed_swizzle alone: what has relaxed vectors takes it.
const RELAXED = Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0, 10, 15, 1, 13, 0,
  0x41, 0, 0xfd, 0x0f, 0x41, 0, 0xfd, 0x0f, 0xfd, 0x80, 2, 0x0b]);

// [relaxed vectors][threads]. In full, because bundlers find files by these words.
const MODULES = [
  [new URL("./doppler_plain.wasm", import.meta.url), new URL("./doppler_threads.wasm", import.meta.url)],
  [new URL("./doppler_relaxed.wasm", import.meta.url), new URL("./doppler_threads_relaxed.wasm", import.meta.url)],
];

const WITH_DIAGNOSIS = [
  [new URL("./doppler_diagnosis_plain.wasm", import.meta.url), new URL("./doppler_diagnosis_threads.wasm", import.meta.url)],
  [new URL("./doppler_diagnosis_relaxed.wasm", import.meta.url), new URL("./doppler_diagnosis_threads_relaxed.wasm", import.meta.url)],
];

// The fastest module that runs here, with threads or without; all of them compute the same bits.
export function bestModule(threads, diagnosis) {
  return (diagnosis ? WITH_DIAGNOSIS : MODULES)[WebAssembly.validate(RELAXED) ? 1 : 0][threads ? 1 : 0];
}

async function compile(url) {
  if (url.protocol === "file:") { // in node
    const { readFile } = await import("node:fs/promises");
    return WebAssembly.compile(await readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new DopplerError("io", `The module ${url} cannot be fetched: the server answers ${response.status}.`);
  const type = response.headers.get("Content-Type") ?? "";
  return type.startsWith("application/wasm") ? WebAssembly.compileStreaming(response)
    : WebAssembly.compile(await response.arrayBuffer());
}

// The module and the memory that its threads share, if it has any: the one that was asked for, or the best that there can be.
async function compileFor(url, share, diagnosis) {
  let memory;
  try {
    if (share.count > 1) memory = sharedMemory();
  } catch (error) {
    Object.assign(share, { count: 1, why: `the browser gives no memory that threads can share: ${error.message}` });
  }
  const compiled = await compile(new URL(url ?? bestModule(share.count > 1, diagnosis)));
  const shares = WebAssembly.Module.imports(compiled).some(({ kind }) => kind === "memory");
  if (shares && !memory) throw new DopplerError("unsupported", `The module ${url} is for several threads, but there is one, because ${share.why}.`);
  if (!shares && memory) Object.assign(share, { count: 1, why: `the module ${url} has no others` });
  return { compiled, memory: shares ? memory : undefined };
}

// The values of stages stand in the module's memory, as [where, how many].
function takeValues(memory, answer) {
  for (const part of [answer, ...(answer?.stages ?? [])]) {
    if (!part?.floats) continue;
    part.values = new Float32Array(memory.buffer, part.floats[0] >>> 0, part.floats[1]).slice();
    delete part.floats;
  }
  return answer;
}

export class Module {
  #exports;
  #memory;
  #call;
  #last; // settles when nothing is under way
  #threads;
  #onLost;
  lost; // why nothing is called any more, a DopplerError
  onProgress = () => {};

  // `files`: [path, content] of everything that the model consists of; contents as readerOf() takes them, Blobs in a worker only.
  // `url`: a module, else the best for `threads`, 0 being as many as there can be, with diagnosis in it or without.
  // `onLost(error)`: nothing will be answered any more.
  static async open({ url, diagnosis, threads, files, print, onLost = () => {} }) {
    const module = new Module();
    module.#onLost = onLost;
    const share = await threadsHere(threads);
    const [readers, found, { compiled, memory: shared }] = await Promise.all([
      Promise.all(files.map(async ([path, content]) => [path, await readerOf(content)])), readKept(), compileFor(url, share, diagnosis)]);
    const kept = new Map([...found].map(([path, bytes]) => [path, readerOfBytes(bytes)]));
    const progress = (part, what) => module.onProgress(part, what);
    const memory = () => module.#memory;
    const imports = { ...importsFor({ readers: new Map(readers), kept, progress, print, memory, why: () => module.#threads.why }),
      gpu: gpuImports(memory, (why) => module.#lose(new DopplerError("lost", `The GPU is lost: ${why}. ${AGAIN}`))), env: { memory: shared } };
    const exports = module.#exports = (await WebAssembly.instantiate(compiled, imports)).exports;
    module.#memory = shared ?? exports.memory;
    module.#call = typeof WebAssembly.promising === "function" ? WebAssembly.promising(exports.call) : exports.call;
    exports._initialize();
    module.#threads = shared ? await startThreads({ compiled, memory: shared, exports, print, stopped: (error) => module.#lose(error), ...share })
      : share;
    if (module.lost) module.close(); // one has stopped before all had begun
    return module;
  }

  close() {
    this.#threads?.end?.();
  }

  #lose(error) {
    if (this.lost) return;
    this.lost = error instanceof DopplerError ? error : new DopplerError("lost", `The engine has stopped: ${error.message}. ${AGAIN}`, { cause: error });
    this.close();
    this.#onLost(this.lost);
  }

  // One call after another: one that waits for a GPU stands in the instance's memory.
  call(name, request) {
    const answer = Promise.resolve(this.#last).then(() => this.#callNow(name, request));
    this.#last = answer.catch(() => {});
    return answer;
  }

  // A trap leaves the instance in no known state, so that nothing is called in it again.
  async #callNow(name, request) {
    if (this.lost) throw new DopplerError("lost", this.lost.message, { cause: this.lost });
    let answer;
    try {
      answer = await this.#exchange({ ...request, call: name });
    } catch (error) {
      this.#lose(error);
      throw this.lost;
    }
    if (answer.error && this.lost) throw this.lost; // of a device that was lost meanwhile
    if (answer.error) throw new DopplerError(answer.error.code, answer.error.message);
    return takeValues(this.#memory, answer.result);
  }

  async #exchange(request) {
    const { allocate, answer_size } = this.#exports, memory = this.#memory;
    const bytes = encoder.encode(JSON.stringify(request));
    const at = allocate(bytes.length) >>> 0;
    new Uint8Array(memory.buffer, at, bytes.length).set(bytes);
    const from = await this.#call(at, bytes.length) >>> 0;
    return JSON.parse(textIn(memory, from, answer_size()));
  }
}
