// What a page names as a model, as files: [path, content] for each, and the path of the model among them.
import { DopplerError } from "./errors.js";

// What a Hugging Face folder may hold that the engine reads; the weights' own names stand in the index, if there is one.
const FOLDER_FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
  "added_tokens.json", "tokenizer.model", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json"];
const INDEX = "model.safetensors.index.json";

async function fetchFile(url, options, mayLack = false) {
  let response;
  try {
    response = await fetch(url, { signal: options.signal });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new DopplerError("io", `The file ${url} cannot be fetched: ${error.message}. Check the address, and that its server ` +
      "allows other pages to read it.", { cause: error });
  }
  if (response.ok) return response.blob();
  if (response.status === 404 && mayLack) return undefined;
  throw new DopplerError(response.status === 404 ? "not_found" : "io",
    `The file ${url} cannot be fetched: the server answers ${response.status}. Check the address.`);
}

async function fetchFolder(url, options) {
  const base = new URL(url.href.endsWith("/") ? url : `${url.href}/`);
  const files = [];
  const add = async (name, mayLack) => {
    const content = await fetchFile(new URL(name, base), options, mayLack);
    if (content) files.push([`model/${name}`, content]);
    return content;
  };
  await add("config.json", false);
  await Promise.all(FOLDER_FILES.slice(1).map((name) => add(name, true)));
  const index = await add(INDEX, true);
  const names = index ? new Set(Object.values(JSON.parse(await index.text()).weight_map)) : ["model.safetensors"];
  for (const name of names) await add(name, false);
  return files;
}

async function fetchModel(url, options) {
  const name = decodeURIComponent(url.pathname.split("/").pop());
  return /\.gguf$/i.test(name) ? [[name, await fetchFile(url, options)]] : fetchFolder(url, options);
}

const isBytes = (value) => value instanceof ArrayBuffer || ArrayBuffer.isView(value);
const pathOf = (file) => file.webkitRelativePath || file.name || "model.gguf";

// `source`: an address of a .gguf file or of a folder, a File, Blob or bytes of a .gguf file, a list of Files (a folder that was
// chosen or dropped), or contents by path in a Map or an object.
export async function filesOf(source, options) {
  if (typeof source === "string" || source instanceof URL) return fetchModel(new URL(source, globalThis.location?.href), options);
  if (source instanceof Blob) return [[pathOf(source), source]];
  if (isBytes(source)) return [["model.gguf", source]];
  const entries = source instanceof Map ? [...source]
    : typeof source?.[Symbol.iterator] === "function" ? [...source].map((file) => [pathOf(file), file])
    : Object.entries(source ?? {});
  const wrong = entries.find(([, content]) => !(content instanceof Blob) && !isBytes(content));
  if (entries.length === 0 || wrong) {
    throw new DopplerError("usage", `The source ${wrong ? `has at "${wrong[0]}" what is neither a Blob nor bytes` : "has no files"}. ` +
      "Give an address, a file, a list of files, or contents by path.");
  }
  return entries;
}

// The .gguf file (of a divided one: the first), or the folder of the config.json that lies highest.
export function modelPath(files) {
  const paths = files.map(([path]) => path).sort((a, b) => a.split("/").length - b.split("/").length || (a < b ? -1 : 1));
  const model = paths.find((path) => /\.gguf$/i.test(path)) ?? paths.find((path) => /(^|\/)config\.json$/.test(path));
  if (!model) throw new DopplerError("not_found", "The source holds neither a .gguf file nor a config.json. Give a model's files.");
  return model.replace(/\/?config\.json$/, "") || ".";
}
