// docs/config.md has a row for each setting, made of the table.
#include <fmt/format.h>

#include "config/setting.h"
#include "config/value.h"
#include "testing.h"

namespace doppler::config {
namespace {

// A pipe would end a cell.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char c : text) safe += c == '|' ? std::string("\\|") : std::string(1, c);
  return safe;
}

std::string row(const SettingInfo& info) {
  const std::string fallback = info.fallback == "null" ? "" : fmt::format("`{}`", info.fallback);
  const std::string flag = info.flag.empty() ? "" : fmt::format("`{}`", info.flag);
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", info.path, flag, fallback, describe_type(info),
                     cell(info.meaning));
}

TEST(Documentation, HasTheTableOfAllSettings) {
  std::string table = "| setting | flag | default | is | meaning |\n|---|---|---|---|---|\n";
  for (const SettingInfo& info : all_settings()) table += row(info);
  const std::string page = testing::read_file(testing::source_path("docs/config.md"));
  EXPECT_NE(page.find("\n\n" + table + "\n"), std::string::npos)
      << "docs/config.md has another table of settings than config/setting.cpp. It should be:\n\n"
      << table;
}

}  // namespace
}  // namespace doppler::config
