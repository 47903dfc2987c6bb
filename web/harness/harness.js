// What `doppler web` shows to a browser: does the task that the program gives, and posts what comes of it.
import { Doppler, Store } from "./web/index.js";
import { describeSource } from "./web/hub.js";

let posting = Promise.resolve(); // in order
const post = (report) => {
  posting = posting.then(() => fetch("report", { method: "POST", body: JSON.stringify(report) })).catch(() => {});
  return posting;
};
const fault = (error) => post({ error: { code: typeof error?.code === "string" ? error.code : "internal", message: error?.message ?? String(error) } });
addEventListener("error", ({ message }) => fault({ message: `The page has failed: ${message}` }));
addEventListener("unhandledrejection", ({ reason }) => fault(reason));

const SELDOM_MS = 100; // between two words about progress
let told = 0;
function onProgress(share, what) {
  if (performance.now() - told < SELDOM_MS) return;
  told = performance.now();
  post({ progress: [share, what] });
}

// A model whose address differs is another one, such as this one before it was changed. Small files are which kernels a GPU
// computes rightly.
async function forget(store, { key, name }, everything) {
  for (const entry of await store.list()) {
    if (entry.name === name && (everything || entry.key !== key)) await store.remove(entry.key);
  }
  if (everything) await Promise.all((await caches.keys()).map((cache) => caches.delete(cache)));
}

// A generation, with what was watched told as it comes.
async function generate(engine, prompt, options) {
  const probes = [];
  const tell = (piece) => {
    if (piece.said) post({ said: piece.said });
    probes.push(...piece.probes ?? []);
  };
  const generation = engine.generate(prompt, options);
  for await (const piece of generation) tell(piece);
  const { said, probes: last, ...result } = await generation.result();
  tell({ said, probes: last });
  return options.watch?.probes?.length ? { ...result, probes } : result;
}

// One load and its generations. `cold`: nothing of the model is here before.
async function runOnce(task, store, model, cold) {
  await forget(store, model, cold);
  const begin = performance.now();
  let kept = begin;
  if (cold) { // by itself, so that its time is told apart
    await store.add(task.model, { onProgress: ({ bytes, total, file }) => onProgress(total > 0 ? bytes / total : 0, `downloading ${file}`) });
    kept = performance.now();
  }
  const engine = await Doppler.load(task.model, { ...task.load, store, watch: task.watch, onProgress });
  try {
    const ready = performance.now();
    const { said, backend, device, notes } = engine.info;
    if (said) post({ said });
    const generations = [];
    for (const prompt of task.prompts) generations.push(await generate(engine, prompt, { ...task.options, watch: task.watch }));
    const { memory } = await engine.inspect();
    return { cold, download_ms: cold ? kept - begin : undefined, ready_ms: ready - kept, backend, device, notes, memory, generations };
  } finally {
    engine.close();
  }
}

async function main() {
  const task = await (await fetch("task.json")).json();
  if (!Store.available) throw new Error("This browser keeps no files for the page.");
  const store = new Store();
  const model = await describeSource(task.model);
  const runs = [];
  for (const cold of task.runs) runs.push(await runOnce(task, store, model, cold));
  const { userAgent, hardwareConcurrency } = navigator;
  await post({ result: { browser: userAgent, processors: hardwareConcurrency, isolated: crossOriginIsolated, runs } });
}
main().catch(fault);
