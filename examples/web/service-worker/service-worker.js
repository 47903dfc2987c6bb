// Keeps the page and the engine for use without a network, and gives every answer the headers that make the page cross-origin
// isolated, so that the engine gets its threads from servers, too, whose headers nobody can change. Models are not its business:
// the engine's store keeps them.
const CACHE = "doppler-web-1"; // another name for each version of the files
const ISOLATED = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil((async () => {
  for (const name of await caches.keys()) {
    if (name.startsWith("doppler-web-") && name !== CACHE) await caches.delete(name);
  }
  await clients.claim();
})()));

function isolated(response) {
  if (response.type === "opaque" || response.type === "error") return response;
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
    if (response.ok && response.status === 200) await cache.put(request, response.clone());
    return isolated(response);
  } catch (error) {
    const kept = await cache.match(request, { ignoreSearch: true });
    if (kept) return isolated(kept);
    throw error;
  }
}

addEventListener("fetch", (event) => {
  const { request } = event, url = new URL(request.url);
  const own = url.origin === location.origin && request.method === "GET" && !request.headers.has("Range");
  if (own && !url.pathname.endsWith(".gguf") && !url.pathname.endsWith(".safetensors")) event.respondWith(answer(request));
});
