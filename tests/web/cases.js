// What node and the browser run alike: jobs of web_test.py, which knows what the native program says of the same files, and
// checks of the interface itself. `read(path)` gives a file's bytes.

// {model, files, ids, options, load, module} to {ids} or {error: {code, message}}.
async function runJob({ Doppler, base }, read, job, common) {
  let engine;
  const module = job.module && { module: new URL(job.module, base) };
  try {
    const files = {};
    for (const [path, from] of Object.entries(job.files)) files[path] = await read(from);
    engine = await Doppler.load(files, { ...common, ...job.load, ...module, model: job.model });
    const result = await engine.generate(job.prompt ?? job.ids, job.options).result();
    return { ids: result.ids, text: result.text, logprobs: result.logprobs.map((token) => token.logprob) };
  } catch (error) {
    return { error: { code: error.code ?? error.name, message: error.message } };
  } finally {
    engine?.close();
  }
}

const equal = (got, wanted, what) => {
  if (JSON.stringify(got) !== JSON.stringify(wanted)) throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(wanted)}`);
};
const refusal = (promise) => promise.then(() => "no error", (error) => typeof error.code === "string" ? error.code : error.name);
const QUESTION = { messages: [{ role: "user", content: "What does a bear eat?" }], temperature: 0, max_tokens: 20 };

const CHECKS = {
  async "pieces make the text"(engine) {
    const generation = engine.generate("The color of the sky is", { max_tokens: 40, temperature: 0 });
    let text = "", ids = [];
    for await (const piece of generation) [text, ids] = [text + piece.text, [...ids, ...piece.ids]];
    const result = await generation.result();
    equal(text, result.text, "the text");
    equal(ids, result.ids, "the ids");
    equal(await engine.detokenize(result.ids), text, "the ids' text");
    equal(result.timings.generated_tokens, ids.length, "their number");
  },
  async "a chat completion, whole and in chunks"(engine) {
    const whole = await engine.chat.completions.create(QUESTION);
    equal([whole.object, whole.choices.length, whole.choices[0].message.role], ["chat.completion", 1, "assistant"], "its shape");
    let content = "", finish, usage;
    const options = { ...QUESTION, stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await engine.chat.completions.create(options)) {
      equal(chunk.object, "chat.completion.chunk", "a chunk's shape");
      content += chunk.choices[0]?.delta.content ?? "";
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    equal(content, whole.choices[0].message.content, "the chunks' text");
    equal(finish, whole.choices[0].finish_reason, "why they end");
    equal(usage.completion_tokens, whole.usage.completion_tokens, "their tokens");
  },
  async "log probabilities in OpenAI's shape"(engine) {
    const { choices: [{ logprobs }] } = await engine.chat.completions.create({ ...QUESTION, logprobs: true, top_logprobs: 3, max_tokens: 4 });
    equal(logprobs.content.map(({ top_logprobs }) => top_logprobs.length), [3, 3, 3, 3], "their number");
    equal(logprobs.content.every(({ token, top_logprobs }) => top_logprobs[0].token === token), true, "the likeliest is chosen");
  },
  async "generations go one after another"(engine) {
    const alone = (await engine.generate("A bear", { max_tokens: 12, temperature: 0 }).result()).text;
    const both = await Promise.all(["A bear", "The sky", "A bear"].map((text) =>
      engine.generate(text, { max_tokens: 12, temperature: 0 }).result()));
    equal([both[0].text, both[2].text], [alone, alone], "what each says");
  },
  async "an abort ends a generation, and the engine goes on"(engine) {
    const stopping = new AbortController();
    let pieces = 0;
    const reading = (async () => {
      for await (const piece of engine.generate("Once", { max_tokens: 4000, ignore_eos: true, temperature: 0, signal: stopping.signal })) {
        pieces += piece.ids.length;
        stopping.abort();
      }
    })();
    equal(await refusal(reading), "AbortError", "what it ends with");
    equal(pieces > 0 && pieces < 4000, true, "between two pieces");
    for await (const piece of engine.generate("Once", { max_tokens: 4000, ignore_eos: true })) if (piece) break;
    equal((await engine.generate("A bear", { max_tokens: 3 }).result()).ids.length, 3, "afterwards");
  },
  async "stop strings, biases and seeds hold"(engine) {
    const { text, stop_reason } = await engine.generate("The color of the sky is", { temperature: 0, stop: ["clear"], max_tokens: 40 }).result();
    equal([text.includes("clear"), stop_reason], [false, "stop_string"], "the stop string");
    const bias = await engine.generate("The", { temperature: 0, logit_bias: { 300: 1000 }, max_tokens: 3 }).result();
    equal(bias.ids, [300, 300, 300], "the biased tokens");
    const draw = async (seed) => (await engine.generate("The", { temperature: 1.5, seed, max_tokens: 16 }).result()).text;
    equal(await draw(7), await draw(7), "a seed's text");
  },
  async "what is wrong is said by a typed error"(engine, { Doppler, DopplerError }, common) {
    equal(await refusal(engine.generate("x", { max_token: 3 }).result()), "usage", "an unknown option");
    equal(await refusal(engine.generate("x", { temperature: "hot" }).result()), "usage", "an option of another type");
    equal(await refusal(engine.generate("x", { top_p: 7 }).result()), "usage", "an option out of range");
    equal(await refusal(engine.generate([]).result()), "usage", "no tokens");
    equal(await refusal(engine.generate([1e9]).result()), "mismatch", "an id outside the vocabulary");
    equal(await refusal(engine.generate({ not: "messages" }).result()), "usage", "no conversation");
    equal(await refusal(engine.chat.completions.create({ ...QUESTION, n: 2 })), "unsupported", "two answers");
    equal(await refusal(engine.chat.completions.create({ ...QUESTION, voice: 1 })), "usage", "an unknown wish");
    equal(await refusal(Doppler.load({}, common)), "usage", "no files");
    equal(await refusal(Doppler.load({ "notes.txt": new Uint8Array(3) }, common)), "not_found", "no model");
    equal(await refusal(Doppler.load({ "a.gguf": "text" }, common)), "usage", "no bytes");
    equal(await refusal(Doppler.load("http://[", { ...common, keep: false })), "usage", "no address");
    equal(new DopplerError("io", "x") instanceof Error, true, "its class");
  },
  async "a model's description"(engine) {
    const info = await engine.inspect();
    equal([info.family, info.has_tokenizer, info.has_chat_template, info.backend], ["gemma3", true, true, "cpu"], "what it says");
    equal(info.facts.every(({ name, value, because }) => name && value && because) && info.facts.length > 10, true, "its facts");
    equal(info.memory.module >= info.memory.weights + info.memory.cache, true, "its memory");
    equal(info.notes.some((note) => /computes with \d+ threads?, because/.test(note)), true, "how many threads it has");
  },
};

async function runChecks(api, read, demo, common) {
  const failed = [];
  const files = {};
  for (const [path, from] of Object.entries(demo)) files[path] = await read(from);
  const engine = await api.Doppler.load(files, common);
  for (const [name, check] of Object.entries(CHECKS)) {
    try {
      await check(engine, api, common);
    } catch (error) {
      failed.push(`${name}: ${error.stack ?? error}`);
    }
  }
  engine.close();
  const code = await refusal(engine.tokenize("x"));
  if (code !== "lost") failed.push(`a closed engine: ${code}`);
  return failed;
}

export async function runAll(api, read, { jobs, demo, load }) {
  const results = [];
  for (const job of jobs) results.push(await runJob(api, read, job, load));
  return { results, failed: await runChecks(api, read, demo, load) };
}
