// One HTML page that needs nothing but a browser: no network, no other file. All pages share their skeleton,
// style, and the parts of the program that draw tables and charts; a page adds its sections and what fills
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "page/page_files.h"

namespace doppler::page {

enum class Outcome : std::uint8_t { kGood, kBad, kNote };  // green, red, neither

// What a reader must see at once. All of it is untrusted text.
struct Head {
  std::string title;  // "gemma3 against reference.safetensors"
  Outcome outcome = Outcome::kNote;
  std::string word;               // the verdict: "Differs", "43.2 tokens a second"
  std::string verdict;            // and what it means, a sentence
  std::vector<std::string> more;  // further sentences
  std::vector<std::pair<std::string, std::string>>
      facts;  // name and value; those without a value are left out
};

struct Parts {
  std::string_view kind;                  // what the page is: "comparison"
  std::string_view body;                  // its sections, as HTML
  std::vector<std::string_view> scripts;  // its program, in order, after the common parts
};

// The page around `data`, which its program reads. The only script that may run in it is this one.
std::string html(const Parts& parts, const Head& head, const Json& data);

// The text of a file of such a table; empty if there is none.
std::string_view find_file(std::span<const PageFile> files, std::string_view name);

// Four digits: more than a reader compares, in a third of the bytes. JSON has no infinity: null.
Json number(double value);

// "gemma3" of "models/gemma3/": a title has no room for paths.
std::string last_part(std::string path);

}  // namespace doppler::page
