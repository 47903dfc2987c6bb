// Threads of a module: how many there can be here, and workers that are each one of them (thread.js).
import { DopplerError } from "./errors.js";

const MOST = 32; // that the module knows (src/system/web/threads.h)
const PAGES = 256; // of 64 KiB, that the module asks for at least (web/CMakeLists.txt)
const MOST_PAGES = 65536; // all that 32 bits reach
const node = Boolean(globalThis.process?.versions?.node);

// Why there can be only one thread here; undefined if there can be more.
function against() {
  if (typeof SharedArrayBuffer !== "function" || (!node && !globalThis.crossOriginIsolated)) {
    return "the page is not cross-origin isolated, so that threads could not share memory";
  }
  if (!node && typeof Worker !== "function") return "this browser starts no workers from a worker";
  try {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 1, 0);
  } catch {
    return "it computes on the page's own thread, which may not wait for others";
  }
}

// {count, why}: how many threads of the wanted number (0: as many as there can be) an engine on this thread gets, and why.
export async function threadsHere(wanted = 0) {
  if (!Number.isInteger(wanted) || wanted < 0) throw new DopplerError("usage", "The option threads is no whole number from 0 on.");
  const processors = node ? (await import("node:os")).availableParallelism() : navigator.hardwareConcurrency ?? 1;
  const reason = against();
  if (reason) return { count: 1, why: reason };
  if (wanted > 0 && wanted <= Math.min(processors, MOST)) return { count: wanted, why: "so many were asked for" };
  if (processors > MOST) return { count: MOST, why: "a module has no more" };
  return { count: processors, why: `the device has ${processors} processor${processors === 1 ? "" : "s"}` };
}

export function sharedMemory() {
  return new WebAssembly.Memory({ initial: PAGES, maximum: MOST_PAGES, shared: true });
}

// One worker: resolves to what ends it, once it waits for work.
async function startThread(task, { print, stopped }) {
  let end, listen, ready = () => {};
  if (node) {
    const threads = await import("node:worker_threads");
    const worker = new threads.Worker(new URL("./thread.js", import.meta.url), { workerData: task, execArgv: [] });
    ready = () => worker.unref(); // an engine that nobody closes keeps no program from its end
    end = () => worker.terminate();
    listen = (event, act) => worker.on(event, act);
  } else {
    const worker = new Worker(new URL("./thread.js", import.meta.url), { type: "module" });
    worker.postMessage(task);
    end = () => worker.terminate();
    listen = (event, act) => worker.addEventListener(event, (told) => act(event === "message" ? told.data : told));
  }
  return new Promise((resolve, reject) => {
    listen("message", (told) => {
      if (told.line !== undefined) return print(told.line);
      if (told.stopped) return stopped(new DopplerError(told.stopped.code, told.stopped.message));
      ready();
      resolve(end);
    });
    listen("error", (error) => reject(new Error(error.message || "its file thread.js cannot be loaded")));
    if (node) listen("exit", () => reject(new Error("it has ended")));
  });
}

// Threads 1 to `count` - 1 of an instance. {count, why, end()}: fewer than wanted where one does not start.
// `stopped(error)`: one of them has ended by an error.
export async function startThreads({ compiled, memory, exports, count, why, ...tell }) {
  const tasks = Array.from({ length: count - 1 }, (_, i) => ({ compiled, memory, number: i + 1, room: exports.thread_room() >>> 0 }));
  const begun = await Promise.allSettled(tasks.map((task) => startThread(task, tell)));
  const first = begun.findIndex(({ status }) => status === "rejected"); // numbers have no gaps
  const good = first < 0 ? begun : begun.slice(0, first);
  for (const { value: end } of begun.slice(good.length)) end?.();
  exports.set_threads(1 + good.length);
  if (first >= 0) why = `a worker for a thread cannot be started: ${begun[first].reason.message}`;
  return { count: 1 + good.length, why, end: () => good.forEach(({ value: end }) => end()) };
}
