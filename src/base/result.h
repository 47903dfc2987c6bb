// The core's side of Result<T>: making errors and passing them on.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "doppler/result.h"

namespace doppler {

// fail() below with its arguments' types erased, so that no place that fails compiles a formatter of its own.
[[nodiscard]] std::unexpected<Error> fail_with(ErrorCode code, fmt::string_view format,
                                               fmt::format_args args);

// An unexpected Error with a formatted sentence: return fail(ErrorCode::kCorrupt, "The file {} ...", path);
template <typename... Args>
[[nodiscard]] std::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format,
                                          Args&&... args) {
  return fail_with(code, format, fmt::make_format_args(args...));
}
}  // namespace doppler

#define DOPPLER_CONCAT_INNER_(a, b) a##b
#define DOPPLER_CONCAT_(a, b) DOPPLER_CONCAT_INNER_(a, b)

// DOPPLER_TRY(status_expression): returns its error from the enclosing function, if it is one.
#define DOPPLER_TRY(expr)                                                                                   \
  do {                                                                                                      \
    if (auto doppler_try_ = (expr); !doppler_try_) return std::unexpected(std::move(doppler_try_).error()); \
  } while (0)

// DOPPLER_ASSIGN(auto x, expression): x takes the value, or the enclosing function returns the error.
#define DOPPLER_ASSIGN(lhs, expr) DOPPLER_ASSIGN_IMPL_(DOPPLER_CONCAT_(doppler_assign_, __LINE__), lhs, expr)
#define DOPPLER_ASSIGN_IMPL_(result, lhs, expr)                   \
  auto result = (expr);                                           \
  if (!result) return std::unexpected(std::move(result).error()); \
  lhs = std::move(*result)
