// engine.chat.completions.create(): the engine in the shapes of OpenAI's chat completions.
import { DopplerError } from "./errors.js";

// What a request may say: passed on by another or the same name, or without a meaning here.
const OPTIONS = { max_tokens: "max_tokens", max_completion_tokens: "max_tokens", temperature: "temperature", top_p: "top_p",
  presence_penalty: "presence_penalty", frequency_penalty: "frequency_penalty", logit_bias: "logit_bias", seed: "seed" };
const HANDLED = ["messages", "tools", "stream", "stream_options", "stop", "logprobs", "top_logprobs", "chat_template_kwargs"];
const WITHOUT_EFFECT = ["model", "user", "metadata", "store"];
const ONLY = { n: 1, response_format: "text", tool_choice: "auto" };
const FINISH = { eos: "stop", stop_string: "stop", max_tokens: "length", context_end: "length", cancelled: "stop" };

function generateOptions(request) {
  const options = {};
  for (const [key, value] of Object.entries(request)) {
    if (value === undefined || value === null || HANDLED.includes(key) || WITHOUT_EFFECT.includes(key)) continue;
    if (key in OPTIONS) options[OPTIONS[key]] = value;
    else if (!(key in ONLY)) throw new DopplerError("usage", `The request's ${key} is unknown. Leave it out.`);
    else if ((value.type ?? value) !== ONLY[key])
      throw new DopplerError("unsupported", `The request's ${key} can only be ${JSON.stringify(ONLY[key])}. Leave it out.`);
  }
  if (request.stop !== undefined && request.stop !== null) options.stop = [request.stop].flat();
  if (request.logprobs) options.logprobs = request.top_logprobs ?? 0;
  return options;
}

export class Completions {
  #engine;
  constructor(engine) {
    this.#engine = engine;
  }

  // Resolves to a completion, or with `stream` to an async iterable of chunks.
  async create(request, { signal } = {}) {
    const { messages, tools, chat_template_kwargs } = request;
    const generation = this.#engine.generate({ ...chat_template_kwargs, messages, ...(tools && { tools }) },
      { ...generateOptions(request), signal });
    const common = { id: `chatcmpl-${crypto.randomUUID()}`, created: Math.floor(Date.now() / 1000),
      model: request.model ?? this.#engine.info.family };
    if (request.stream) return this.#chunks(generation, common, request.stream_options?.include_usage);
    const result = await generation.result();
    return {
      ...common,
      object: "chat.completion",
      choices: [{
        index: 0,
        message: { role: "assistant", content: result.text },
        logprobs: await this.#logprobs(request.logprobs ? result.logprobs : []),
        finish_reason: FINISH[result.stop_reason],
      }],
      usage: usageOf(result),
    };
  }

  async *#chunks(generation, common, includeUsage) {
    const chunk = (choices, more) => ({ ...common, object: "chat.completion.chunk", choices, ...more });
    const choice = (delta, logprobs = null, finish_reason = null) => [{ index: 0, delta, logprobs, finish_reason }];
    yield chunk(choice({ role: "assistant", content: "" }));
    for await (const piece of generation) yield chunk(choice({ content: piece.text }, await this.#logprobs(piece.logprobs)));
    const result = await generation.result();
    yield chunk(choice({}, null, FINISH[result.stop_reason]));
    if (includeUsage) yield chunk([], { usage: usageOf(result) });
  }

  async #logprobs(tokens) {
    if (tokens.length === 0) return null;
    const encoder = new TextEncoder();
    const show = async ({ id, logprob }) => {
      const token = await this.#engine.detokenize([id]);
      return { token, logprob, bytes: [...encoder.encode(token)] };
    };
    return { content: await Promise.all(tokens.map(async (token) =>
      ({ ...await show(token), top_logprobs: await Promise.all(token.top.map(show)) }))) };
  }
}

function usageOf({ timings }) {
  return {
    prompt_tokens: timings.prompt_tokens,
    completion_tokens: timings.generated_tokens,
    total_tokens: timings.prompt_tokens + timings.generated_tokens,
    prompt_tokens_details: { cached_tokens: timings.cached_tokens },
  };
}
