// SHA-256 (FIPS 180-4) of bytes that come in pieces, whose state can be kept and taken up again: crypto.subtle hashes whole
// files only.

// The first 32 bits of the fractional parts of the roots of the first primes: square roots to start with, cube roots for rounds.
function fractions(count, root) {
  const words = [];
  for (let n = 2; words.length < count; ++n) {
    if (Array.from({ length: Math.floor(Math.sqrt(n)) - 1 }, (_, i) => i + 2).every((divisor) => n % divisor !== 0)) {
      words.push((root(n) % 1) * 2 ** 32 | 0);
    }
  }
  return Int32Array.from(words);
}
const START = fractions(8, Math.sqrt);
const ROUNDS = fractions(64, Math.cbrt);
const BLOCK = 64;

export class Sha256 {
  #state;
  #rest = new Uint8Array(BLOCK);
  #bytes;
  #words = new Int32Array(64);

  // Goes on from {state, bytes} as saved() has given it.
  constructor({ state = [...START], bytes = 0 } = {}) {
    this.#state = Int32Array.from(state);
    this.#bytes = bytes;
  }

  // Bytes that were added.
  get bytes() {
    return this.#bytes;
  }

  // What a new one needs to go on; only where whole blocks of 64 bytes were added.
  saved() {
    return { state: [...this.#state], bytes: this.#bytes };
  }

  add(bytes) {
    let at = 0;
    const filled = this.#bytes % BLOCK;
    this.#bytes += bytes.length;
    if (filled > 0) {
      at = Math.min(BLOCK - filled, bytes.length);
      this.#rest.set(bytes.subarray(0, at), filled);
      if (filled + at < BLOCK) return this;
      this.#blocks(this.#rest);
    }
    const whole = at + Math.floor((bytes.length - at) / BLOCK) * BLOCK;
    if (whole > at) this.#blocks(bytes.subarray(at, whole));
    this.#rest.set(bytes.subarray(whole));
    return this;
  }

  // The digest as hexadecimal digits; nothing may be added afterwards.
  digest() {
    const bits = BigInt(this.#bytes) * 8n;
    const end = new Uint8Array((this.#bytes % BLOCK < 56 ? BLOCK : 2 * BLOCK) - this.#bytes % BLOCK);
    end[0] = 0x80;
    new DataView(end.buffer).setBigUint64(end.length - 8, bits);
    this.add(end);
    return [...this.#state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  }

  #blocks(bytes) {
    const w = this.#words, k = ROUNDS, state = this.#state;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    for (let from = 0; from < bytes.length; from += BLOCK) {
      for (let t = 0; t < 16; ++t) w[t] = view.getInt32(from + 4 * t);
      for (let t = 16; t < 64; ++t) {
        const x = w[t - 15], y = w[t - 2];
        w[t] = (w[t - 16] + w[t - 7] + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3)
          + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10)) | 0;
      }
      let a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
      for (let t = 0; t < 64; ++t) {
        const first = (h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + k[t] + w[t]) | 0;
        const second = (((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c)) | 0;
        h = g, g = f, f = e, e = (d + first) | 0, d = c, c = b, b = a, a = (first + second) | 0;
      }
      state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
  }
}
