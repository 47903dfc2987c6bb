// What is kept in the origin's private file system, for workers: a folder for each model with its files, numbered, a journal
// beside each, and model.json, which says what they are.
import { download, fetchFrom } from "./download.js";
import { DopplerError } from "./errors.js";

const ROOT = "doppler";
const MANIFEST = "model.json";
const encoder = new TextEncoder();
const decoder = new TextDecoder();
const journalOf = (index) => `${index}.journal`;
const downloading = (key) => `doppler download ${key}`;
const reading = (key) => `doppler read ${key}`;

const showMb = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

function fullError(missing, free) {
  return new DopplerError("limit", `The model takes ${showMb(missing)} more on this device, but the browser gives this site ` +
    `${free > 0 ? `${showMb(free)} more` : "no more space"}. Remove other models, free some space, or take a smaller model.`);
}

async function rootFolder() {
  return (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT, { create: true });
}
async function folderOf(key, create = false) {
  try {
    return await (await rootFolder()).getDirectoryHandle(key, { create });
  } catch (error) {
    if (error.name !== "NotFoundError") throw error;
    throw new DopplerError("not_found", "The model is not kept here, or the browser has removed it. Download it again.", { cause: error });
  }
}

// What a file holds as text; nothing if there is none.
async function textOf(folder, name) {
  try {
    return await (await (await folder.getFileHandle(name)).getFile()).text();
  } catch {
    return undefined;
  }
}
async function sizeOf(folder, name) {
  try {
    return (await (await folder.getFileHandle(name)).getFile()).size;
  } catch {
    return 0;
  }
}

async function openHandle(folder, name) {
  return (await folder.getFileHandle(name, { create: true })).createSyncAccessHandle();
}

function writeAll(handle, at, bytes) {
  let written = 0;
  try {
    written = handle.write(bytes, { at });
  } catch (error) {
    if (error.name !== "QuotaExceededError") throw error;
  }
  if (written < bytes.length) throw fullError(bytes.length - written, 0);
}

class Sink {
  #handle;
  constructor(handle) {
    this.#handle = handle;
  }
  size() {
    return this.#handle.getSize();
  }
  read(at, into) {
    return this.#handle.read(into, { at });
  }
  write(at, bytes) {
    writeAll(this.#handle, at, bytes);
  }
  truncate(size) {
    this.#handle.truncate(size);
  }
  flush() {
    this.#handle.flush();
  }
}

// Objects, a line each. What a kill has left of a line does not count, and is written over.
export function linesOf(text) {
  const lines = [];
  let length = 0;
  for (const line of text.split("\n").slice(0, -1)) {
    try {
      lines.push(JSON.parse(line));
    } catch {
      break;
    }
    length += encoder.encode(line).length + 1;
  }
  return { lines, length };
}

class Journal {
  #handle;
  #end = 0;
  constructor(handle) {
    this.#handle = handle;
  }
  read() {
    const bytes = new Uint8Array(this.#handle.getSize());
    this.#handle.read(bytes, { at: 0 });
    const { lines, length } = linesOf(decoder.decode(bytes));
    this.#end = length;
    return lines;
  }
  add(object) {
    const bytes = encoder.encode(`${JSON.stringify(object)}\n`);
    this.#handle.truncate(this.#end);
    writeAll(this.#handle, this.#end, bytes);
    this.#end += bytes.length;
    this.#handle.flush();
  }
  clear() {
    this.#handle.truncate(0);
    this.#end = 0;
  }
}

// What the journal of a file says: {size, sha256} of one that is there as a whole, else nothing.
async function completeFile(folder, index) {
  const { lines } = linesOf(await textOf(folder, journalOf(index)) ?? "");
  const complete = lines.at(-1)?.complete;
  return complete && await sizeOf(folder, String(index)) === complete.size ? complete : undefined;
}
async function bytesThere(folder, index) {
  const { lines } = linesOf(await textOf(folder, journalOf(index)) ?? "");
  const { complete, done } = lines.at(-1) ?? {};
  const bytes = complete ? complete.size : (done ?? []).reduce((sum, [from, to]) => sum + to - from, 0);
  return Math.min(bytes, await sizeOf(folder, String(index)));
}

async function readManifest(folder) {
  try {
    return JSON.parse(await textOf(folder, MANIFEST) ?? "");
  } catch {
    return undefined; // none, or a kill has cut it: the files' own journals say what is there
  }
}
async function writeManifest(folder, manifest) {
  const handle = await openHandle(folder, MANIFEST);
  try {
    const bytes = encoder.encode(JSON.stringify(manifest));
    handle.truncate(0);
    writeAll(handle, 0, bytes);
    handle.flush();
  } finally {
    handle.close();
  }
}

// What is known of a model: its files with what is there of each, and whether all of it is.
async function entryOf(key, folder) {
  const manifest = await readManifest(folder);
  if (!manifest) return undefined;
  const files = await Promise.all(manifest.files.map(async ({ path, size, url }, index) => {
    const whole = await completeFile(folder, index);
    return { path, url, size: whole?.size ?? size, have: whole ? whole.size : await bytesThere(folder, index), sha256: whole?.sha256 };
  }));
  const { name, source, asked, added } = manifest;
  return { key, name, source, asked, added, files, bytes: files.reduce((sum, { have }) => sum + have, 0),
    complete: files.every(({ sha256 }) => sha256 !== undefined) };
}

export async function listModels() {
  const entries = [];
  for await (const [key, folder] of (await rootFolder()).entries()) {
    const entry = folder.kind === "directory" ? await entryOf(key, folder) : undefined;
    if (entry) entries.push(entry);
  }
  return entries.sort((a, b) => a.added < b.added ? -1 : 1);
}

// What is there of a model that is described as describeSource() does; nothing of one that is not.
export async function findModel(key) {
  try {
    return await entryOf(key, await folderOf(key));
  } catch (error) {
    if (error.code === "not_found") return undefined;
    throw error;
  }
}

// Deletes a model that no tab reads or downloads.
export async function removeModel(key) {
  await folderOf(key);
  const both = (run) => navigator.locks.request(downloading(key), { ifAvailable: true }, (lock) => lock &&
    navigator.locks.request(reading(key), { ifAvailable: true }, (other) => other && run()));
  const removed = await both(async () => {
    await (await rootFolder()).removeEntry(key, { recursive: true });
    return true;
  });
  if (!removed) throw new DopplerError("io", "The model is in use, in this tab or in another. Close its engine first.");
}

async function checkQuota(missing) {
  const { quota, usage } = await navigator.storage.estimate();
  if (missing > quota - usage) throw fullError(missing, quota - usage);
}

async function downloadFile(folder, index, file, options) {
  const handles = [];
  try {
    for (const name of [String(index), journalOf(index)]) handles.push(await openHandle(folder, name));
    const fetching = file.content ? { fetch: fetchFrom(file.content), connections: 1 } : {};
    return await download(file, { sink: new Sink(handles[0]), journal: new Journal(handles[1]), ...options, ...fetching });
  } finally {
    for (const handle of handles) handle.close();
  }
}

// Downloads what is missing of a model: {key, name, source, asked, files: [{path, url, size?, sha256?, content?}]}. One tab downloads,
// the others wait and find it there. `progress({file, bytes, total, waiting})`.
export async function keepModel(model, { progress, signal, ...options }) {
  const before = await findModel(model.key);
  if (before?.complete) return before;
  const channel = new BroadcastChannel(downloading(model.key));
  channel.onmessage = ({ data }) => progress({ ...data, waiting: true });
  try {
    return await navigator.locks.request(downloading(model.key), { signal }, async () => {
      channel.onmessage = null;
      const meanwhile = await findModel(model.key);
      if (meanwhile?.complete) return meanwhile;
      const folder = await folderOf(model.key, true);
      const { key, name, source, asked } = model;
      const files = model.files.map(({ path, url, size, sha256 }) => ({ path, url, size, sha256 }));
      await writeManifest(folder, { version: 1, key, name, source, asked, files, added: meanwhile?.added ?? new Date().toISOString() });
      await downloadAll(folder, model.files, options, signal, (told) => {
        progress(told);
        channel.postMessage(told);
      });
      return entryOf(key, folder);
    });
  } finally {
    channel.close();
  }
}

async function downloadAll(folder, files, options, signal, progress) {
  const there = await Promise.all(files.map((_, index) => bytesThere(folder, index)));
  const sizes = files.map(({ size }, index) => size ?? there[index]);
  const sum = (list) => list.reduce((all, one) => all + one, 0);
  await checkQuota(sum(sizes) - sum(there));
  for (const [index, file] of files.entries()) {
    const tell = (bytes, size) => {
      [there[index], sizes[index]] = [bytes, size ?? Math.max(sizes[index], bytes)];
      progress({ file: file.path, bytes: sum(there), total: sum(sizes) });
    };
    const whole = await completeFile(folder, index);
    if (!whole) sizes[index] = there[index] = (await downloadFile(folder, index, file, { ...options, signal, progress: tell })).size;
    tell(sizes[index], sizes[index]);
  }
}

// --- for readers

const SHARED_HANDLES = "mode" in (globalThis.FileSystemSyncAccessHandle?.prototype ?? {});

// Keeps others from removing the model as long as this worker lives.
export function holdModel(key) {
  return new Promise((held) => {
    navigator.locks.request(reading(key), { mode: "shared" }, () => {
      held();
      return new Promise(() => {});
    });
  });
}

// File `index` of a model: a handle that others may have, too, where the browser gives such, else a File.
export async function openKept(key, index) {
  const file = await (await folderOf(key)).getFileHandle(String(index));
  return SHARED_HANDLES ? file.createSyncAccessHandle({ mode: "read-only" }) : file.getFile();
}
