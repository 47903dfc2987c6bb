// What a page names as a model, as files: [path, content] for each, and the path of the model among them.
import { DopplerError } from "./errors.js";
import { describeSource, pathOf } from "./hub.js";

export async function fetchFile(url, options) {
  let response;
  try {
    response = await fetch(url, { signal: options.signal });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new DopplerError("io", `The file ${url} cannot be fetched: ${error.message}. Check the address, and that its server ` +
      "allows other pages to read it.", { cause: error });
  }
  if (response.ok) return response.blob();
  throw new DopplerError(response.status === 404 ? "not_found" : "io",
    `The file ${url} cannot be fetched: the server answers ${response.status}. Check the address.`);
}

// All files of an address, in the browser's memory or on its disk, as it likes; nothing is kept.
async function fetchModel(source, options) {
  const { files } = await describeSource(source, options);
  return Promise.all(files.map(async ({ path, url }) => [path, await fetchFile(url, options)]));
}

// {size, read(offset, into) -> bytes read}: whatever can be read without waiting. Workers cannot be sent one.
export const isReader = (value) => typeof value?.read === "function" && Number.isSafeInteger(value.size);
const isBytes = (value) => value instanceof ArrayBuffer || ArrayBuffer.isView(value);

// `source`: an address or a name as describeSource() takes them, a File, Blob or bytes of a .gguf file, a list of Files (a folder
// that was chosen or dropped), or contents by path in a Map or an object.
export async function filesOf(source, options) {
  if (typeof source === "string" || source instanceof URL) return fetchModel(source, options);
  if (source instanceof Blob) return [[pathOf(source), source]];
  if (isBytes(source)) return [["model.gguf", source]];
  const entries = source instanceof Map ? [...source]
    : typeof source?.[Symbol.iterator] === "function" ? [...source].map((file) => [pathOf(file), file])
    : Object.entries(source ?? {});
  const wrong = entries.find(([, content]) => !(content instanceof Blob) && !isBytes(content) && !isReader(content));
  if (entries.length === 0 || wrong) {
    throw new DopplerError("usage", `The source ${wrong ? `has at "${wrong[0]}" what is neither a Blob nor bytes nor a reader` : "has no files"}. ` +
      "Give an address, a file, a list of files, or contents by path.");
  }
  return entries;
}

// The .gguf file (of a divided one: the first), or the folder of the config.json or RDRR manifest that lies highest. A package may
// hold the description of a .gguf file, which is none itself.
export function modelPath(files) {
  const paths = files.map(([path]) => path).sort((a, b) => a.split("/").length - b.split("/").length || (a < b ? -1 : 1));
  const folders = new Set(paths.filter((path) => /(^|\/)manifest\.json$/.test(path)).map((path) => path.replace(/manifest\.json$/, "")));
  const model = paths.find((path) => /\.gguf$/i.test(path) && !folders.has(path.replace(/[^/]*$/, ""))) ?? paths.find((path) => /(^|\/)(config|manifest)\.json$/.test(path));
  if (!model) throw new DopplerError("not_found", "The source holds neither a .gguf file nor a config.json nor an RDRR manifest.json. Give a model's files.");
  return model.replace(/\/?(config|manifest)\.json$/, "") || ".";
}
