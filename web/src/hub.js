// What a page names as a model to be downloaded, as a list of files: names and addresses of the Hugging Face Hub, addresses of
// .gguf files and of folders (Hugging Face's and RDRR packages), and files that were dropped.
import { DopplerError } from "./errors.js";
import { Sha256 } from "./sha256.js";

// What a Hugging Face folder may hold that the engine reads; the weights' own names stand in the index, if there is one.
const FOLDER_FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
  "added_tokens.json", "tokenizer.model", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json"];
const INDEX = "model.safetensors.index.json";
export const pathOf = (file) => file.webkitRelativePath || file.name || "model.gguf";

const HUB = "https://huggingface.co";
const HUB_HOSTS = /^(www\.)?(huggingface\.co|hf\.co)$/;
// Types of GGUF files as their names have them, in the order in which a page takes them: the fastest that are good enough first.
const TYPES = ["Q4_K_M", "Q4_0", "IQ4_NL", "Q4_K_S", "IQ4_XS", "Q5_K_M", "Q5_0", "Q6_K", "Q8_0", "Q3_K_M", "Q2_K", "BF16", "F16", "F32"];
const SPLIT = /-(\d{5})-of-(\d{5})\.gguf$/i;

const keyOf = (text) => new Sha256().add(new TextEncoder().encode(text)).digest().slice(0, 32);

async function ask(url, { fetch, signal }, method = "GET") {
  let response;
  try {
    response = await fetch(url, { method, signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw new DopplerError("io", `${url} cannot be reached: ${error.message}. Check the address, and that its server allows other ` +
      "pages to read it.", { cause: error });
  }
  if (response.ok || response.status === 404) return response;
  throw new DopplerError(response.status === 401 ? "not_found" : "io", `The server answers ${response.status} to ${url}. ` +
    (response.status === 401 ? "The model does not exist, or asks for a login, which pages do not have." : "Check the address."));
}

// {repo, revision, pick} of "hf:org/name@revision:pick" and of addresses of the Hub; nothing for anything else.
export function hubName(source) {
  const named = /^hf:([\w.-]+\/[\w.-]+?)(?:@([^:]+))?(?::(.+))?$/.exec(source);
  if (named) return { repo: named[1], revision: named[2] ?? "main", pick: named[3] };
  if (!URL.canParse(source)) return undefined;
  const { host, pathname } = new URL(source);
  if (!HUB_HOSTS.test(host)) return undefined;
  const [org, name, kind, revision, ...path] = pathname.split("/").filter(Boolean).map(decodeURIComponent);
  if (!name || (kind && !["resolve", "blob", "tree", "raw"].includes(kind))) {
    throw new DopplerError("usage", `The address ${source} names no model. Give ${HUB}/ORG/NAME or the address of a file there.`);
  }
  return { repo: `${org}/${name}`, revision: revision ?? "main", pick: path.join("/") || undefined };
}

function ggufOf(files, pick) {
  const models = files.filter(({ path }) => /\.gguf$/i.test(path) && !/mmproj|imatrix/i.test(path));
  const upper = (text) => text.toUpperCase();
  const exact = models.filter(({ path }) => path === pick);
  const wanted = pick === undefined ? models : exact.length > 0 ? exact
    : models.filter(({ path }) => upper(path).split(/[-._/ ]/).join("-").includes(upper(pick).split(/[-._/ ]/).join("-")));
  const rank = ({ path }) => (TYPES.findIndex((type) => upper(path).includes(type)) + TYPES.length + 1) % (TYPES.length + 1);
  const first = wanted.toSorted((a, b) => rank(a) - rank(b) || (a.path < b.path ? -1 : 1))[0];
  if (!first) return [];
  const stem = first.path.replace(SPLIT, "");
  return SPLIT.test(first.path) ? models.filter(({ path }) => SPLIT.test(path) && path.replace(SPLIT, "") === stem) : [first];
}

function safetensorsOf(files) {
  const has = (name) => files.some(({ path }) => path === name);
  const weights = ({ path }) => has("model.safetensors") ? path === "model.safetensors" : /^model-\d{5}-of-\d{5}\.safetensors$/.test(path);
  return has("config.json") && files.some(weights)
    ? files.filter((file) => weights(file) || FOLDER_FILES.includes(file.path) || file.path === INDEX) : [];
}

async function describeHub({ repo, revision, pick }, options) {
  const hub = options.hub ?? HUB;
  const answer = await ask(`${hub}/api/models/${repo}/revision/${encodeURIComponent(revision)}?blobs=true`, options);
  if (answer.status === 404) throw new DopplerError("not_found", `The Hub has no model ${repo} (${revision}). Check the name.`);
  const { siblings, sha } = await answer.json();
  const files = siblings.map(({ rfilename, size, lfs }) => ({
    path: rfilename, size: lfs?.size ?? size, sha256: lfs?.sha256,
    // The commit that the list is of, so that a branch which moves on meanwhile changes nothing.
    url: `${hub}/${repo}/resolve/${sha ?? encodeURIComponent(revision)}/${rfilename.split("/").map(encodeURIComponent).join("/")}`,
  }));
  const folder = pick === undefined ? safetensorsOf(files) : [];
  const chosen = folder.length > 0 ? folder : ggufOf(files, pick);
  if (chosen.length === 0) {
    throw new DopplerError("not_found", `The model ${repo} has ${pick ? `no .gguf file that ${pick} names` : "neither safetensors with a " +
      "config.json nor a .gguf file"}. It has ${files.slice(0, 20).map(({ path }) => path).join(", ") || "no files"}.`);
  }
  // A pick goes into the name, and so into the key: another type of the same model is another model here.
  const source = `hf:${repo}@${revision}${folder.length > 0 ? "" : `:${chosen[0].path}`}`;
  return { name: folder.length > 0 ? repo : `${repo}:${chosen[0].path}`, source, files: chosen };
}

async function headOf(url, path, options) {
  const response = await ask(url, options, "HEAD").catch((error) => {
    if (options.signal?.aborted) throw error;
    return undefined; // a server that knows no HEAD: the download itself finds out
  });
  if (response?.status === 404) return undefined;
  const length = Number(response?.headers.get("Content-Length") ?? NaN);
  // The length of a compressed answer is not the file's.
  const known = Number.isSafeInteger(length) && length > 0 && !response.headers.get("Content-Encoding");
  return { path, url: String(url), size: known ? length : undefined };
}

async function describeGguf(url, name, options) {
  const [, , count] = SPLIT.exec(name) ?? [];
  const names = count ? Array.from({ length: Number(count) }, (_, i) => name.replace(SPLIT, `-${String(i + 1).padStart(5, "0")}-of-${count}.gguf`))
    : [name];
  const files = await Promise.all(names.map((part) => headOf(new URL(encodeURIComponent(part) + url.search, url), part, options)));
  const missing = files.indexOf(undefined);
  if (missing >= 0) throw new DopplerError("not_found", `The file ${names[missing]} is not where ${url} is. Check the address.`);
  return files;
}

async function jsonAt(url, options) {
  const response = await ask(url, options);
  if (response.status === 404) return undefined;
  try {
    return await response.json();
  } catch (error) {
    throw new DopplerError("corrupt", `${url} is no JSON. Check the address.`, { cause: error });
  }
}

const INNER = /^(?!.*(^|\/)\.{1,2}(\/|$))[^\\:/][^\\:]*$/; // stays inside its folder

// An RDRR package: what its manifest names, with the hashes that it gives.
function packageFiles(manifest, base) {
  const hashed = manifest.hashAlgorithm === "sha256" ? ({ hash }) => hash : () => undefined;
  const named = [...manifest.shards ?? [], ...manifest.files ?? []].map((file) => ({ path: file.filename, size: file.size, sha256: hashed(file) }));
  const more = [manifest.tensorsFile, manifest.tokenizer?.file].filter((name) => name && !named.some(({ path }) => path === name));
  return [{ path: "manifest.json" }, ...named, ...more.map((path) => ({ path }))]
    .map((file) => ({ ...file, url: String(new URL(file.path, base)) }));
}

async function describeFolder(url, options) {
  const base = new URL(url.href.endsWith("/") ? url : `${url.href}/`);
  const config = await headOf(new URL("config.json", base), "config.json", options);
  if (!config) {
    const manifest = await jsonAt(new URL("manifest.json", base), options);
    if (manifest?.shards) return packageFiles(manifest, base);
    throw new DopplerError("not_found", `The folder ${base} has neither a config.json nor an RDRR manifest.json. Give the address of a ` +
      ".gguf file or of a model's folder.");
  }
  const head = (name) => headOf(new URL(name, base), name, options);
  const index = await jsonAt(new URL(INDEX, base), options);
  const weights = index ? [INDEX, ...new Set(Object.values(index.weight_map))] : ["model.safetensors"];
  const found = await Promise.all([...FOLDER_FILES.slice(1), ...weights].map(head));
  const missing = weights.find((name) => !found.some((file) => file?.path === name));
  if (missing) throw new DopplerError("not_found", `The folder ${base} has no ${missing}. Check the address.`);
  return [config, ...found.filter(Boolean)];
}

// {key, name, source, files: [{path, url, size?, sha256?, content?}]}. `source`: an address, "hf:org/name", a File or Files.
export async function describeSource(source, { fetch = globalThis.fetch.bind(globalThis), ...rest } = {}) {
  const options = { fetch, ...rest };
  const described = await describe(source, options);
  const outside = described.files.find(({ path }) => typeof path !== "string" || !INNER.test(path));
  if (outside) throw new DopplerError("corrupt", `The source names a file ${JSON.stringify(outside.path)}, which is no place in a folder.`);
  return { ...described, key: keyOf(described.source) };
}

async function describe(source, options) {
  if (typeof source !== "string" && !(source instanceof URL)) {
    const contents = source instanceof Blob ? [source] : [...source];
    const files = contents.map((content) => ({ path: pathOf(content), size: content.size, content,
      url: `file ${pathOf(content)}, ${content.size} bytes, of ${content.lastModified}` }));
    return { name: files[0].path.split("/")[0], source: files.map(({ url }) => url).join("; "), files };
  }
  const text = String(source);
  const named = hubName(text);
  if (named) return describeHub(named, options);
  if (!URL.canParse(text, globalThis.location?.href)) {
    throw new DopplerError("usage", `The source ${text} is no address. Give one, or a name of the Hub as hf:org/name.`);
  }
  const url = new URL(text, globalThis.location?.href);
  const name = decodeURIComponent(url.pathname.split("/").filter(Boolean).pop() ?? "");
  const files = /\.gguf$/i.test(name) ? await describeGguf(url, name, options) : await describeFolder(url, options);
  return { name: name || url.host, source: url.href, files };
}
