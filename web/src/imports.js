// What the module imports: the files that it was handed, progress, and of WASI clocks and the two output streams. The C++ side is
// src/system/web/imports.h and web/imports.h.
import { DopplerError } from "./errors.js";
import { keepFile } from "./kept.js";
import { holdModel, openKept } from "./storage.js";

const decoder = new TextDecoder();
const encoder = new TextEncoder();
const WASI_OK = 0, WASI_BADF = 8;

// So much of a file on a server may be read to describe a model; whoever wants more wants to download it.
const MOST_REMOTE = 128 * 2 ** 20;

// A file on a server, read by ranges. Its start, which parsers read again and again, is fetched once. Workers may wait so.
function remoteReader({ url, size }) {
  let start = new Uint8Array(0), fetched = 0;
  const fetchRange = (from, to) => {
    if ((fetched += to - from) > MOST_REMOTE) throw new Error(`More than ${MOST_REMOTE} bytes of ${url} are wanted.`);
    const request = new XMLHttpRequest();
    request.open("GET", url, false);
    request.responseType = "arraybuffer";
    request.setRequestHeader("Range", `bytes=${from}-${to - 1}`);
    request.send();
    if (request.status !== 206 || request.response.byteLength !== to - from) {
      throw new Error(`The server of ${url} gives no ranges (${request.status}).`);
    }
    return new Uint8Array(request.response);
  };
  return {
    size,
    read(offset, into) {
      const to = Math.min(offset + into.length, size);
      if (offset <= start.length && to > start.length) {
        const longer = new Uint8Array(to);
        longer.set(start);
        longer.set(fetchRange(start.length, to), start.length);
        start = longer;
      }
      into.set(to <= start.length ? start.subarray(offset, to) : fetchRange(offset, to));
      return to - offset;
    },
  };
}

export const readerOfBytes = (bytes) => ({
  size: bytes.length,
  read(offset, into) {
    const piece = bytes.subarray(offset, offset + into.length);
    into.set(piece);
    return piece.length;
  },
});

// A file's content as something that is read in pieces, without waiting: {size, read(offset, into) -> bytes read}. A content is
// bytes, a Blob, such a reader itself, {kept: key, index}, a file of the store, or {url, size}, what a server has.
export async function readerOf(content) {
  if (content.kept) {
    await holdModel(content.kept);
    return readerOf(await openKept(content.kept, content.index));
  }
  if (typeof content.getSize === "function") {
    return { size: content.getSize(), read: (offset, into) => content.read(into, { at: offset }) };
  }
  if (typeof content.read === "function") return content;
  if (content.url) return remoteReader(content);
  if (content instanceof Blob) {
    const reader = new FileReaderSync(); // workers have one
    return {
      size: content.size,
      read(offset, into) {
        const piece = new Uint8Array(reader.readAsArrayBuffer(content.slice(offset, offset + into.length)));
        into.set(piece);
        return piece.length;
      },
    };
  }
  return readerOfBytes(content instanceof ArrayBuffer ? new Uint8Array(content)
    : new Uint8Array(content.buffer, content.byteOffset, content.byteLength));
}

// A text in the instance's memory, copied first: decoders take none that threads share.
export const textIn = (memory, at, length) => decoder.decode(new Uint8Array(memory.buffer, at >>> 0, length >>> 0).slice());
// As much of a text as there is room for in the memory. Returns the size of all.
export function putText(memory, text, at, capacity) {
  const all = encoder.encode(text);
  new Uint8Array(memory.buffer, at >>> 0, capacity >>> 0).set(all.subarray(0, capacity >>> 0));
  return all.length;
}

// The part of WASI that each thread has of its own: clocks, and the two output streams by line.
export function wasiImports(memory, print) {
  const view = () => new DataView(memory().buffer);
  let line = "";
  return {
    clock_time_get(clock, _precision, time) {
      const ms = clock === 0 ? Date.now() : performance.now(); // 0: the time of day
      view().setBigUint64(time >>> 0, BigInt(Math.round(ms * 1e6)), true);
      return WASI_OK;
    },
    fd_write(stream, pieces, count, written) {
      let size = 0;
      for (let i = 0; i < count; ++i) {
        const at = view().getUint32((pieces >>> 0) + 8 * i, true), length = view().getUint32((pieces >>> 0) + 8 * i + 4, true);
        line += textIn(memory(), at, length);
        size += length;
      }
      const lines = line.split("\n");
      line = lines.pop();
      for (const whole of lines) print(whole);
      view().setUint32(written >>> 0, size, true);
      return WASI_OK;
    },
    environ_get: () => WASI_OK,
    environ_sizes_get(count, size) {
      view().setUint32(count >>> 0, 0, true);
      view().setUint32(size >>> 0, 0, true);
      return WASI_OK;
    },
    fd_close: () => WASI_BADF,
    fd_seek: () => WASI_BADF,
    fd_fdstat_get: () => WASI_BADF,
    proc_exit(status) {
      throw new DopplerError("internal", `The module has ended with status ${status}.`);
    },
  };
}

export const utcOffset = () => -60 * new Date().getTimezoneOffset();

export function outOfMemory() {
  throw new DopplerError("limit", "The model and its cache need more memory than the module can have. " +
    "Take a smaller model or a shorter context.");
}

// The files by path, and those that are open. Folders are what paths begin with; what is kept lies in none.
class Files {
  #readers;
  #kept;
  #open = new Map();
  #number = 0;
  constructor(readers, kept) {
    this.#readers = readers;
    this.#kept = kept;
  }
  kind(path) {
    if (this.#readers.has(path) || this.#kept.has(path)) return 1;
    return path === "." || this.names(path).length > 0 ? 2 : 0;
  }
  names(folder) {
    const prefix = folder === "." ? "" : `${folder}/`;
    const names = new Set();
    for (const path of this.#readers.keys()) {
      if (path.startsWith(prefix)) names.add(path.slice(prefix.length).split("/")[0]);
    }
    return [...names];
  }
  open(path) {
    const reader = this.#readers.get(path) ?? this.#kept.get(path);
    if (!reader) return -1;
    this.#open.set(++this.#number, { reader, at: 0 });
    return this.#number;
  }
  size(number) {
    return this.#open.get(number).reader.size;
  }
  read(number, into) {
    const file = this.#open.get(number);
    const got = file.reader.read(file.at, into);
    file.at += got;
    return got;
  }
  readAt(number, offset, into) {
    return this.#open.get(number).reader.read(offset, into);
  }
  close(number) {
    this.#open.delete(number);
  }
  keep(path, bytes) {
    this.#kept.set(path, readerOfBytes(bytes));
    keepFile(path, bytes);
  }
}

// `readers`: a Map of paths to readers; `kept`: of what was kept, to readers. `progress(share, what)`. `print(line)` gets what would go to stderr. `memory()`: the
// instance's memory, once there is one. `why`: why it has as many threads as it has, after "because".
export function importsFor({ readers, kept, progress, print, memory, why }) {
  const files = new Files(readers, kept);
  const bytes = (at, length) => {
    if ((at >>> 0) + (length >>> 0) > memory().buffer.byteLength) memory().grow(0); // another thread has, and this one shall know
    return new Uint8Array(memory().buffer, at >>> 0, length >>> 0);
  };
  const text = (at, length) => textIn(memory(), at, length);
  const reading = (read) => {
    try {
      return read();
    } catch (error) {
      print(`A file cannot be read: ${error.message}`);
      return -1;
    }
  };
  return {
    doppler: {
      path_kind: (path, length) => files.kind(text(path, length)),
      list_folder: (path, length, names, capacity) =>
        putText(memory(), files.names(text(path, length)).map((name) => `${name}\0`).join(""), names, capacity),
      open_file: (path, length) => files.open(text(path, length)),
      file_size: (file) => files.size(file),
      read_file: (file, into, length) => reading(() => files.read(file, bytes(into, length))),
      read_file_at: (file, offset, into, length) => reading(() => files.readAt(file, offset, bytes(into, length))),
      close_file: (file) => files.close(file),
      keep_file: (path, length, at, size) => files.keep(text(path, length), bytes(at, size).slice()),
      utc_offset: utcOffset,
      progress: (share, what, length) => progress(share, text(what, length)),
      out_of_memory: outOfMemory,
      thread_reason: (at, capacity) => putText(memory(), why(), at, capacity),
      thread_stopped(at, length) {
        const { code, message } = JSON.parse(text(at, length));
        throw new DopplerError(code, message);
      },
    },
    wasi_snapshot_preview1: wasiImports(memory, print),
  };
}
