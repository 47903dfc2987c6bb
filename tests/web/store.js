// What the browser runs for store_test.py: the store against a server that this test owns. Each gives a value to compare.
import { Doppler, Store } from "/web/index.js";
import { download, Ranges } from "/web/download.js";
import { describeSource, hubName } from "/web/hub.js";
import { Sha256 } from "/web/sha256.js";

const codeOf = (promise) => promise.then(() => "no error", (error) => [nameOf(error), error.message]);
const nameOf = ({ code, name }) => (typeof code === "string" ? code : name); // a DOMException's code is a number

// Small pieces, so that small files have many; no waiting.
const SMALL = { connections: 3, pieceBytes: 65536, noteBytes: 16384, hashBytes: 4096, firstPauseMs: 1, tries: 4, stallMs: 500 };

// Keeps bytes and lines in memory, as the store does in files; dies at will, leaving what has reached the disk.
class Memory {
  bytes = new Uint8Array(0);
  text = "";
  flushed = new Uint8Array(0);
  size() {
    return this.bytes.length;
  }
  read(at, into) {
    const piece = this.bytes.subarray(at, at + into.length);
    into.set(piece);
    return piece.length;
  }
  write(at, bytes) {
    if (at + bytes.length > this.bytes.length) {
      const larger = new Uint8Array(at + bytes.length);
      larger.set(this.bytes);
      this.bytes = larger;
    }
    this.bytes.set(bytes, at);
  }
  truncate(size) {
    this.bytes = this.bytes.slice(0, size);
  }
  flush() {
    this.flushed = this.bytes.slice();
  }
  // What a killed page leaves: the bytes that were flushed, others lost, and a line that was cut.
  killed() {
    const next = new Memory();
    next.bytes = this.flushed;
    next.text = this.text.slice(0, this.text.lastIndexOf("\n") + 1);
    return next;
  }
  get journal() {
    return {
      read: () => this.text.split("\n").filter(Boolean).map((line) => JSON.parse(line)),
      add: (object) => { this.text += `${JSON.stringify(object)}\n`; },
      clear: () => { this.text = ""; },
    };
  }
}

const get = (url, memory, options = {}) => download({ url: new URL(url, location).href, ...options.file },
  { sink: memory, journal: memory.journal, ...SMALL, ...options });

const TESTS = {
  // One file of a server that behaves as its address says: [error or "ok", SHA-256 of what is there].
  async fetchOne(url, file = {}) {
    const memory = new Memory();
    const got = await codeOf(get(url, memory, { file }));
    return [got === "no error" ? "ok" : got, new Sha256().add(memory.bytes).digest()];
  },
  // The same, killed after so many bytes each time until it is there: how often, and the SHA-256.
  async killed(url, every, file = {}) {
    let memory = new Memory(), kills = 0;
    for (;;) {
      const stopping = new AbortController();
      let from;
      const progress = (bytes) => {
        from ??= bytes;
        if (bytes - from >= every) stopping.abort(new DOMException("killed", "AbortError"));
      };
      const end = await codeOf(get(url, memory, { file, progress, signal: stopping.signal }));
      if (end === "no error") return [kills, new Sha256().add(memory.bytes).digest()];
      if (end[0] !== "AbortError" || ++kills > 200) return [kills, end];
      memory = memory.killed();
    }
  },
  hash: (text, cuts) => {
    const bytes = new TextEncoder().encode(text);
    let hash = new Sha256(), at = 0;
    for (const cut of [...cuts, bytes.length]) {
      hash.add(bytes.subarray(at, cut));
      at = cut;
      if (at % 64 === 0) hash = new Sha256(JSON.parse(JSON.stringify(hash.saved())));
    }
    return hash.digest();
  },
  ranges(steps) {
    const ranges = new Ranges();
    for (const [from, to] of steps) ranges.add(from, to);
    return [ranges.list, ranges.prefix, ranges.bytes, ranges.gap(1000, 50) ?? null];
  },
  names: (texts) => texts.map((text) => {
    try {
      return hubName(text) ?? null;
    } catch (error) {
      return error.code;
    }
  }),
  async describe(source, hub) {
    try {
      const { name, source: from, files } = await describeSource(source, { hub });
      return [name, from, files.map(({ path, size, sha256, url }) => [path, size ?? null, sha256 ?? null, url])];
    } catch (error) {
      return [error.code, error.message];
    }
  },

  // --- the store itself
  async plan(source, options) {
    const store = new Store({ ...SMALL, ...options });
    try {
      return await store.plan(source);
    } finally {
      store.close();
    }
  },
  async add(source, options) {
    const store = new Store({ ...SMALL, ...options });
    const told = [];
    try {
      const entry = await store.add(source, { onProgress: (progress) => told.push(progress) });
      return { entry, told: told.length, last: told.at(-1) };
    } catch (error) {
      return [error.code, error.message];
    } finally {
      store.close();
    }
  },
  // Two stores as two tabs have them.
  async addTwice(source) {
    const stores = [new Store(SMALL), new Store(SMALL)];
    const entries = await Promise.all(stores.map((store) => store.add(source)));
    for (const store of stores) store.close();
    return entries.map(({ complete }) => complete);
  },
  // Ends the worker without a warning after so many bytes: what a closed tab does.
  async addAndDie(source, bytes) {
    const store = new Store(SMALL);
    return new Promise((done) => {
      store.add(source, { onProgress: (told) => {
        if (told.bytes >= bytes) {
          store.close();
          done(told.bytes);
        }
      } }).catch(() => {});
    });
  },
  // Begins, and leaves it running: for a browser that is killed.
  begin(source) {
    const store = new Store(SMALL);
    return new Promise((done) => {
      store.add(source, { onProgress: ({ bytes }) => bytes > 300000 && done(bytes) }).catch((error) => done(String(error)));
    });
  },
  async abort(source, bytes) {
    const store = new Store(SMALL), stopping = new AbortController();
    const end = await codeOf(store.add(source, { signal: stopping.signal, onProgress: (told) => told.bytes >= bytes && stopping.abort() }));
    store.close();
    return end[0];
  },
  async list() {
    const store = new Store();
    const entries = await store.list();
    store.close();
    return entries;
  },
  async remove(key) {
    const store = new Store();
    const end = await codeOf(store.remove(key));
    store.close();
    return end;
  },
  async clear() {
    const root = await navigator.storage.getDirectory();
    for await (const name of root.keys()) await root.removeEntry(name, { recursive: true });
  },
  // What a browser that lacks space may do, a whole origin at a time, and what it should not.
  async lose(key, name) {
    const folder = await (await (await navigator.storage.getDirectory()).getDirectoryHandle("doppler")).getDirectoryHandle(key);
    await folder.removeEntry(name);
  },
  async cut(key, name, size) {
    const folder = await (await (await navigator.storage.getDirectory()).getDirectoryHandle("doppler")).getDirectoryHandle(key);
    const file = await (await folder.getFileHandle(name)).createWritable({ keepExistingData: true });
    await file.truncate(size);
    await file.close();
  },
  // A model of the store, loaded: what it generates. `others`: engines at once, each reading the same files.
  async generate(source, options, others = 1) {
    const engines = [];
    try {
      for (let i = 0; i < others; ++i) engines.push(await Doppler.load(source, options));
      const ids = [3, 14, 15, 9, 26, 53, 58, 97];
      const made = await Promise.all(engines.map((engine) =>
        engine.generate(ids, { max_tokens: 12, temperature: 0, ignore_eos: true }).result()));
      const [kept] = await TESTS.list();
      return { ids: made.map((one) => one.ids), removing: kept && await TESTS.remove(kept.key) };
    } catch (error) {
      return [nameOf(error), error.message];
    } finally {
      for (const engine of engines) engine.close();
    }
  },
  async dropped(path, name) {
    const file = new File([await (await fetch(path)).arrayBuffer()], name, { lastModified: 1 });
    return TESTS.add(file);
  },
};

window.test = (name, ...given) => TESTS[name](...given);
window.ready = true;
