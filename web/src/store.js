// Store: models that stay on this device, in the origin's private file system.
import { DopplerError } from "./errors.js";
import { WorkerHost } from "./hosts.js";
import { WorkerCalls } from "./rpc.js";
import { modelPath } from "./sources.js";

const GIB = 2 ** 30;
const MODULE_BYTES = 4 * GIB; // all that 32 bits reach
// What a module takes besides weights, cache and activations: itself (11 MB), and a tokenizer of 260,000 entries with the part of
// the file that it stands in.
const BESIDES_BYTES = 150e6;

const isWeights = ({ path }) => /\.(gguf|safetensors|bin)$/i.test(path);
const show = (bytes) => (bytes < 1e9 ? `${Math.round(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`);
const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);

// What the engine says of a model whose weights it reads the descriptions of, wherever they lie.
async function inspect({ files, key }, entry, module, options) {
  const contents = await Promise.all(files.map(async ({ path, url, size, content }, index) => {
    if (content) return [path, content];
    if (entry?.files[index].sha256) return [path, { kept: key, index }];
    if (isWeights({ path }) && size !== undefined) return [path, { url, size }];
    const response = await fetch(url);
    if (!response.ok) throw new DopplerError("io", `The file ${url} cannot be fetched: the server answers ${response.status}.`);
    return [path, await response.blob()];
  }));
  const host = await WorkerHost.open({ url: module && String(module), threads: 1, files: contents, progress: () => {} });
  try {
    return await host.call("describe", { model: modelPath(contents), options });
  } finally {
    host.close();
  }
}

// Errors of the model itself; others mean that a server or the browser does not let us look.
const OF_THE_MODEL = ["usage", "corrupt", "unsupported", "mismatch"];

// Sizes beforehand, and what speaks against it, a sentence each.
function planOf(model, entry, info, { quota, usage, persisted }) {
  const files = model.files.map(({ path, size, url }, index) => ({ path, url, size, have: entry?.files[index]?.have ?? 0 }));
  const sizes_known = files.every(({ size }) => size !== undefined);
  const bytes = sum(files, ({ size, have }) => size ?? have), missing = bytes - sum(files, ({ have, size }) => Math.min(have, size ?? have));
  const described = info && !(info instanceof Error) ? info : undefined;
  const memory = (described ? described.memory.weights + described.memory.cache + described.memory.activations
    : sum(files.filter(isWeights), ({ size }) => size ?? 0)) + BESIDES_BYTES;
  const device = (navigator.deviceMemory ?? Infinity) * GIB; // rounded, and at most 8 or 32, where browsers tell it
  const against = [];
  if (OF_THE_MODEL.includes(info?.code)) against.push(info.message);
  if (memory > MODULE_BYTES) against.push(`The model needs about ${show(memory)} of memory, and a module can have ${show(MODULE_BYTES)}.`);
  else if (memory > device) against.push(`The model needs about ${show(memory)} of memory, and this device has ${show(device)}.`);
  if (missing > quota - usage) against.push(`The model takes ${show(missing)} more here, and the browser gives this site ${show(quota - usage)}.`);
  return { key: model.key, name: model.name, files, bytes, missing, sizes_known, info: described, memory,
    storage: { quota, usage, persisted }, complete: entry?.complete ?? false, runs: against.length === 0, against };
}

export class Store {
  #calls = new WorkerCalls(new Worker(new URL("./store_worker.js", import.meta.url), { type: "module" }));
  #options;

  // Whether this browser can keep models: it has a private file system, and workers that may write to it.
  static get available() {
    return typeof Worker === "function" && Boolean(globalThis.navigator?.storage?.getDirectory) && Boolean(globalThis.navigator?.locks);
  }

  // `hub`: another Hub than huggingface.co. The others: as in download.js.
  constructor(options = {}) {
    if (!Store.available) {
      throw new DopplerError("unsupported", "This browser keeps no files for pages, or the page is not served over https. " +
        "Load the model with keep: false.");
    }
    this.#options = options;
  }

  // What downloading would take and whether the model would run here, before a byte of its weights is fetched.
  async plan(source, { signal, module, ...options } = {}) {
    const model = await this.#describe(source, signal);
    const [entry, estimate, persisted] = await Promise.all([this.#calls.call("find", { key: model.key }), navigator.storage.estimate(),
      navigator.storage.persisted()]);
    const info = await inspect(model, entry, module, options).catch((error) => error);
    signal?.throwIfAborted();
    return planOf(model, entry, info, { ...estimate, persisted });
  }

  // Downloads what is missing. `onProgress({file, bytes, total, bytes_per_second, seconds_left, waiting})`.
  async add(source, { signal, onProgress = () => {} } = {}) {
    const { hub, ...options } = this.#options;
    const model = await this.#describe(source, signal);
    const speed = new Speed();
    const progress = (told) => onProgress({ ...told, ...speed.after(told) });
    return this.#calls.call("keep", { model, options }, { signal, progress });
  }

  list() {
    return this.#calls.call("list", {});
  }
  remove(key) {
    return this.#calls.call("remove", { key });
  }
  // Asks the browser not to remove what is kept when space is short. Says whether it agrees.
  persist() {
    return navigator.storage.persist();
  }
  close() {
    this.#calls.close("The store is closed.");
  }

  #describe(source, signal) {
    const { hub } = this.#options;
    const isAddress = typeof source === "string" || source instanceof URL;
    // A worker has another address to which others are relative.
    const sent = !isAddress ? (source instanceof Blob ? source : [...source])
      : /^hf:/.test(source) ? String(source) : new URL(source, location.href).href;
    return this.#calls.call("describe", { source: sent, hub }, { signal });
  }
}

// The speed of the last seconds.
class Speed {
  #told = [];
  after({ bytes, total }) {
    const now = performance.now();
    this.#told.push([now, bytes]);
    while (this.#told.length > 2 && this.#told[0][0] < now - 5000) this.#told.shift();
    const [[before, then]] = this.#told;
    const bytes_per_second = now > before ? (bytes - then) / (now - before) * 1000 : 0;
    return { bytes_per_second, seconds_left: bytes_per_second > 0 ? (total - bytes) / bytes_per_second : undefined };
  }
}
