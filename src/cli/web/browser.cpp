#include "cli/web/browser.h"

#include <fmt/core.h>

#include <array>
#include <random>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "system/files.h"
#include "system/process.h"

namespace doppler::cli {
namespace {

constexpr auto kBrowserNames = std::to_array<std::string_view>(
    {"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge"});
constexpr const char* kBrowserVariable = "DOPPLER_BROWSER";

constexpr std::string_view kProfileFile = "doppler-profile.json";
constexpr std::uint64_t kMaxProfileFile = 4096;

// What nobody guesses: 128 bits, as 32 digits.
std::string make_secret() {
  std::random_device random;
  std::string digits;
  for (int i = 0; i < 4; ++i) digits += fmt::format("{:08x}", random());
  return digits;
}

bool is_secret(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Error profile_io(const std::filesystem::path& folder, const std::error_code& error) {
  return {ErrorCode::kIo,
          fmt::format("The profile folder {} cannot be made: {}. Name another with --profile.",
                      printable_path(folder), error.message())};
}

Status read_profile(BrowserProfile& profile) {
  const std::filesystem::path file = profile.folder / kProfileFile;
  const auto wrong = [&] {
    return fail(ErrorCode::kCorrupt,
                "The folder {} is no profile of doppler web: its {} is missing or wrong. Name a new or empty "
                "folder with --profile.",
                printable_path(profile.folder), kProfileFile);
  };
  const Result<std::string> text = read_text_file(file, kMaxProfileFile);
  if (!text) return wrong();
  const Result<Json> json = parse_json(*text, "The file " + printable_path(file));
  if (!json || !json->is_object()) return wrong();
  const auto port = json->find("port"), secret = json->find("secret");
  if (port == json->end() || secret == json->end() || !port->is_number_unsigned() || !secret->is_string() ||
      port->get<std::uint64_t>() > UINT16_MAX || !is_secret(secret->get<std::string>()))
    return wrong();
  profile.port = port->get<std::uint16_t>();
  profile.secret = secret->get<std::string>();
  return {};
}

}  // namespace

Result<std::filesystem::path> find_browser(const std::string& named) {
  const std::string name =
      named.empty() ? system::environment_variable(kBrowserVariable).value_or("") : named;
  if (!name.empty()) {
    if (const auto path = system::find_program(name)) return *path;
    return fail(ErrorCode::kNotFound, "The browser {} is no program that can be run. Check {}.",
                printable(name, 200), named.empty() ? kBrowserVariable : "--browser");
  }
  for (const std::string_view known : kBrowserNames) {
    if (const auto path = system::find_program(std::string(known))) return *path;
  }
  return fail(
      ErrorCode::kNotFound,
      "There is no Chromium on the PATH. Install one (on Debian: scripts/install_deps.sh browser), or "
      "name one with --browser or {}.",
      kBrowserVariable);
}

Result<BrowserProfile> open_profile(const std::string& named) {
  BrowserProfile profile;
  profile.folder = typed_path(named);
  if (named.empty()) {
    const std::filesystem::path caches = system::cache_folder();
    if (caches.empty())
      return fail(ErrorCode::kUsage,
                  "There is no folder for caches, because HOME is not set. Give --profile.");
    profile.folder = caches / "doppler" / "web-profile";
  }
  if (const std::error_code error = system::create_folders(profile.folder))
    return std::unexpected(profile_io(profile.folder, error));
  if (!system::exists(profile.folder / kProfileFile) && sorted_entries(profile.folder).empty()) {
    profile.secret = make_secret();
    DOPPLER_TRY(keep_port(profile));
    return profile;
  }
  DOPPLER_TRY(read_profile(profile));
  return profile;
}

Status keep_port(const BrowserProfile& profile) {
  const std::filesystem::path path = profile.folder / kProfileFile;
  const auto file = system::open_private_output(path, /*append=*/false);
  if (!file) return std::unexpected(profile_io(profile.folder, file.error()));
  const std::string text = dump_json(Json{{"port", profile.port}, {"secret", profile.secret}}) + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), *file) == text.size();
  if ((std::fclose(*file) != 0) || !written)
    return std::unexpected(profile_io(profile.folder, std::make_error_code(std::errc::io_error)));
  return {};
}

Result<system::Child> start_browser(const BrowserOptions& options, const BrowserProfile& profile,
                                    const std::string& address) {
  std::vector<std::string> words = {
      options.program.string(), "--headless",
      // Ends the browser when this program has ended, however it did.
      "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--disable-quic", "--disable-extensions",
      // A page in no window is still to be measured.
      "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
      "--user-data-dir=" + profile.folder.string()};
  if (system::is_administrator()) words.emplace_back("--no-sandbox");  // it refuses to start otherwise
  if (options.gpu) {
    words.emplace_back("--enable-unsafe-webgpu");
    words.emplace_back("--enable-features=Vulkan");
    if (options.software) words.emplace_back("--use-webgpu-adapter=swiftshader");
  } else {
    words.emplace_back("--disable-gpu");
  }
  words.insert(words.end(), options.flags.begin(), options.flags.end());
  words.push_back(address);
  auto child = system::Child::start(words);
  if (child) return std::move(*child);
  return fail(ErrorCode::kIo, "The browser {} cannot be started: {}.", printable_path(options.program),
              child.error().message());
}

}  // namespace doppler::cli
