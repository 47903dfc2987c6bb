// Module: one instance of doppler_plain.wasm or doppler_relaxed.wasm on this thread, called with objects.
import { DopplerError } from "./errors.js";
import { gpuImports } from "./gpu.js";
import { importsFor, readerOf } from "./imports.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

// A function of i8x16.relaxed_swizzle alone: what has relaxed vectors takes it.
const RELAXED = Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0, 10, 15, 1, 13, 0,
  0x41, 0, 0xfd, 0x0f, 0x41, 0, 0xfd, 0x0f, 0xfd, 0x80, 2, 0x0b]);

// The fastest module that runs here; all of them compute the same bits.
export function bestModule() {
  const name = WebAssembly.validate(RELAXED) ? "doppler_relaxed.wasm" : "doppler_plain.wasm";
  return new URL(`./${name}`, import.meta.url);
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

export class Module {
  #exports;
  #call;
  #last; // settles when nothing is under way
  #lost;
  onProgress = () => {};

  // `files`: [path, content] of everything that the model consists of; contents as readerOf() takes them, Blobs in a worker only.
  static async open({ url, files, print }) {
    const module = new Module();
    const readers = new Map(await Promise.all(files.map(async ([path, content]) => [path, await readerOf(content)])));
    const compiled = await compile(new URL(url));
    const progress = (share, what) => module.onProgress(share, what);
    const memory = () => module.#exports.memory;
    const imports = { ...importsFor({ readers, progress, print, memory }), gpu: gpuImports(memory) };
    module.#exports = (await WebAssembly.instantiate(compiled, imports)).exports;
    const { call } = module.#exports;
    module.#call = typeof WebAssembly.promising === "function" ? WebAssembly.promising(call) : call;
    module.#exports._initialize();
    return module;
  }

  // One call after another: one that waits for a GPU stands in the instance's memory.
  call(name, request) {
    const answer = Promise.resolve(this.#last).then(() => this.#callNow(name, request));
    this.#last = answer.catch(() => {});
    return answer;
  }

  // A trap leaves the instance in no known state, so that nothing is called in it again.
  async #callNow(name, request) {
    if (this.#lost) throw new DopplerError("lost", "The engine has stopped after an error. Load the model again.", { cause: this.#lost });
    let answer;
    try {
      answer = await this.#exchange({ ...request, call: name });
    } catch (error) {
      this.#lost = error;
      if (error instanceof DopplerError) throw error;
      throw new DopplerError("lost", `The engine has stopped: ${error.message}. Load the model again.`, { cause: error });
    }
    if (answer.error) throw new DopplerError(answer.error.code, answer.error.message);
    return answer.result;
  }

  async #exchange(request) {
    const { memory, allocate, answer_size } = this.#exports;
    const bytes = encoder.encode(JSON.stringify(request));
    const at = allocate(bytes.length) >>> 0;
    new Uint8Array(memory.buffer, at, bytes.length).set(bytes);
    const from = await this.#call(at, bytes.length) >>> 0;
    return JSON.parse(decoder.decode(new Uint8Array(memory.buffer, from, answer_size() >>> 0)));
  }
}
