// Small files that the engine keeps for later loads, such as which kernels a GPU has been found to compute rightly: in the origin's
// cache storage, which workers and pages alike have. Where there is none, or it is full, they are found again.
const CACHE = "doppler-kept";
const FOLDER = "/kept/"; // src/system/web/imports.h
const MOST_BYTES = 4 << 20; // of all that is read: they are a few kilobytes each

// The file's address in the cache, which nothing is ever fetched from.
const addressOf = (path) => new URL(`https://kept.invalid${path}`).href;

// A Map of paths to bytes.
export async function readKept() {
  const files = new Map();
  let room = MOST_BYTES;
  try {
    const cache = await caches.open(CACHE);
    for (const { url } of await cache.keys()) {
      const path = new URL(url).pathname, bytes = new Uint8Array(await (await cache.match(url)).arrayBuffer());
      if (!path.startsWith(FOLDER) || bytes.length > room) continue;
      room -= bytes.length;
      files.set(path, bytes);
    }
  } catch {} // node has no such storage; a browser may refuse it
  return files;
}

export async function keepFile(path, bytes) {
  try {
    await (await caches.open(CACHE)).put(addressOf(path), new Response(bytes));
  } catch {}
}
