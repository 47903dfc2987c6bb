// Python's two ways of formatting: "text %s" % values and "text {}".format(values).
#pragma once

#include <string>
#include <string_view>

#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {

// `values` is one value, a tuple of them, or a dict for %(name)s. With `escape`, as for markup, inserted
// values are escaped.
Result<std::string> format_percent(Runtime& rt, std::string_view format, const Value& values,
                                   bool escape = false);
Result<std::string> format_braces(Runtime& rt, std::string_view format, const Arguments& arguments,
                                  bool escape = false);

// f"{value:.{precision}f}", correctly rounded.
std::string fixed_text(double value, int precision);

}  // namespace doppler::chat::jinja
