// Any text as a configuration, as a --set, and as flags: an error with a sentence, or a configuration whose
// every value is canonical, so that merging it again changes nothing, and whose schema-shaped subtree can be
// read.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "config/config.h"
#include "config/conflicts.h"

namespace {

void check_error(const doppler::Error& error) {
  // Paths and values are cut, so that no input makes a message long.
  if (error.message.empty() || error.message.size() > 4000) std::abort();
}

doppler::Result<doppler::config::Config> resolve(const doppler::config::ConfigInput& input) {
  auto config = doppler::config::resolve_config(input);
  if (!config) {
    check_error(config.error());
    return config;
  }
  if (const auto status = doppler::config::check_config_layers(*config, 4); !status)
    check_error(status.error());
  return config;
}

void check_canonical(const doppler::config::Config& config) {
  doppler::config::Config again;
  for (const doppler::config::ConfigValue& value : config.values()) {
    if (value.value.is_null()) continue;
    if (!again.set(value.info->path, value.value, "again", false)) std::abort();
    if (again.find(value.info->path)->value != value.value) std::abort();
  }
  if (!config.subtree("runtime.shared.debug").contains("trace")) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const doppler::config::PresetFolders nowhere;
  // Not as a --config that may name a file of the machine.
  doppler::config::ConfigInput as_text{.configs = {"{" + text}, .sets = {}, .flags = {}, .folders = nowhere};
  if (text.starts_with('{')) as_text.configs = {text};
  if (const auto config = resolve(as_text)) check_canonical(*config);

  doppler::config::ConfigInput as_set{.configs = {}, .sets = {text}, .flags = {}, .folders = nowhere};
  if (const auto config = resolve(as_set)) check_canonical(*config);

  // The first byte chooses a flag.
  if (size == 0) return 0;
  std::size_t count = 0;
  for (const doppler::config::SettingInfo& info : doppler::config::all_settings()) {
    if (info.flag.empty() || count++ != data[0]) continue;
    doppler::config::ConfigInput as_flag{.configs = {}, .sets = {}, .flags = {}, .folders = nowhere};
    as_flag.flags.push_back({&info, text.substr(1)});
    if (const auto config = resolve(as_flag)) check_canonical(*config);
  }
  return 0;
}
