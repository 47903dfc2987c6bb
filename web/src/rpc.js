// Calls to a worker, and their answers: what the engine's worker and the store's have in common. Who starts one says
// `new Worker(new URL(name, import.meta.url), …)` in full, because bundlers find workers by these words.
import { DopplerError } from "./errors.js";

export class WorkerCalls {
  #worker;
  #waiting = new Map();
  #number = 0;
  ended; // why nothing answers any more, a DopplerError

  constructor(worker) {
    this.#worker = worker;
    this.#worker.addEventListener("message", ({ data }) => {
      if (data.progress) this.#waiting.get(data.id)?.progress(...data.progress);
      else if (data.over) this.close(data.over.message, data.over.code);
      else this.#settle(data);
    });
    this.#worker.addEventListener("error", (event) => this.close(`The worker has failed: ${event.message ?? "it cannot be loaded"}.`));
  }

  call(call, request, { progress = () => {}, signal } = {}) {
    if (this.ended) return Promise.reject(this.ended);
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const id = ++this.#number;
      const stop = () => this.#worker.postMessage({ id, abort: true });
      signal?.addEventListener("abort", stop, { once: true });
      const settle = (then) => (value) => {
        signal?.removeEventListener("abort", stop);
        then(value);
      };
      this.#waiting.set(id, { resolve: settle(resolve), reject: settle((error) => reject(signal?.aborted ? signal.reason : error)), progress });
      this.#worker.postMessage({ id, call, request });
    });
  }

  close(why = "The engine is closed.", code = "lost") {
    this.#worker.terminate();
    this.ended ??= new DopplerError(code, why);
    for (const { reject } of this.#waiting.values()) reject(this.ended);
    this.#waiting.clear();
  }

  #settle({ id, result, error }) {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error) waiting?.reject(new DopplerError(error.code, error.message));
    else waiting?.resolve(result);
  }
}

// The arrays of numbers in a result, which need not be copied on their way.
const arraysOf = (result) => [result, ...(result?.stages ?? [])].filter((part) => part?.values instanceof Float32Array)
  .map(({ values }) => values.buffer);

// The worker's side: that it will answer no more, and why.
export const tellOver = ({ code, message }) => postMessage({ over: { code, message } });

// `answer(call, request, {progress, signal})` gives the result, or throws.
export function serve(answer) {
  const running = new Map();
  addEventListener("message", async ({ data: { id, call, request, abort } }) => {
    if (abort) return running.get(id)?.abort();
    const stopping = new AbortController();
    running.set(id, stopping);
    const progress = (...told) => postMessage({ id, progress: told });
    try {
      const result = await answer(call, request, { progress, signal: stopping.signal });
      postMessage({ id, result }, arraysOf(result));
    } catch (error) {
      const code = typeof error.code === "string" ? error.code : "internal"; // a DOMException's is a number
      postMessage({ id, error: { code, message: error.message } });
    } finally {
      running.delete(id);
    }
  });
}
