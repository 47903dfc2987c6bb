// Errors as values: everything in Doppler that can fail returns Result<T>.
#pragma once

#include <expected>
#include <string>
#include <utility>

namespace doppler {

// The kind of failure; the message says exactly what failed and what to do.
enum class ErrorCode {
  kUsage,        // the caller asked for something impossible, as a value out of range (exit status 2)
  kNotFound,     // a file, tensor, stage or name does not exist
  kCorrupt,      // a file contradicts its format or itself
  kUnsupported,  // well-formed, but Doppler does not do it
  kMismatch,     // two inputs contradict each other (config and tensors, model and recording)
  kLimit,        // too large for the context, the memory or a safety bound
  kIo,           // the operating system refused: unreadable file, full disk
  kInternal,     // a bug in Doppler
};

// One full sentence in the present tense, with the value after its noun, and what to do.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <typename T>
using Result = std::expected<T, Error>;

using Status = Result<void>;

}  // namespace doppler
