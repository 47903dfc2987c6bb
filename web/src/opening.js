// How a model's modules are opened: the engine's own, again where it was lost, and one with diagnosis for a single question.
import { DopplerError } from "./errors.js";
import { LocalHost, WorkerHost } from "./hosts.js";
import { fetchFile, isReader, modelPath } from "./sources.js";

// Apart from the model's own files, whose folder it would else look like a part of.
const REFERENCE = "doppler-reference/recording.safetensors";

const isAddress = (source) => typeof source === "string" || source instanceof URL;

export class Opening {
  #files;
  #path;
  #worker;
  #module;
  #threads;
  #options;
  #watch;

  // `files`: [path, content]. They are kept for the next time, which costs nothing for Blobs and what a store has.
  constructor(files, { model, worker, module, threads, watch, ...options }) {
    if (worker && files.some(([, content]) => isReader(content))) {
      throw new DopplerError("usage", "A worker cannot be sent a reader. Give a Blob or bytes, or worker: false.");
    }
    this.#files = files;
    this.#path = model ?? modelPath(files);
    this.#worker = worker;
    this.#module = module && String(module);
    this.#threads = threads;
    this.#watch = watch;
    this.#options = { threads, ...options };
  }

  // {host, info} of an engine that is ready.
  async load(progress, signal) {
    const host = await this.#open({ url: this.#module, files: this.#files, progress });
    try {
      signal?.throwIfAborted();
      return { host, info: await host.call("load", { model: this.#path, options: this.#options, watch: this.#watch }) };
    } catch (error) {
      host.close();
      throw error;
    }
  }

  // The answer of a module that opens the model for this question alone. `asked`: {reference, with, prompt}.
  async diagnose(call, { reference, ...asked }, own, { signal, onProgress = () => {} }) {
    signal?.throwIfAborted();
    const files = [...this.#files];
    if (reference !== undefined) {
      files.push([REFERENCE, isAddress(reference) ? await fetchFile(String(reference), { signal }) : reference]);
      asked.reference = REFERENCE;
    }
    const url = this.#module?.replace(/doppler_(?!diagnosis_)(\w+\.wasm)/, "doppler_diagnosis_$1");
    const host = await this.#open({ url, diagnosis: true, files, progress: onProgress });
    const stop = () => host.close();
    signal?.addEventListener("abort", stop, { once: true });
    try {
      return await host.call(call, { model: this.#path, options: this.#options, own, ...asked });
    } catch (error) {
      throw signal?.aborted ? signal.reason : error;
    } finally {
      signal?.removeEventListener("abort", stop);
      host.close();
    }
  }

  #open(how) {
    return (this.#worker ? WorkerHost : LocalHost).open({ threads: this.#threads, ...how });
  }
}

// An engine's host, which is opened again when a call comes after it was lost.
export class Living {
  #opening;
  #host;
  #progress;
  #again; // while it is opened again
  #times = 0;
  #closed = false;
  info;
  notes = []; // of having been opened again

  static async open(opening, progress, signal) {
    const living = new Living();
    living.#opening = opening;
    living.#progress = progress;
    await living.#load(signal);
    return living;
  }

  async host() {
    if (this.#closed) throw new DopplerError("lost", "The engine is closed.");
    if (!this.#host.lost) return this.#host;
    this.#again ??= this.#reload().finally(() => { this.#again = undefined; });
    await this.#again;
    return this.#host;
  }

  diagnose(...question) {
    if (this.#closed) throw new DopplerError("lost", "The engine is closed.");
    return this.#opening.diagnose(...question);
  }

  close() {
    this.#closed = true;
    this.#host.close();
  }

  async #load(signal) {
    const { host, info } = await this.#opening.load(this.#progress, signal);
    this.#host = host;
    this.info = info;
  }

  async #reload() {
    const { message } = this.#host.lost;
    this.#host.close();
    await this.#load();
    if (this.#closed) this.#host.close();
    const often = ++this.#times === 1 ? "again" : `again ${this.#times} times`;
    this.notes = [`The model was loaded ${often}, and computes its next prompt from the start, because: ${message}`];
    this.info.notes.push(...this.notes);
  }
}
