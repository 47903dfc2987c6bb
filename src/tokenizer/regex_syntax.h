// Tokenizer files carry patterns in Oniguruma's Ruby syntax; PCRE2 reads Perl's. This is the translation.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace doppler::tokenizer {

// The same pattern for PCRE2 with PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE. What differs and is rewritten:
// \s and \w (other members in PCRE2), \p{Letter} and \p{Han} (long names; scripts without their extensions),
// \h and \H (hex digits), \uHHHH, classes inside classes (unions), {n,m}+ (a repeat, not possessive), {,n}.
// Errors: kUnsupported with the offset for class intersections (&&), \W or \H inside a class, negated classes
// in classes.
Result<std::string> translate_regex(std::string_view pattern);

}  // namespace doppler::tokenizer
