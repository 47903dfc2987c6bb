// A device of the browser's WebGPU, and how its errors are found, which come later than the calls that cause them: scopes hold
// them until settle() takes them.
const SCOPES = ["validation", "internal", "out-of-memory"]; // the last is asked first
const ERRORS = { GPUValidationError: 2, GPUOutOfMemoryError: 3, GPUInternalError: 4 };
const INTERNAL = 4, LOST = 100;
const LOST_MS = 1000; // in which a device says that it is lost, after its results did not come
const EVERYTHING = 0xffffffff;

// The errors that nobody has asked for yet: [type, message], types as webgpu.h numbers them.
export class Errors {
  #list = [];
  #whenLost;
  constructor(whenLost) {
    this.#whenLost = whenLost;
  }
  note(error) {
    this.#list.push([ERRORS[error.constructor.name] ?? INTERNAL, error.message]);
  }
  fault(message) {
    this.#list.push([INTERNAL, message]);
  }
  lost(message) {
    const why = message || "the browser says no more";
    this.#list.unshift([LOST, why]);
    this.#whenLost(why);
  }
  next() {
    return this.#list.shift() ?? [0, ""];
  }
  clear() {
    this.#list.length = 0;
  }
}

export class Device {
  pipelines = []; // that are being made
  used = true; // since its scopes were opened
  #done = new Map(); // submissions that are under way
  #submitted = 0;
  #errors;

  static async open(adapter, wanted, errors) {
    errors.clear();
    const own = new Device();
    own.#errors = errors;
    own.device = await adapter.requestDevice(wanted);
    own.device.addEventListener("uncapturederror", ({ error }) => errors.note(error));
    own.lost = own.device.lost.then(({ message }) => own.released || errors.lost(message));
    own.#openScopes();
    return own;
  }

  #openScopes() {
    for (const scope of SCOPES) this.device.pushErrorScope(scope);
  }

  submit(commands) {
    const number = ++this.#submitted, { queue } = this.device;
    queue.submit([commands]);
    this.#done.set(number, queue.onSubmittedWorkDone().catch(() => {}).then(() => this.#done.delete(number)));
    return number;
  }

  // Resolves when all that was asked for before is done, and its errors are noted; at once if nothing was.
  async settle(submission) {
    const { device } = this;
    const waits = submission === EVERYTHING ? [device.queue.onSubmittedWorkDone()] : [this.#done.get(submission)];
    if (this.used) {
      this.used = false;
      const scopes = SCOPES.map(() => device.popErrorScope().then((error) => error && this.#errors.note(error)));
      this.#openScopes();
      waits.unshift(...scopes, ...this.pipelines.splice(0));
    }
    await Promise.all(waits.map((wait) => wait?.catch(() => {}))); // of a lost device, which is noted by itself
  }

  // A copy of a buffer's first bytes; nothing of a device that is lost.
  async read(buffer, size) {
    const mapped = buffer.mapAsync(GPUMapMode.READ, 0, size).then(() => true, () => false);
    await this.settle(0);
    if (await mapped) {
      const bytes = new Uint8Array(buffer.getMappedRange(0, size)).slice();
      buffer.unmap();
      return bytes;
    }
    await Promise.race([this.lost, new Promise((late) => setTimeout(late, LOST_MS))]);
  }
}
