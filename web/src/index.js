// Doppler in a page or in node: Doppler.load() gives an Engine. Types and what they mean: index.d.ts.
import { Completions } from "./chat.js";
import { DopplerError } from "./errors.js";
import { LocalHost, WorkerHost } from "./hosts.js";
import { filesOf, isReader, modelPath } from "./sources.js";
import { Store } from "./store.js";

export { DopplerError, Store };

const PIECE_MS = 20; // so often a generation looks whether it is still wanted; an eye sees no steps

// A prompt as the module takes it.
function promptOf(prompt) {
  if (typeof prompt === "string") return { text: prompt };
  if (Array.isArray(prompt) && prompt.every((id) => typeof id === "number")) return { ids: prompt };
  return { conversation: JSON.stringify(prompt) ?? "" };
}

export class Generation {
  #pieces;
  #result;

  constructor(engine, turn, prompt, options) {
    this.#pieces = this.#run(engine, turn, prompt, options);
  }

  // Pieces of text as they become certain: {text, ids, logprobs}.
  [Symbol.asyncIterator]() {
    return this.#pieces;
  }

  // The whole, once the pieces are through; goes through those that nobody has taken.
  async result() {
    while (!(await this.#pieces.next()).done);
    return this.#result;
  }

  async *#run(call, turn, prompt, { signal, watch, ...options }) {
    const release = await turn();
    try {
      signal?.throwIfAborted();
      await call("begin", { ...promptOf(prompt), options, watch });
      try {
        for (let more = true; more;) {
          signal?.throwIfAborted();
          const piece = await call("next", { ms: PIECE_MS });
          more = piece.more;
          delete piece.more;
          if (piece.text || piece.ids.length > 0) yield piece;
        }
      } finally {
        this.#result = await call("end");
      }
      const { rest, ...result } = this.#result;
      this.#result = result;
      if (rest) yield { text: rest, ids: [], logprobs: [] };
    } finally {
      release();
    }
  }
}

export class Engine {
  #host;
  #last = Promise.resolve();

  constructor(host, info) {
    this.#host = host;
    this.info = info;
    this.chat = { completions: new Completions(this) };
  }

  generate(prompt, options = {}) {
    return new Generation((name, request) => this.#host.call(name, request), () => this.#turn(), prompt, options);
  }
  async tokenize(text, { special = true } = {}) {
    return (await this.#host.call("tokenize", { text, special })).ids;
  }
  async detokenize(ids) {
    return (await this.#host.call("detokenize", { ids: [...ids] })).text;
  }
  async renderChat(conversation) {
    return (await this.#host.call("render", { conversation: JSON.stringify(conversation) })).text;
  }
  inspect() {
    return this.#host.call("inspect", {});
  }
  close() {
    this.#host.close();
  }

  // Generations go one after another, in the order in which they were first asked for a piece.
  async #turn() {
    let release;
    const before = this.#last;
    const mine = new Promise((done) => { release = done; });
    this.#last = before.then(() => mine);
    await before;
    return release;
  }
}

// The files of a model that the store has, after downloading what is missing.
async function keptFiles(source, { store, onProgress, signal }) {
  const own = store ?? new Store();
  try {
    const entry = await own.add(source, { signal, onProgress: (told) => onProgress(told.total > 0 ? told.bytes / told.total : 0, told.file, told) });
    return entry.files.map(({ path }, index) => [path, { kept: entry.key, index }]);
  } finally {
    if (!store) own.close();
  }
}

const isAddress = (source) => typeof source === "string" || source instanceof URL;

export const Doppler = {
  async load(source, { model, worker = typeof Worker === "function", module, threads, store,
    keep = isAddress(source) && worker && Store.available, onProgress = () => {}, signal, watch, ...options } = {}) {
    if (keep && !worker) throw new DopplerError("usage", "What is kept can only be read by a worker. Leave out worker: false or keep: true.");
    const files = await (keep ? keptFiles(source, { store, onProgress, signal }) : filesOf(source, { signal }));
    if (worker && files.some(([, content]) => isReader(content))) {
      throw new DopplerError("usage", "A worker cannot be sent a reader. Give a Blob or bytes, or worker: false.");
    }
    const path = model ?? modelPath(files);
    const Host = worker ? WorkerHost : LocalHost;
    const host = await Host.open({ url: module && String(module), threads, files, progress: onProgress });
    try {
      signal?.throwIfAborted();
      return new Engine(host, await host.call("load", { model: path, options: { threads, ...options }, watch }));
    } catch (error) {
      host.close();
      throw error;
    }
  },
};
