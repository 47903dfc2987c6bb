// Where the module runs: in a worker, so that the page stays awake, or on the caller's thread. Both have call(), close(), and
// `lost`, an error once nothing answers any more.
import { DopplerError } from "./errors.js";
import { Module } from "./module.js";
import { WorkerCalls } from "./rpc.js";

export class WorkerHost {
  #calls = new WorkerCalls(new Worker(new URL("./worker.js", import.meta.url), { type: "module" }));
  #progress;
  #watching = new AbortController();

  static async open({ progress, ...request }) {
    const host = new WorkerHost();
    host.#progress = progress;
    const lock = globalThis.navigator?.locks && `doppler-worker-${crypto.randomUUID()}`;
    await host.call("open", { lock, ...request });
    if (lock) host.#watch(lock);
    return host;
  }

  get lost() {
    return this.#calls.ended;
  }
  #watch(lock) {
    const over = () => this.#calls.close("The engine's worker has ended: the browser has stopped it.");
    navigator.locks.request(lock, { signal: this.#watching.signal }, over).catch(() => {}); // when it is closed
  }

  call(call, request) {
    return this.#calls.call(call, request, { progress: this.#progress });
  }
  close() {
    this.#watching.abort();
    this.#calls.close();
  }
}

export class LocalHost {
  #module;

  get lost() {
    return this.#module ? this.#module.lost : new DopplerError("lost", "The engine is closed.");
  }

  static async open({ files, progress, ...rest }) {
    const host = new LocalHost();
    const bytes = async ([path, content]) => [path, content instanceof Blob ? await content.arrayBuffer() : content];
    host.#module = await Module.open({ files: await Promise.all(files.map(bytes)), print: (line) => console.warn(line), ...rest });
    host.#module.onProgress = progress;
    return host;
  }

  async call(call, request) {
    if (!this.#module) throw this.lost;
    await new Promise((resume) => setTimeout(resume)); // other work of this thread comes first
    return this.#module.call(call, request);
  }
  close() {
    this.#module?.close();
    this.#module = undefined;
  }
}
