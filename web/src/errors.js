// DopplerError: what every call rejects with. `message` is a sentence for a person; `code` is for programs: usage, not_found,
// corrupt, unsupported, mismatch, limit, io, internal as in C++, and lost for an engine that has stopped and must be loaded again.
export class DopplerError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.name = "DopplerError";
    this.code = code;
  }
}
