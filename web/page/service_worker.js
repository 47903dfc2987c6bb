// Keeps this page and its modules for use without a network, and gives every answer the headers that make the page cross-origin
// isolated, so that the engine has threads also where a server's headers cannot be changed. Models the store keeps.
const CACHE = "doppler-page-1";
const ISOLATED = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };
// All that the page consists of but its modules, of which it fetches those that suit the browser.
const SHELL = ["app.css", "app.webmanifest", "chat.js", "download.js", "errors.js", "generation.js", "gpu.js", "gpu_adapter.js", "gpu_device.js",
  "hosts.js", "hub.js", "icon.svg", "imports.js", "index.html", "index.js", "kept.js", "module.js", "opening.js", "page.js", "page_chat.js",
  "page_diagnose.js", "page_figures.js", "page_files.js", "page_inside.js", "page_parts.js", "page_tabs.js", "report/base.js", "report/errors.js",
  "report/grids.js", "report/page.css", "rpc.js", "sha256.js", "sources.js", "storage.js", "store.js", "store_worker.js", "thread.js", "threads.js",
  "worker.js"];

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(SHELL)));
});
addEventListener("activate", (event) => event.waitUntil((async () => {
  for (const name of await caches.keys()) {
    if (name.startsWith("doppler-page-") && name !== CACHE) await caches.delete(name);
  }
  await clients.claim();
})()));

function isolated(response) {
  if (response.type === "opaque" || response.type === "error" || response.redirected) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(ISOLATED)) headers.set(name, value);
  const { status, statusText } = response;
  return new Response(response.body, { status, statusText, headers });
}

// From the network while there is one, so that a new version arrives; else what was kept.
async function answer(request) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.status === 200) await cache.put(request, response.clone());
    return isolated(response);
  } catch (error) {
    const path = new URL(request.url).pathname;
    const kept = await cache.match(path.endsWith("/") ? `${path}index.html` : request, { ignoreSearch: true });
    if (kept) return isolated(kept);
    throw error;
  }
}

// What belongs to the page; anything else of its server, such as a model, is none of this worker's business.
addEventListener("fetch", (event) => {
  const { request } = event, scope = new URL("./", location.href).href;
  const name = request.url.startsWith(scope) ? request.url.slice(scope.length).split(/[?#]/)[0] : undefined;
  if (request.method === "GET" && (name === "" || SHELL.includes(name) || /^doppler_\w+\.wasm$/.test(name ?? ""))) event.respondWith(answer(request));
});
