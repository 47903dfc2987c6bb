// Where the module runs: in a worker, so that the page stays awake, or on the caller's thread. Both have call() and close().
import { DopplerError } from "./errors.js";
import { Module } from "./module.js";

export class WorkerHost {
  #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  #waiting = new Map();
  #number = 0;
  #ended; // why nothing answers any more

  static async open({ progress, ...request }) {
    const host = new WorkerHost();
    host.#worker.addEventListener("message", ({ data }) => {
      if (data.progress) progress(...data.progress);
      else host.#settle(data);
    });
    host.#worker.addEventListener("error", (event) => host.#fail(`The worker has failed: ${event.message ?? "it cannot be loaded"}.`));
    await host.call("open", request);
    return host;
  }

  call(call, request) {
    if (this.#ended) return Promise.reject(new DopplerError("lost", this.#ended));
    return new Promise((resolve, reject) => {
      const id = ++this.#number;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, call, request });
    });
  }
  close() {
    this.#worker.terminate();
    this.#fail("The engine is closed.");
  }

  #settle({ id, result, error }) {
    const { resolve, reject } = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error) reject(new DopplerError(error.code, error.message));
    else resolve(result);
  }
  #fail(message) {
    this.#ended = message;
    for (const { reject } of this.#waiting.values()) reject(new DopplerError("lost", message));
    this.#waiting.clear();
  }
}

export class LocalHost {
  #module;

  static async open({ files, ...rest }) {
    const host = new LocalHost();
    const bytes = async ([path, content]) => [path, content instanceof Blob ? await content.arrayBuffer() : content];
    host.#module = await Module.open({ files: await Promise.all(files.map(bytes)), print: (line) => console.warn(line), ...rest });
    return host;
  }

  async call(call, request) {
    if (!this.#module) throw new DopplerError("lost", "The engine is closed.");
    await new Promise((resume) => setTimeout(resume)); // other work of this thread comes first
    return this.#module.call(call, request);
  }
  close() {
    this.#module = undefined;
  }
}
