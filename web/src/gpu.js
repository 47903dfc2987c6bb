// WebGPU for the module, which calls these flat functions where natively it would call webgpu.h; what they mean is said in
// src/backend/gpu/web/imports.h.
import { describeAdapter, findAdapter, missing } from "./gpu_adapter.js";
import { Device, Errors } from "./gpu_device.js";
import { putText, textIn } from "./imports.js";

// `memory()`: the instance's memory, once there is one. `lost(why)`: a device is, and whoever uses it must begin anew.
export function gpuImports(memory, lost) {
  const objects = [null], free = [], errors = new Errors(lost);
  const text = (at, length) => textIn(memory(), at, length);
  const put = (string, at, capacity) => putText(memory(), string ?? "", at, capacity);
  const keep = (object) => {
    const number = free.pop() ?? objects.length;
    objects[number] = object;
    return number;
  };

  const plain = {
    missing: (at, capacity) => put(missing(), at, capacity),
    describe_adapter: (adapter, at, capacity) => put(describeAdapter(objects[adapter]), at, capacity),
    release(number) {
      if (number === 0) return;
      const object = objects[number];
      object.released = true;
      (object.device ?? object).destroy?.();
      objects[number] = undefined;
      free.push(number);
    },
    next_error(at, capacity) {
      const [type, message] = errors.next();
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
      const entries = Array.from({ length: count }, (_, i) => [...new Uint32Array(memory().buffer, (at >>> 0) + 8 * i, 2)]);
      return keep(own.device.createBindGroupLayout({ entries: entries.map(([binding, writes]) =>
        ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: writes ? "storage" : "read-only-storage" } })) }));
    },
    create_pipeline_layout: (own, layout) => keep(own.device.createPipelineLayout({ bindGroupLayouts: [objects[layout]] })),
    create_pipeline(own, label, length, module, layout) {
      const begun = {}, number = keep(begun);
      const put = (made) => { if (objects[number] === begun) objects[number] = made; };
      const descriptor = { label: text(label, length), layout: objects[layout], compute: { module: objects[module], entryPoint: "main" } };
      own.pipelines.push(own.device.createComputePipelineAsync(descriptor).then(put, ({ message }) => errors.fault(message)));
      return number;
    },
    create_group(own, layout, at, count) {
      const view = new DataView(memory().buffer, at >>> 0, 24 * count);
      return keep(own.device.createBindGroup({ layout: objects[layout], entries: Array.from({ length: count }, (_, i) => ({
        binding: view.getUint32(24 * i, true), resource: { buffer: objects[view.getUint32(24 * i + 4, true)],
          offset: view.getFloat64(24 * i + 8, true), size: view.getFloat64(24 * i + 16, true) } })) }));
    },
    create_encoder: (own) => keep(own.device.createCommandEncoder()),
    submit: (own, commands) => own.submit(objects[commands]),
    write_buffer: (own, buffer, offset, at, size) => own.device.queue.writeBuffer(objects[buffer], offset, memory().buffer, at >>> 0, size),
  };
  const waiting = {
    request_adapter: () => findAdapter().then((adapter) => adapter ? keep(adapter) : 0),
    request_device: async (adapter, at, length) => keep(await Device.open(objects[adapter], JSON.parse(text(at, length)), errors)),
    settle: (number, submission) => objects[number].settle(submission >>> 0),
    async read_buffer(number, buffer, size, at) {
      const bytes = await objects[number].read(objects[buffer], size);
      if (bytes) new Uint8Array(memory().buffer, at >>> 0, size).set(bytes);
      return bytes ? 1 : 0;
    },
  };
  // What a call throws is told as an error that came later.
  const guard = (call) => (...given) => {
    try {
      return call(...given);
    } catch (error) {
      errors.note(error);
      return 0;
    }
  };
  const use = (call) => guard((number, ...rest) => {
    objects[number].used = true;
    return call(objects[number], ...rest);
  });
  const suspend = (call) => typeof WebAssembly.Suspending !== "function" ? () => 0
    : new WebAssembly.Suspending((...given) => call(...given).catch((error) => (errors.note(error), 0)));
  const each = (calls, wrap) => Object.entries(calls).map(([name, call]) => [name, wrap(call)]);
  return Object.fromEntries([...each(plain, guard), ...each(ofDevice, use), ...each(waiting, suspend)]);
}
