// The page: opens a model, and hands it to the parts that talk to it, look into it, examine and compare it.
import { Doppler, Store } from "./index.js";
import { bestModule } from "./module.js";
import { chatWith } from "./page_chat.js";
import { compareWith, examineRefused, examineWith } from "./page_diagnose.js";
import { listenForDrops, showKept } from "./page_files.js";
import { figuresOf } from "./page_figures.js";
import { lookInto } from "./page_inside.js";
import { megabytes } from "./page_parts.js";
import { showTabs } from "./page_tabs.js";

let engine, loading, refused; // refused: the source of a model that could not be opened
const store = Store.available ? new Store() : undefined;

export function say(text, failed = false) {
  $("#status").textContent = text;
  $("#status").classList.toggle("failed", failed);
}

function downloading({ file, bytes, total, bytes_per_second, seconds_left, waiting }) {
  const left = seconds_left > 90 ? `${Math.round(seconds_left / 60)} minutes` : `${Math.ceil(seconds_left)} s`;
  const speed = bytes_per_second > 0 ? `, ${(bytes_per_second / 1e6).toFixed(1)} MB a second, ${left} left` : "";
  return `${waiting ? "Another tab downloads" : "Downloading"} ${file}: ${megabytes(bytes)} of ${megabytes(total)}${speed}…`;
}

const keptModels = () => store && showKept($("#kept"), store, { onOpen: open, onError: (error) => say(error.message, true) });

function ready() {
  const { family, layers, backend, device, notes } = engine.info;
  const where = backend === "gpu" ? `the GPU (${device})` : "the processor";
  say([`${family}, ${layers} layers, is ready on ${where}.`, ...notes].join(" "));
}

async function open(source) {
  loading?.abort();
  const mine = loading = new AbortController();
  engine?.close();
  engine = refused = undefined;
  showTabs(false);
  $("#refused").hidden = true;
  $("#loading").hidden = false;
  $("#progress").value = 0;
  say("Reading the model…");
  const options = { backend: $("#backend").value, signal: mine.signal };
  const onProgress = (share, what, told) => {
    if (mine.signal.aborted) return;
    $("#progress").value = share;
    say(told ? downloading(told) : `${what}…`);
  };
  try {
    const opened = await Doppler.load(source, { ...options, store, onProgress });
    if (mine.signal.aborted) return opened.close();
    engine = opened;
    chatWith(engine, say);
    lookInto(engine);
    examineWith((asked) => engine.doctor(asked));
    compareWith(engine);
    figuresOf(engine);
    showTabs(true);
    $("#choose").open = false; // room for what it is about now
    ready();
  } catch (error) {
    if (mine !== loading) return;
    say(mine.signal.aborted ? "Stopped. What was downloaded is kept." : error.message, !mine.signal.aborted);
    const ofTheFiles = ["corrupt", "mismatch", "unsupported"].includes(error.code);
    if (ofTheFiles) refused = { source, options: { backend: options.backend, store } };
    $("#refused").hidden = !ofTheFiles;
  } finally {
    if (mine === loading) $("#loading").hidden = true;
    keptModels();
  }
}

$("#examine-refused").addEventListener("click", () => {
  const { source, options } = refused;
  showTabs(false);
  $("#doctor").hidden = false;
  examineWith((asked) => Doppler.doctor(source, { ...options, ...asked }));
  examineRefused();
});
$("#cancel").addEventListener("click", () => loading?.abort());
for (const input of [$("#files"), $("#folder")]) {
  input.addEventListener("change", () => {
    const chosen = [...input.files];
    input.value = ""; // so that the same may be chosen again
    if (chosen.length > 0) open(chosen);
  });
}
listenForDrops($("#drop"), open);
for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault()); // else a browser leaves the page
$("#open").addEventListener("submit", (event) => {
  event.preventDefault();
  const address = $("#address").value.trim();
  if (address) open(address);
  else say("Give an address or a name, or choose a file or a folder.", true);
});
keptModels();

// Offline, and with threads. Where it takes one loading more until the page is isolated, that happens before anything is open.
async function install() {
  if (!navigator.serviceWorker) return;
  const controlled = navigator.serviceWorker.controller || new Promise((done) => navigator.serviceWorker.addEventListener("controllerchange", done, { once: true }));
  await navigator.serviceWorker.register("service_worker.js");
  await controlled;
  if (!crossOriginIsolated && !engine && !loading && !sessionStorage.reloaded) {
    sessionStorage.reloaded = "once";
    location.reload();
  } else {
    await fetch(bestModule(crossOriginIsolated)); // to have it, too
  }
}
install().catch((error) => console.info(`Without a service worker: ${error.message}`));
