// What an engine computes for a prompt, piece by piece: the text that follows it, or the values inside.
const PIECE_MS = 20; // so often a generation looks whether it is still wanted; an eye sees no steps

// A prompt as the module takes it.
export function promptOf(prompt) {
  if (typeof prompt === "string") return { text: prompt };
  if (Array.isArray(prompt) && prompt.every((id) => typeof id === "number")) return { ids: prompt };
  return { conversation: JSON.stringify(prompt) ?? "" };
}

export class Generation {
  #pieces;
  #result;

  // `living()`: the host, once it is this generation's `turn()`.
  constructor(living, turn, prompt, options) {
    this.#pieces = this.#run(living, turn, prompt, options);
  }

  // Pieces of text as they become certain: {text, ids, logprobs}, and `stages` where `look` asks for them.
  [Symbol.asyncIterator]() {
    return this.#pieces;
  }

  // The whole, once the pieces are through; goes through those that nobody has taken.
  async result() {
    while (!(await this.#pieces.next()).done);
    return this.#result;
  }

  async *#run(living, turn, prompt, { signal, look, watch, ...options }) {
    const release = await turn();
    try {
      signal?.throwIfAborted();
      const host = await living();
      await host.call("begin", { ...promptOf(prompt), options, look, watch });
      try {
        for (let more = true; more;) {
          signal?.throwIfAborted();
          const piece = await host.call("next", { ms: PIECE_MS });
          more = piece.more;
          delete piece.more;
          if (!look) delete piece.stages;
          if (piece.text || piece.ids.length > 0 || piece.stages?.length > 0) yield piece;
        }
      } finally {
        if (!host.lost) this.#result = await host.call("end");
      }
      const { rest, ...result } = this.#result;
      this.#result = result;
      if (rest) yield { text: rest, ids: [], logprobs: [], ...(look && { stages: [] }) };
    } finally {
      release();
    }
  }
}

export class Look {
  #stages;
  #ids;

  constructor(living, turn, prompt, request) {
    this.#stages = this.#run(living, turn, prompt, request);
  }

  // The stages in the order in which a step computes them, each handed over when it is asked for.
  [Symbol.asyncIterator]() {
    return this.#stages;
  }

  // {ids, stages}: those that nobody has taken yet.
  async result() {
    const stages = [];
    for await (const stage of this.#stages) stages.push(stage);
    return { ids: this.#ids, stages };
  }

  async *#run(living, turn, prompt, { signal, ...look }) {
    const release = await turn();
    try {
      signal?.throwIfAborted();
      const host = await living();
      const { ids, stages } = await host.call("look", { ...promptOf(prompt), look });
      this.#ids = ids;
      try {
        for (let index = 0; index < stages.length; ++index) {
          signal?.throwIfAborted();
          yield await host.call("looked", { index });
        }
      } finally {
        if (!host.lost) await host.call("looked", {}); // which forgets them
      }
    } finally {
      release();
    }
  }
}
