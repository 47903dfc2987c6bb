// Any text as a config.json: an error, or an object whose every key can be asked for as every kind of value.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "formats/hf_config.h"

namespace {

// Asks for the key in every way; a getter may fail, but only with a sentence of bounded length.
void ask(const doppler::ConfigReader& config, std::string_view key) {
  const auto check = [](const auto& result) {
    if (!result && (result.error().message.empty() || result.error().message.size() > 2000)) std::abort();
  };
  (void)config.has(key);
  check(config.get_uint(key));
  check(config.get_number(key));
  check(config.get_bool(key));
  check(config.get_string(key));
  check(config.get_strings(key));
  check(config.get_uints(key));
  check(config.get_numbers(key));
  check(config.get_object(key));
}

void visit(const doppler::Json& object, const doppler::ConfigReader& config, int depth) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    ask(config, key);
    ask(config, key + ".rope_theta");
    const auto child = config.get_object(key);
    if (depth > 0 && child && *child) visit(value, **child, depth - 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = doppler::parse_json(text, "The file config.json");
  if (!json) {
    if (json.error().message.empty()) std::abort();
    return 0;
  }
  const doppler::ConfigReader config(*json, "config.json");
  visit(*json, config, 3);
  for (const char* key :
       {"", ".", "..", "text_config.rope_parameters.full_attention.rope_theta", "eos_token_id"}) {
    ask(config, key);
  }
  return 0;
}
