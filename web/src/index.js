// Doppler in a page or in node: Doppler.load() gives an Engine. Types and what they mean: index.d.ts.
import { Completions } from "./chat.js";
import { DopplerError } from "./errors.js";
import { Generation, Look, promptOf } from "./generation.js";
import { Living, Opening } from "./opening.js";
import { filesOf } from "./sources.js";
import { Store } from "./store.js";

export { DopplerError, Store };

export class Engine {
  #living;
  #last = Promise.resolve();

  constructor(living) {
    this.#living = living;
    this.chat = { completions: new Completions(this) };
  }

  // What was said when the model was loaded, for the last time if it had to be loaded again.
  get info() {
    return this.#living.info;
  }

  generate(prompt, options = {}) {
    return new Generation(() => this.#living.host(), () => this.#turn(), prompt, options);
  }
  look(prompt, request) {
    return new Look(() => this.#living.host(), () => this.#turn(), prompt, request);
  }
  async score(prompt, { top = 0 } = {}) {
    const release = await this.#turn();
    try {
      return await this.#call("score", { ...promptOf(prompt), top });
    } finally {
      release();
    }
  }
  async tokenize(text, { special = true } = {}) {
    return (await this.#call("tokenize", { text, special })).ids;
  }
  async detokenize(ids) {
    return (await this.#call("detokenize", { ids: [...ids] })).text;
  }
  async renderChat(conversation) {
    return (await this.#call("render", { conversation: JSON.stringify(conversation) })).text;
  }
  async inspect() {
    const info = await this.#call("inspect", {});
    info.notes.push(...this.#living.notes);
    return info;
  }
  // `other`: a recording, as its address or content, or {with: another backend, prompt}.
  async compare(other, options = {}) {
    const isBackend = typeof other?.with === "string"; // arrays have a function of that name
    const { signal, onProgress, ...own } = options;
    return this.#living.diagnose("compare", isBackend ? other : { reference: other }, own, { signal, onProgress });
  }
  async doctor({ reference, signal, onProgress, ...own } = {}) {
    return this.#living.diagnose("doctor", { reference }, own, { signal, onProgress });
  }
  close() {
    this.#living.close();
  }

  async #call(name, request) {
    return (await this.#living.host()).call(name, request);
  }

  // Generations and looks go one after another, in the order in which they were first asked for a piece.
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

// What a source names, ready to be opened.
async function openingOf(source, { worker = typeof Worker === "function", store, keep = isAddress(source) && worker && Store.available,
  onProgress = () => {}, signal, ...options }) {
  if (keep && !worker) throw new DopplerError("usage", "What is kept can only be read by a worker. Leave out worker: false or keep: true.");
  const files = await (keep ? keptFiles(source, { store, onProgress, signal }) : filesOf(source, { signal }));
  return new Opening(files, { worker, ...options });
}

export const Doppler = {
  async load(source, options = {}) {
    return new Engine(await Living.open(await openingOf(source, options), options.onProgress ?? (() => {}), options.signal));
  },

  // What is wrong with a model, also with one that cannot be loaded.
  async doctor(source, { reference, check, seconds, hashes, ...options } = {}) {
    const opening = await openingOf(source, options);
    return opening.diagnose("doctor", { reference }, { check, seconds, hashes }, options);
  },
};
