// Where the module runs: in a worker, so that the page stays awake, or on the caller's thread. Both have call() and close().
import { DopplerError } from "./errors.js";
import { Module } from "./module.js";
import { WorkerCalls } from "./rpc.js";

export class WorkerHost {
  #calls = new WorkerCalls(new Worker(new URL("./worker.js", import.meta.url), { type: "module" }));
  #progress;

  static async open({ progress, ...request }) {
    const host = new WorkerHost();
    host.#progress = progress;
    await host.call("open", request);
    return host;
  }

  call(call, request) {
    return this.#calls.call(call, request, { progress: this.#progress });
  }
  close() {
    this.#calls.close();
  }
}

export class LocalHost {
  #module;

  static async open({ files, progress, ...rest }) {
    const host = new LocalHost();
    const bytes = async ([path, content]) => [path, content instanceof Blob ? await content.arrayBuffer() : content];
    host.#module = await Module.open({ files: await Promise.all(files.map(bytes)), print: (line) => console.warn(line), ...rest });
    host.#module.onProgress = progress;
    return host;
  }

  async call(call, request) {
    if (!this.#module) throw new DopplerError("lost", "The engine is closed.");
    await new Promise((resume) => setTimeout(resume)); // other work of this thread comes first
    return this.#module.call(call, request);
  }
  close() {
    this.#module?.close();
    this.#module = undefined;
  }
}
