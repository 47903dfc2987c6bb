// ModelName: how people name a model of the Hub: org/name, org/name:Q4_K_M, org/name@revision:file.gguf.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace doppler::hub {

struct ModelName {
  std::string repo;               // "org/name"; a few old ones are a "name" alone
  std::string revision = "main";  // a branch, a tag or a commit
  std::string pick;               // a file's path or a type, as written; empty: whichever suits

  std::string text() const;  // as parse_name takes it
};

// Also the ways in which other programs and people write it: hf:…, hf.co/…, huggingface.co/…, and addresses
// of pages and files there (https://huggingface.co/org/name/blob/main/file.gguf). Errors: kUsage, saying what
// a name looks like.
Result<ModelName> parse_name(std::string_view text);

// Whether a text that is the path of nothing may be meant as a name of the Hub: org/name, and what
// parse_name() takes besides.
bool looks_like_name(std::string_view text);

// Whether it is a web address at all.
bool is_url(std::string_view text);

// Whether a path from somewhere else stays inside the folder that it is put into, on every system: parts
// joined by /, none of them "." or "..", no backslash, colon or control character.
bool is_inner_path(std::string_view path);

}  // namespace doppler::hub
