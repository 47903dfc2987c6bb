// WebGPU for the module, which calls these flat functions where natively it would call webgpu.h; what they mean is said in
// src/backend/gpu/web/imports.h. Errors come later than the calls that cause them: scopes hold them until settle() takes them.
const SCOPES = ["validation", "internal", "out-of-memory"]; // the last is asked first
const ERRORS = { GPUValidationError: 2, GPUOutOfMemoryError: 3, GPUInternalError: 4 };
const INTERNAL = 4, LOST = 100, EVERYTHING = 0xffffffff;
const LOST_MS = 1000; // in which a device says that it is lost, after its results did not come
const decoder = new TextDecoder();
const encoder = new TextEncoder();

// Why there is no WebGPU here; undefined if there is.
function missing() {
  if (typeof WebAssembly.Suspending !== "function") return "This browser cannot let a module wait (WebAssembly.Suspending).";
  if (!globalThis.navigator?.gpu) return "This browser has no WebGPU, or not for pages without https.";
}

// `memory()`: the instance's memory, once there is one.
export function gpuImports(memory) {
  const objects = [null], free = [], errors = [];
  const text = (at, length) => decoder.decode(new Uint8Array(memory().buffer, at >>> 0, length >>> 0));
  const words = (at, count) => new Uint32Array(memory().buffer, at >>> 0, count);
  const put = (string, at, capacity) => {
    const all = encoder.encode(string ?? "");
    new Uint8Array(memory().buffer, at >>> 0, capacity).set(all.subarray(0, capacity));
    return all.length;
  };
  const keep = (object) => {
    const number = free.pop() ?? objects.length;
    objects[number] = object;
    return number;
  };
  const note = (error) => errors.push([ERRORS[error.constructor.name] ?? INTERNAL, error.message]);
  const openScopes = (device) => SCOPES.forEach((scope) => device.pushErrorScope(scope));

  // Resolves when all that was asked for before is done, and its errors are noted; at once if nothing was.
  async function settle(own, submission) {
    const { device, done } = own;
    const waits = submission === EVERYTHING ? [device.queue.onSubmittedWorkDone()] : [done.get(submission)];
    if (own.used) {
      own.used = false;
      const scopes = SCOPES.map(() => device.popErrorScope().then((error) => error && note(error)));
      openScopes(device);
      waits.unshift(...scopes, ...own.pipelines.splice(0));
    }
    await Promise.all(waits.map((wait) => wait?.catch(() => {}))); // of a lost device, which is noted by itself
  }

  const plain = {
    missing: (at, capacity) => put(missing(), at, capacity),
    describe_adapter(adapter, at, capacity) {
      const { info, features, limits } = objects[adapter], numbers = {};
      for (const name in limits) numbers[name] = limits[name];
      const { vendor, architecture, device, description, isFallbackAdapter } = info;
      return put(JSON.stringify({ vendor, architecture, device, description, features: [...features], limits: numbers,
        software: Boolean(isFallbackAdapter) || /swiftshader|llvmpipe/.test(architecture + device) }), at, capacity);
    },
    release(number) {
      if (number === 0) return;
      const object = objects[number];
      object.released = true;
      (object.device ?? object).destroy?.();
      objects[number] = undefined;
      free.push(number);
    },
    next_error(at, capacity) {
      const [type, message] = errors.shift() ?? [0, ""];
      put(`${message.slice(0, capacity / 4)}\0`, at, capacity);
      return type;
    },
    begin_pass: (number) => keep(objects[number].beginComputePass()),
    set_pipeline: (pass, pipeline) => objects[pass].setPipeline(objects[pipeline]),
    set_group: (pass, group) => objects[pass].setBindGroup(0, objects[group]),
    dispatch: (pass, x, y, z) => objects[pass].dispatchWorkgroups(x, y, z),
    end_pass: (pass) => objects[pass].end(),
    copy: (number, from, fromOffset, to, toOffset, size) =>
      objects[number].copyBufferToBuffer(objects[from], fromOffset, objects[to], toOffset, size),
    finish: (number) => keep(objects[number].finish()),
  };
  const ofDevice = { // its number comes first
    create_buffer: (own, label, length, size, usage) => keep(own.device.createBuffer({ label: text(label, length), size, usage })),
    create_shader: (own, label, length, code, codeLength) =>
      keep(own.device.createShaderModule({ label: text(label, length), code: text(code, codeLength) })),
    create_layout(own, at, count) {
      const entries = Array.from({ length: count }, (_, i) => [...words(at + 8 * i, 2)]);
      return keep(own.device.createBindGroupLayout({ entries: entries.map(([binding, writes]) =>
        ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: writes ? "storage" : "read-only-storage" } })) }));
    },
    create_pipeline_layout: (own, layout) => keep(own.device.createPipelineLayout({ bindGroupLayouts: [objects[layout]] })),
    create_pipeline(own, label, length, module, layout) {
      const begun = {}, number = keep(begun);
      const put = (made) => { if (objects[number] === begun) objects[number] = made; };
      const descriptor = { label: text(label, length), layout: objects[layout], compute: { module: objects[module], entryPoint: "main" } };
      own.pipelines.push(own.device.createComputePipelineAsync(descriptor).then(put, ({ message }) => errors.push([INTERNAL, message])));
      return number;
    },
    create_group(own, layout, at, count) {
      const view = new DataView(memory().buffer, at >>> 0, 24 * count);
      return keep(own.device.createBindGroup({ layout: objects[layout], entries: Array.from({ length: count }, (_, i) => ({
        binding: view.getUint32(24 * i, true), resource: { buffer: objects[view.getUint32(24 * i + 4, true)],
          offset: view.getFloat64(24 * i + 8, true), size: view.getFloat64(24 * i + 16, true) } })) }));
    },
    create_encoder: (own) => keep(own.device.createCommandEncoder()),
    submit(own, commands) {
      const number = ++own.submitted;
      own.device.queue.submit([objects[commands]]);
      own.done.set(number, own.device.queue.onSubmittedWorkDone().catch(() => {}).then(() => own.done.delete(number)));
      return number;
    },
    write_buffer: (own, buffer, offset, at, size) => own.device.queue.writeBuffer(objects[buffer], offset, memory().buffer, at >>> 0, size),
  };
  const waiting = {
    async request_adapter() {
      const adapter = missing() ? null : await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
      return adapter ? keep(adapter) : 0;
    },
    async request_device(adapter, at, length) {
      errors.length = 0;
      const device = await objects[adapter].requestDevice(JSON.parse(text(at, length)));
      device.addEventListener("uncapturederror", ({ error }) => note(error));
      const own = { device, done: new Map(), submitted: 0, pipelines: [], used: true };
      own.lost = device.lost.then(({ message }) => own.released || errors.unshift([LOST, message || "the browser says no more"]));
      openScopes(device);
      return keep(own);
    },
    settle: (number, submission) => settle(objects[number], submission >>> 0),
    async read_buffer(number, buffer, size, at) {
      const own = objects[number];
      const mapped = objects[buffer].mapAsync(GPUMapMode.READ, 0, size).then(() => true, () => false);
      await settle(own, 0);
      if (!await mapped) {
        await Promise.race([own.lost, new Promise((late) => setTimeout(late, LOST_MS))]);
        return 0;
      }
      new Uint8Array(memory().buffer, at >>> 0, size).set(new Uint8Array(objects[buffer].getMappedRange(0, size)));
      objects[buffer].unmap();
      return 1;
    },
  };
  // What a call throws is told as an error that came later.
  const guard = (call) => (...given) => {
    try {
      return call(...given);
    } catch (error) {
      note(error);
      return 0;
    }
  };
  const use = (call) => guard((number, ...rest) => {
    objects[number].used = true;
    return call(objects[number], ...rest);
  });
  const suspend = (call) => typeof WebAssembly.Suspending !== "function" ? () => 0
    : new WebAssembly.Suspending((...given) => call(...given).catch((error) => (note(error), 0)));
  const each = (calls, wrap) => Object.entries(calls).map(([name, call]) => [name, wrap(call)]);
  return Object.fromEntries([...each(plain, guard), ...each(ofDevice, use), ...each(waiting, suspend)]);
}
