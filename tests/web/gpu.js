// What gpu_test.py and families_gpu_test.py run in the browser: models on its GPU, and each call of WebGPU that may fail, failing.

async function contentsOf(files) {
  const contents = {};
  for (const [path, from] of Object.entries(files)) contents[path] = await (await fetch(`/file${from}`)).blob();
  return contents;
}

// {files, model, load, prompt, options} to what the engine is and says, or {error: {code, message}}.
export async function runJob({ Doppler }, { files, model, load, prompt, options }) {
  let engine;
  try {
    engine = await Doppler.load(await contentsOf(files), { model, ...load });
    const { ids } = await engine.generate(prompt, options).result();
    const { backend, device, notes } = engine.info;
    return { ids, backend, device, notes, memory: (await engine.inspect()).memory };
  } catch (error) {
    return { error: { code: error.code, message: error.message } };
  } finally {
    engine?.close();
  }
}

// The same stages on GPU and processor: the largest difference of each as a share of its largest value. And a comparison there.
export async function runLook({ Doppler }, { files, model, prompt, request, reference }) {
  const contents = await contentsOf(files);
  const sides = [];
  let compared;
  for (const backend of ["cpu", "gpu"]) {
    const engine = await Doppler.load(contents, { model, backend, context: 64 });
    sides.push((await engine.look(prompt, request).result()).stages);
    if (backend === "gpu") compared = await engine.compare(new URL(`/file${reference}`, location));
    engine.close();
  }
  const [cpu, gpu] = sides;
  const shares = cpu.map(({ stage, layer, values }, i) => {
    const largest = values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    return [stage, layer, values.length === gpu[i].values.length, values.reduce((most, x, at) => Math.max(most, Math.abs(x - gpu[i].values[at])), 0) / largest];
  });
  return { shares, agrees: compared.agrees, backend: compared.backend };
}

// What a model generates, and all of it beside a recording. `seconds` of loading, generating and comparing.
export async function runFamily({ Doppler }, { files, model, family, prompt, options, reference }) {
  const times = [performance.now()], done = () => times.push(performance.now());
  let engine;
  try {
    const watch = { trace: ["loader"] }; // says where the time of loading goes
    engine = await Doppler.load(await contentsOf(files), { model, family, backend: "gpu", context: 64, watch });
    done();
    const { ids } = await engine.generate(prompt, options).result();
    done();
    const compared = await engine.compare(new URL(`/file${reference}`, location));
    done();
    const { backend, said: [said] } = engine.info;
    return { ids, compared, backend, said, seconds: times.slice(1).map((time, i) => (time - times[i]) / 1000) };
  } catch ({ code, message }) {
    return { error: [code, message] };
  } finally {
    engine?.close();
  }
}

// Puts another function in place of a method while `during` runs.
async function replaced(type, name, other, during) {
  const before = type.prototype[name];
  type.prototype[name] = function (...given) {
    return other.call(this, before, ...given);
  };
  try {
    return await during();
  } finally {
    type.prototype[name] = before;
  }
}

// {failure: what it comes to}. On the page's own thread, where the page's objects can be replaced.
export async function runFailures({ Doppler }, { files, model }) {
  const contents = await contentsOf(files);
  const load = (backend) => Doppler.load(contents, { model, backend, worker: false, context: 64 });
  const outcome = (promise) => promise.then(({ info, ids }) => info ? [info.backend, ...info.notes] : ids,
    ({ code, message }) => [code, message]);
  const said = {};
  const refuse = () => Promise.reject(new Error("not today"));
  const oneError = (error) => {
    let told = false;
    return function (pop) {
      const popped = pop.call(this);
      return told ? popped : popped.then(() => (told = true, error));
    };
  };
  said.no_adapter = await outcome(replaced(GPU, "requestAdapter", () => Promise.resolve(null), () => load("gpu")));
  said.no_adapter_auto = await outcome(replaced(GPU, "requestAdapter", () => Promise.resolve(null), () => load("auto")));
  said.no_device = await outcome(replaced(GPUAdapter, "requestDevice", refuse, () => load("gpu")));
  said.no_pipeline = await outcome(replaced(GPUDevice, "createComputePipelineAsync", refuse, () => load("gpu")));
  said.no_memory = await outcome(replaced(GPUDevice, "popErrorScope", oneError(new GPUOutOfMemoryError("full")), () => load("gpu")));
  said.thrown = await outcome(replaced(GPUDevice, "createBuffer", () => { throw new RangeError("too large"); }, () => load("gpu")));

  let device;
  const engine = await replaced(GPUAdapter, "requestDevice", async function (request, ...given) {
    return device = await request.call(this, ...given);
  }, () => load("gpu"));
  const say = () => engine.generate([3, 14, 15], { max_tokens: 3, temperature: 0 }).result();
  said.before = await outcome(say());
  said.no_result = await outcome(replaced(GPUBuffer, "mapAsync", refuse, say));
  said.late_error = await outcome(replaced(GPUDevice, "popErrorScope", oneError(new GPUValidationError("wrong")), say));
  said.after = await outcome(say());
  const ends = replaced(GPUQueue, "submit", function (submit, ...given) {
    submit.apply(this, given);
    device.destroy();
  }, say);
  said.lost = await outcome(ends);
  said.after_loss = await outcome(say()); // on another device, for which the model was loaded again
  said.notes = engine.info.notes;
  engine.close();
  return said;
}
