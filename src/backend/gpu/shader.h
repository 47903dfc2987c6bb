// The template step between a .wgsl file and the text that WebGPU compiles: every size and shape is a number
// in the text, so that loops unroll and index arithmetic folds.
//
//   ${expr}                        the value of an integer expression over the given names
//   #if expr, #elif expr, #else, #endif
//   #for i in first..end, #endfor  the lines between, once for each i (a name like any other in there)
//   #define NAME expr              a name for the rest of the text
//   #default NAME expr             the same, unless it has a value
//   #module name "file.wgsl"       another embedded file as part of this one: of the values those whose names
//   begin
//                                  with `name.`, its names as `name_NAME`, its bindings' numbers 32 higher
//                                  than the module's before (the first's as they are), main() a function
//                                  name_main()
//   #include "file.wgsl"           another embedded file, once
//   #sum name, i, count            behind the line that defines the value name_<i>: adds it to its neighbour,
//   pairs to
//                                  pairs and so on, as far as they are there; behind the last of `count`
//                                  values, `name` is their sum. So sums over 0s behind the last are the same
//                                  sums (docs/kernels.md).
//
// Expressions: + - * / % << >> == != < <= > >= && || ! ( ) min(a, b) max(a, b) and whole numbers, as in C, in
// 64 bits.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "backend/shader_edit.h"
#include "base/result.h"

namespace doppler::gpu {

using ShaderValues = std::map<std::string, std::int64_t, std::less<>>;

// Expands one of the embedded files, each as the edits leave it. `values` must all be used, `common` need not
// be. Errors: kInternal, naming file and line, for an unknown name, a value that is never used, or broken
// syntax; for an edit that finds nothing to change.
Result<std::string> expand_shader(std::string_view file, const ShaderValues& values,
                                  const ShaderValues& common = {}, std::span<const ShaderEdit> edits = {});

// The same for a text at hand; `name` stands in errors.
Result<std::string> expand_shader_text(std::string_view name, std::string_view text,
                                       const ShaderValues& values, const ShaderValues& common = {});

}  // namespace doppler::gpu
