#include "cli/web/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/files.h"
#include "base/screen.h"
#include "base/sha256.h"
#include "base/text.h"
#include "cli/web/browser.h"
#include "cli/web/site.h"
#include "hub/url.h"
#include "system/files.h"
#include "system/hash.h"

namespace doppler::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPageCodes =
    std::to_array<std::pair<std::string_view, ErrorCode>>({{"usage", ErrorCode::kUsage},
                                                           {"not_found", ErrorCode::kNotFound},
                                                           {"corrupt", ErrorCode::kCorrupt},
                                                           {"unsupported", ErrorCode::kUnsupported},
                                                           {"mismatch", ErrorCode::kMismatch},
                                                           {"limit", ErrorCode::kLimit},
                                                           {"io", ErrorCode::kIo}});

// The model's files, as the page fetches them: those of a folder, or a file and those of its parts.
Result<std::vector<std::filesystem::path>> files_of_model(const std::filesystem::path& model) {
  std::vector<std::filesystem::path> files;
  if (!system::is_folder(model)) {
    // "name-00001-of-00003.gguf"
    constexpr std::size_t kPart = std::string_view("00001-of-00003.gguf").size();
    const std::string name = model.filename().string();
    const bool parted = name.size() > kPart && name.substr(name.size() - kPart).contains("-of-");
    for (const std::filesystem::path& entry :
         sorted_entries(model.parent_path().empty() ? "." : model.parent_path())) {
      const std::string other = entry.filename().string();
      const bool part =
          parted && other.size() == name.size() && other.starts_with(name.substr(0, name.size() - kPart));
      if (other == name || part) files.push_back(entry);
    }
  } else {
    for (const std::filesystem::path& entry : sorted_entries(model)) {
      if (system::is_file(entry)) files.push_back(entry);
    }
  }
  if (!files.empty()) return files;
  return fail(ErrorCode::kNotFound, "The model {} has no files.", printable_path(model));
}

// By their contents, so that the browser does not take what it has kept of another version for this one.
Result<std::string> name_of_contents(std::span<const std::filesystem::path> files) {
  auto hasher = system::Hasher::create(system::HashKind::kSha256);
  if (!hasher) return fail(ErrorCode::kUnsupported, "This system's cryptographic library has no SHA-256.");
  for (const std::filesystem::path& file : files) {
    const std::string name = file.filename().string();
    hasher->add(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
    if (system::file_size(file) == 0) continue;  // nothing to map
    DOPPLER_ASSIGN(const MappedFile mapped, MappedFile::open(file));
    hasher->add(mapped.bytes());
  }
  constexpr std::size_t kDigits = 16;
  return hex_digits(hasher->finish()).substr(0, kDigits);
}

// Adds the model's files to the site. Its path there.
Result<std::string> add_model_files(Site& site, const std::filesystem::path& model) {
  DOPPLER_ASSIGN(const std::vector<std::filesystem::path> files, files_of_model(model));
  DOPPLER_ASSIGN(const std::string version, name_of_contents(files));
  const std::string folder = fmt::format("model/{}/", version);
  const bool is_folder = system::is_folder(model);
  const std::string name = std::filesystem::path(system::without_links(model)).filename().string();
  for (const std::filesystem::path& file : files)
    site.add_file(folder + (is_folder ? name + "/" : "") + file.filename().string(), file);
  return folder + hub::escape_segment(is_folder ? name : model.filename().string());
}

Result<std::unique_ptr<Site>> open_site(BrowserProfile& profile) {
  auto site = Site::open(profile.port, profile.secret);
  if (!site && profile.port != 0 && site.error().code == ErrorCode::kIo) {
    say(Said::kWarning,
        "The port {}, at which the profile has kept its models, is taken by another program: they are not "
        "found in this run.",
        profile.port);
    return Site::open(0, profile.secret);
  }
  if (site && profile.port == 0) {
    profile.port = (*site)->port();
    DOPPLER_TRY(keep_port(profile));
  }
  return site;
}

Error page_error(const Json& error) {
  const std::string code = error.value("code", "internal"), message = error.value("message", "");
  const auto* const known =
      std::ranges::find(kPageCodes, code, &std::pair<std::string_view, ErrorCode>::first);
  return {known == kPageCodes.end() ? ErrorCode::kInternal : known->second,
          fmt::format("In the browser: {}", printable(message, 2000))};
}

// Whatever the page posts but its result.
void tell_report(const Json& report, ProgressBar& bar) {
  if (const auto progress = report.find("progress"); progress != report.end() && progress->is_array() &&
                                                     progress->size() == 2 && (*progress)[0].is_number() &&
                                                     (*progress)[1].is_string())
    bar.update((*progress)[0].get<double>(), printable((*progress)[1].get<std::string>()));
  const auto said = report.find("said");
  if (said == report.end() || !said->is_array()) return;
  for (const Json& line : *said) {
    if (line.is_string()) say(Said::kAsked, printable(line.get<std::string>(), SIZE_MAX));
  }
}

Result<Json> hear(Site& site, system::Child& browser, double seconds, const CancelToken& cancel) {
  constexpr system::Patience kOften{100};
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  ProgressBar bar;
  while (!cancel.cancelled()) {
    const std::optional<std::string> text = site.take(kOften);
    if (text) {
      DOPPLER_ASSIGN(const Json report, parse_json(*text, "What the page reports"));
      if (!report.is_object()) continue;
      if (const auto error = report.find("error"); error != report.end() && error->is_object())
        return std::unexpected(page_error(*error));
      if (const auto result = report.find("result"); result != report.end()) return *result;
      tell_report(report, bar);
      continue;
    }
    if (const auto status = browser.ended()) {
      return fail(ErrorCode::kIo,
                  "The browser has ended with status {} before it came to a result. Another may be running "
                  "with the same profile: "
                  "end it, or name another with --profile.",
                  *status);
    }
    if (Clock::now() > until)
      return fail(ErrorCode::kLimit,
                  "The browser has come to no result in {:.0f} s. Give it longer with --timeout.", seconds);
  }
  return fail(ErrorCode::kIo, "The run was stopped.");
}

}  // namespace

void add_web_flags(Command& command, WebFlags& flags) {
  constexpr const char* kGroup = "Browser";
  command.add_option("--web", flags.folder, "the folder that make web has made").show_default().group(kGroup);
  command
      .add_option("--browser", flags.browser,
                  "the Chromium to run; else DOPPLER_BROWSER, else one on the PATH")
      .group(kGroup);
  command
      .add_option("--profile", flags.profile,
                  "the folder with what the browser keeps from run to run; else one in the user's caches")
      .group(kGroup);
  command.add_option("--browser-flag", flags.browser_flags, "a flag of the browser's own; may be repeated")
      .one_value_each()
      .group(kGroup);
  command.add_flag("--software", flags.software, "with --backend gpu: the browser's software GPU")
      .group(kGroup);
  command.add_option("--timeout", flags.timeout, "seconds until a browser that comes to no end is ended")
      .show_default()
      .not_negative()
      .group(kGroup);
}

Result<Json> run_in_browser(const WebFlags& flags, const WebTask& task, const CancelToken& cancel) {
  const std::filesystem::path folder = typed_path(flags.folder);
  if (!system::is_file(folder / "index.js")) {
    return fail(ErrorCode::kNotFound,
                "The folder {} has no index.js. Run make web, or name what it has made with --web.",
                printable_path(folder));
  }
  BrowserOptions options{.gpu = task.gpu, .software = flags.software, .flags = flags.browser_flags};
  DOPPLER_ASSIGN(options.program, find_browser(flags.browser));
  DOPPLER_ASSIGN(BrowserProfile profile, open_profile(flags.profile));
  DOPPLER_ASSIGN(const std::unique_ptr<Site> site, open_site(profile));
  for (const HarnessFile& file : harness_files())
    site->add_text(std::string(file.name), std::string(file.text));
  DOPPLER_TRY(site->add_folder("web/", folder));
  DOPPLER_ASSIGN(const std::string model, add_model_files(*site, task.model));
  const Json sent = {{"model", site->address() + model}, {"load", task.load},
                     {"options", task.options},          {"watch", task.watch},
                     {"prompts", task.prompts},          {"runs", task.runs}};
  site->add_text("task.json", dump_json(sent));
  DOPPLER_TRY(site->serve());
  DOPPLER_ASSIGN(system::Child browser, start_browser(options, profile, site->address() + "harness.html"));
  return hear(*site, browser, flags.timeout, cancel);
}

}  // namespace doppler::cli
