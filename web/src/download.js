// One file, downloaded over several connections into something that keeps it, taken up again wherever it was cut off.
import { DopplerError } from "./errors.js";
import { Sha256 } from "./sha256.js";

const MB = 2 ** 20;
export const DEFAULTS = {
  connections: 4,
  pieceBytes: 16 * MB, // of one request; a server that cuts costs at most a piece's rest
  noteBytes: 4 * MB, // so often the journal is written: what a kill costs, and what writing it costs
  hashBytes: MB, // that are read back at once to be hashed
  tries: 5, // without a single new byte in between
  firstPauseMs: 500, // doubled from try to try
  stallMs: 30000, // without a byte, after which a connection counts as cut
};

const LEAST_PIECE = 1024; // of a request, whatever a server does

const wait = (ms, signal) => new Promise((done, fail) => {
  const timer = setTimeout(done, ms);
  signal?.addEventListener("abort", () => {
    clearTimeout(timer);
    fail(signal.reason);
  }, { once: true });
});

// Bytes [from, to) that are there, in order and never touching.
export class Ranges {
  constructor(list = []) {
    this.list = list.map(([from, to]) => [from, to]);
  }
  get bytes() {
    return this.list.reduce((sum, [from, to]) => sum + to - from, 0);
  }
  // How far it reaches without a gap.
  get prefix() {
    return this.list.length > 0 && this.list[0][0] === 0 ? this.list[0][1] : 0;
  }
  add(from, to) {
    if (from >= to) return;
    const apart = this.list.filter(([a, b]) => b < from || a > to);
    const joined = this.list.filter(([a, b]) => b >= from && a <= to);
    const whole = joined.reduce(([a, b], [c, d]) => [Math.min(a, c), Math.max(b, d)], [from, to]);
    this.list = [...apart, whole].sort((a, b) => a[0] - b[0]);
  }
  // The first gap below `size`, of at most `most` bytes.
  gap(size, most) {
    let from = 0;
    for (const [a, b] of this.list) {
      if (a > from) return from < size ? [from, Math.min(a, from + most, size)] : undefined;
      from = b;
    }
    return from < size ? [from, Math.min(from + most, size)] : undefined;
  }
}

// The file on the server is another than the one that was begun.
class Changed extends Error {}
// Worth another try.
class Cut extends Error {}

function identityOf(response) {
  return { etag: response.headers.get("ETag"), modified: response.headers.get("Last-Modified") };
}
// What a server hides from other pages cannot differ.
const differs = (a, b) => Boolean(a && b && a !== b);

// "bytes 0-9/100" as {from, to, size}; without a size where it says *.
function contentRange(response) {
  const [, from, last, size] = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers.get("Content-Range") ?? "") ?? [];
  return from === undefined ? undefined : { from: Number(from), to: Number(last) + 1, size: size === "*" ? undefined : Number(size) };
}

const FATAL = { 401: "asks for a login", 403: "refuses access", 404: "does not have it", 410: "no longer has it" };

class Download {
  #file; #sink; #journal; #options;
  #done = new Ranges();
  #hash = new Sha256();
  #size; // once it is known
  #identity = {};
  #notedAt = 0;
  #farthest = 0; // what was told as progress

  constructor(file, sink, journal, options) {
    [this.#file, this.#sink, this.#journal, this.#options] = [file, sink, journal, options];
    this.#size = file.size;
    this.#most = options.pieceBytes;
  }

  async run() {
    this.#resume();
    for (let again = false; ; again = true) {
      try {
        if (this.#size === undefined || this.#done.prefix < this.#size) await this.#fetchAll();
        return this.#finish();
      } catch (error) {
        if (!(error instanceof Changed)) {
          this.#noteIfPossible();
          throw error;
        }
        if (again) {
          throw new DopplerError("io", `The file ${this.#file.url} changes while it is downloaded. Try again later.`, { cause: error });
        }
        this.#forget();
      }
    }
  }

  // --- what is kept

  // The journal's last whole line; what it says is on the disk.
  #resume() {
    const [begin, ...notes] = this.#journal.read();
    if (begin?.url !== this.#file.url || (this.#file.size !== undefined && differs(begin.size, this.#file.size))
      || differs(begin.sha256, this.#file.sha256)) {
      return this.#forget();
    }
    this.#identity = begin.identity ?? {};
    this.#size ??= begin.size;
    const note = notes.findLast(({ done }) => done);
    if (!note) return;
    const size = this.#sink.size(); // less, if the browser has removed the file
    this.#done = new Ranges(note.done.map(([from, to]) => [from, Math.min(to, size)]).filter(([from, to]) => from < to));
    if (note.hash.bytes <= this.#done.prefix) this.#hash = new Sha256(note.hash);
  }

  #forget() {
    this.#done = new Ranges();
    this.#hash = new Sha256();
    this.#size = this.#file.size;
    this.#identity = {};
    this.#journal.clear();
  }

  // The journal's first line, once the server has answered.
  #begin(identity) {
    this.#identity = identity;
    this.#journal.clear();
    this.#journal.add({ url: this.#file.url, size: this.#size, sha256: this.#file.sha256, identity });
    this.#note();
  }

  #note() {
    this.#advanceHash();
    this.#sink.flush();
    this.#journal.add({ done: this.#done.list, hash: this.#hash.saved() });
    this.#notedAt = this.#done.bytes;
  }

  // What cannot be noted, as on a full disk, is downloaded again.
  #noteIfPossible() {
    try {
      if (this.#done.bytes > 0) this.#note();
    } catch {}
  }

  // Hashes what has become contiguous, whole blocks of 64 bytes.
  #advanceHash(to = this.#done.prefix - this.#done.prefix % 64) {
    const piece = new Uint8Array(this.#options.hashBytes);
    while (this.#hash.bytes < to) {
      const bytes = piece.subarray(0, Math.min(piece.length, to - this.#hash.bytes));
      if (this.#sink.read(this.#hash.bytes, bytes) < bytes.length) throw new DopplerError("io", "What was downloaded cannot be read back.");
      this.#hash.add(bytes);
    }
  }

  #write(at, bytes) {
    this.#sink.write(at, bytes);
    this.#done.add(at, at + bytes.length);
    if (this.#done.bytes >= this.#notedAt + this.#options.noteBytes) this.#note();
    if (this.#done.bytes > this.#farthest) {
      this.#farthest = this.#done.bytes;
      this.#options.progress(this.#done.bytes, this.#size);
    }
  }

  #finish() {
    this.#advanceHash();
    this.#note();
    this.#advanceHash(this.#size);
    const sha256 = this.#hash.digest();
    if (this.#file.sha256 && sha256 !== this.#file.sha256) {
      this.#forget();
      this.#sink.truncate(0);
      throw new DopplerError("corrupt", `The file ${this.#file.url} has the SHA-256 ${sha256}, but ${this.#file.sha256} was promised. ` +
        "It was deleted; download it again.");
    }
    this.#sink.truncate(this.#size);
    this.#sink.flush();
    this.#journal.add({ complete: { size: this.#size, sha256 } });
    return { size: this.#size, sha256, ...this.#identity };
  }

  // --- what is asked for

  async #fetchAll() {
    const stopping = new AbortController();
    const { signal } = this.#options;
    const stop = () => stopping.abort(signal.reason);
    signal?.addEventListener("abort", stop, { once: true });
    try {
      signal?.throwIfAborted();
      await this.#first(stopping.signal);
      const loops = Array.from({ length: this.#options.connections }, async () => {
        for (let piece; (piece = this.#take());) {
          try {
            await this.#fetchPiece(piece, stopping.signal);
          } finally {
            this.#taken = this.#taken.filter((other) => other !== piece);
          }
        }
      });
      for (const loop of loops) loop.catch((error) => stopping.abort(error));
      const ends = await Promise.allSettled(loops);
      signal?.throwIfAborted();
      const failed = ends.filter(({ reason }) => reason !== undefined).map(({ reason }) => reason);
      // The one that stopped the others.
      if (failed.length > 0) throw failed.find((error) => error === stopping.signal.reason) ?? failed[0];
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }

  #most; // bytes of a request
  #taken = []; // pieces under way
  #take() {
    const known = new Ranges(this.#done.list);
    for (const { at, to } of this.#taken) known.add(at, to);
    const gap = known.gap(this.#size, this.#options.pieceBytes);
    if (!gap) return undefined;
    const piece = { at: gap[0], to: gap[1] };
    this.#taken.push(piece);
    return piece;
  }

  // The first piece says how large the file is, whether it is the one that was begun, and whether the server gives pieces.
  async #first(signal) {
    await this.#persist(signal, async (attempt) => {
      const [from, to] = this.#done.gap(this.#size ?? Infinity, this.#most);
      const response = await attempt.ask(from, to);
      if (response.status === 416) return this.#isEmpty(from, response);
      if (response.status === 200) return this.#whole(response, attempt);
      this.#check(response, from);
      if (this.#size === undefined) this.#size = await this.#sizeByHead(attempt);
      if (this.#done.bytes === 0) this.#begin(identityOf(response));
      await this.#body(response, { at: from }, Math.min(to, this.#size), attempt);
    });
  }

  async #fetchPiece(piece, signal) {
    while (piece.at < piece.to) {
      await this.#persist(signal, async (attempt) => {
        const to = Math.min(piece.to, piece.at + this.#most);
        const response = await attempt.ask(piece.at, to);
        if (response.status === 416) throw new Changed("The file has become shorter.");
        if (response.status !== 206) throw new Cut(`The server answers ${response.status} to a request for a piece.`);
        this.#check(response, piece.at);
        await this.#body(response, piece, to, attempt);
      });
    }
  }

  #isEmpty(from, response) {
    if (from > 0) throw new Changed("The file has become shorter.");
    if (this.#size) throw new Cut("The server says that the file is empty.");
    this.#size = 0;
    this.#begin(identityOf(response));
  }

  // Whether an answer belongs to the file that was begun, and is what was asked for.
  #check(response, from) {
    const identity = identityOf(response), range = contentRange(response);
    if (this.#done.bytes > 0 && (differs(identity.etag, this.#identity.etag) || differs(identity.modified, this.#identity.modified))) {
      throw new Changed("The file has another ETag.");
    }
    if (range && range.from !== from) throw new Cut(`The server gives bytes from ${range.from} instead of ${from}.`);
    if (range?.size === undefined) return;
    if (this.#file.size !== undefined && range.size !== this.#file.size) {
      throw new DopplerError("mismatch", `The file ${this.#file.url} has ${range.size} bytes on its server, but ${this.#file.size} were ` +
        "promised. Check the address.");
    }
    if (this.#size !== undefined && range.size !== this.#size) throw new Changed("The file has another size.");
    this.#size = range.size;
  }

  // For servers that hide Content-Range from other pages.
  async #sizeByHead(attempt) {
    const response = await attempt.ask(undefined, undefined, "HEAD");
    const length = Number(response.headers.get("Content-Length") ?? NaN);
    if (response.ok && Number.isSafeInteger(length)) return length;
    throw new DopplerError("unsupported", `The server of ${this.#file.url} does not say how large the file is. Download it by other means, ` +
      "and open it as a file.");
  }

  // Moves piece.at on, up to `to`.
  async #body(response, piece, to, attempt) {
    for await (const bytes of attempt.chunks(response)) {
      const wanted = bytes.subarray(0, to - piece.at);
      this.#write(piece.at, wanted);
      piece.at += wanted.length;
      if (wanted.length > 0) attempt.works();
      if (piece.at >= to) return attempt.end();
    }
    throw new Cut("The server ends the piece too early.");
  }

  // From a server that gives no pieces: what is there already is passed over.
  async #whole(response, attempt) {
    const identity = identityOf(response);
    const begun = this.#done.bytes > 0;
    if (begun && (differs(identity.etag, this.#identity.etag) || differs(identity.modified, this.#identity.modified))) {
      throw new Changed("The file has another ETag.");
    }
    if (!begun) this.#begin(identity);
    let at = 0;
    for await (const bytes of attempt.chunks(response)) {
      if (this.#size !== undefined && at + bytes.length > this.#size) throw this.#wrongSize("more");
      const there = Math.min(Math.max(this.#done.prefix - at, 0), bytes.length);
      if (there < bytes.length) {
        this.#write(at + there, bytes.subarray(there));
        attempt.works();
      }
      at += bytes.length;
    }
    if (this.#size !== undefined && at < this.#size) throw new Cut("The server ends the file too early.");
    this.#size = at;
  }

  #wrongSize(what) {
    return new DopplerError("mismatch", `The server of ${this.#file.url} gives ${what} than the ${this.#size} bytes that the file has. ` +
      "Try again later.");
  }

  // Calls `run` until it succeeds, or nothing new has come in several tries.
  async #persist(signal, run) {
    const { tries, firstPauseMs } = this.#options;
    for (let failures = 0; ;) {
      const attempt = new Attempt(this.#file, this.#options, signal);
      try {
        return await run(attempt);
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof Cut)) throw error;
        failures = attempt.worked ? 1 : failures + 1;
        // Browsers may lose what came just before a cut, so that a server which cuts early seems to give nothing.
        if (attempt.answered && !attempt.worked) this.#most = Math.max(Math.ceil(this.#most / 4), LEAST_PIECE);
        if (failures >= tries) {
          throw new DopplerError("io", `The file ${this.#file.url} cannot be downloaded: ${error.message} What came so far is kept; ` +
            "try again later.", { cause: error });
        }
        await wait(firstPauseMs * 2 ** (failures - 1), signal);
      } finally {
        attempt.end();
      }
    }
  }
}

// One connection, which counts as cut when it stalls.
class Attempt {
  #file; #options; #timer;
  #stopping = new AbortController();
  #stop;
  answered = false;
  worked = false; // new bytes have come

  constructor(file, options, signal) {
    [this.#file, this.#options] = [file, options];
    this.#stop = () => this.#stopping.abort(signal.reason);
    signal.addEventListener("abort", this.#stop, { once: true });
    if (signal.aborted) this.#stop();
  }

  works() {
    this.worked = true;
  }
  end() {
    clearTimeout(this.#timer);
    this.#stopping.abort();
  }

  async ask(from, to, method = "GET") {
    this.#watch();
    // The only form of a range that browsers send without asking the server first.
    const headers = from === undefined ? {} : { Range: `bytes=${from}-${to - 1}` };
    let response;
    try {
      response = await this.#options.fetch(this.#file.url, { method, headers, signal: this.#stopping.signal, cache: "no-store" });
    } catch (error) {
      throw new Cut(`The server cannot be reached: ${error.message}.`);
    }
    const { status } = response;
    if (status in FATAL) {
      throw new DopplerError(status === 404 || status === 410 ? "not_found" : "io",
        `The file ${this.#file.url} cannot be downloaded: the server ${FATAL[status]} (${status}). Check the address.`);
    }
    if (status !== 200 && status !== 206 && status !== 416) throw new Cut(`The server answers ${status}.`);
    return response;
  }

  async *chunks(response) {
    this.answered = true;
    const reader = response.body.getReader();
    for (;;) {
      this.#watch();
      let next;
      try {
        next = await reader.read();
      } catch (error) {
        throw new Cut(`The connection was cut: ${error.message}.`);
      }
      if (next.done) return;
      yield next.value;
    }
  }

  #watch() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#stopping.abort(new Error("nothing comes")), this.#options.stallMs);
  }
}

// `file`: {url, size?, sha256?}, what is known of it beforehand. `sink` keeps bytes: size(), read(at, into) -> bytes read,
// write(at, bytes), truncate(size), flush(). `journal` keeps lines: read() -> objects, add(object), clear(). Returns {size,
// sha256, etag, modified}. What it throws leaves the journal so that the next call goes on.
export function download(file, { sink, journal, progress = () => {}, signal, fetch = globalThis.fetch.bind(globalThis), ...options }) {
  return new Download(file, sink, journal, { ...DEFAULTS, ...options, progress, signal, fetch }).run();
}

// A fetch() for a File that was dropped, so that it is copied as anything else is downloaded.
export function fetchFrom(blob) {
  return async (_, { headers }) => {
    const [, from, last] = /(\d+)-(\d+)/.exec(headers.Range);
    if (Number(from) >= blob.size) return new Response(null, { status: 416 });
    const piece = blob.slice(Number(from), Number(last) + 1);
    const range = `bytes ${from}-${Number(from) + piece.size - 1}/${blob.size}`;
    return new Response(piece.stream(), { status: 206, headers: { "Content-Range": range } });
  };
}
