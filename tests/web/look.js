// What node and the browser run alike for look_test.py: looks into a model, comparisons and diagnoses, and engines that stop.

const outcome = (promise) => promise.then((value) => value, ({ code, name, message }) => ({ error: { code: code ?? name, message } }));
const plain = ({ values, ...rest }) => ({ ...rest, kind: values?.constructor.name, values: Array.from(values ?? [], (x) => (Number.isFinite(x) ? x : String(x))) });

async function contentsOf(read, files) {
  const contents = {};
  for (const [path, from] of Object.entries(files)) contents[path] = await read(from);
  return contents;
}

// Stages of a prompt, all at once, one by one, and while an answer is generated.
export async function runLooks({ Doppler }, read, { files, prompt, request, load }) {
  const engine = await Doppler.load(await contentsOf(read, files), load);
  const { ids, stages } = await engine.look(prompt, request).result();
  const names = [];
  for await (const { stage, layer } of engine.look(ids, request)) names.push([stage, layer]);
  let taken = 0;
  for await (const stage of engine.look(ids, request)) if (stage && ++taken === 1) break; // which frees the engine for what follows
  const refused = {
    stage: await outcome(engine.look(prompt, { stages: ["q_ropes"] }).result()),
    layer: await outcome(engine.look(prompt, { stages: ["q_rope"], layers: [99] }).result()),
    token: await outcome(engine.look(prompt, { stages: ["q_rope"], tokens: [99] }).result()),
    bytes: await outcome(engine.look(prompt, { stages: ["all"], most_bytes: 1000 }).result()),
    option: await outcome(engine.look(prompt, { stages: ["q_rope"], layer: 3 }).result()),
  };
  const alone = await engine.generate("A bear", { max_tokens: 4, temperature: 0 }).result();
  const seen = [];
  const watched = engine.generate("A bear", { max_tokens: 4, temperature: 0, look: { stages: ["layer_out"], layers: [0] } });
  for await (const piece of watched) for (const { tokens, values } of piece.stages) seen.push({ tokens, count: values.length });
  const { stages: [measured] } = await engine.look(prompt, { stages: ["layer_out"], layers: [0], values: false, statistics: true }).result();
  const score = await engine.score(ids, { top: 3 });
  const known = engine.info.stages;
  engine.close();
  return { ids, stages: stages.map(plain), names, refused, alone: alone.ids, watched: (await watched.result()).ids, seen, measured: plain(measured), score, known };
}

// {name: {compare|doctor: options}} of models, each with what it comes to.
export async function runDiagnoses({ Doppler }, read, { jobs, load }) {
  const results = [];
  for (const { files, call, reference, other, options } of jobs) {
    const contents = await contentsOf(read, files), truth = reference && await read(reference);
    if (call === "doctor of a source") {
      results.push(await outcome(Doppler.doctor(contents, { ...load, ...options, reference: truth })));
      continue;
    }
    const engine = await Doppler.load(contents, load);
    const shares = [], onProgress = (share) => shares.push(share);
    const result = await outcome(call === "doctor" ? engine.doctor({ reference: truth, onProgress, ...options })
      : engine.compare(truth ?? other, { onProgress, ...options }));
    results.push({ ...result, shares });
    engine.close();
  }
  return results;
}

// A conversation whose engine stops in the middle, in each of some ways; the module that does so is look_test.py's.
export async function runFaults({ Doppler }, read, { files, faults, load }) {
  const contents = await contentsOf(read, files), said = {};
  const ask = (engine, messages) => outcome(engine.chat.completions.create({ messages, temperature: 0, max_tokens: 30 })
    .then(({ choices: [{ message }] }) => message));
  const first = { role: "user", content: "What does a bear eat?" }, then = { role: "user", content: "And where does it live?" };
  for (const fault of faults) {
    const engine = await Doppler.load(contents, load);
    const answer = await ask(engine, [first]);
    const stopped = fault && await ask(engine, [first, answer, { role: "user", content: fault }]);
    const both = await Promise.all([ask(engine, [first, answer, then]), outcome(engine.tokenize("x"))]); // one restart for all
    said[fault] = { answer, stopped, next: both[0], ids: both[1], notes: engine.info.notes };
    engine.close();
    said[fault].closed = (await outcome(engine.tokenize("x"))).error?.code;
  }
  return said;
}
