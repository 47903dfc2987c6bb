#include "cli/models.h"

#include <fmt/core.h>

#include <chrono>
#include <deque>

#include "base/log.h"
#include "base/screen.h"
#include "base/text.h"
#include "model/family.h"
#include "system/terminal.h"

namespace doppler::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string human_time(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// The download's progress: a bar on a terminal, a line for every tenth elsewhere.
class DownloadView {
 public:
  void update(const hub::DownloadProgress& progress) {
    constexpr auto kOften = std::chrono::milliseconds(100);  // smooth for eyes, and no work
    const Clock::time_point now = Clock::now();
    const bool whole = progress.bytes == progress.total;
    if (!whole && now - shown_ < kOften) return;
    shown_ = now;
    const double share =
        progress.total == 0 ? 1 : static_cast<double>(progress.bytes) / static_cast<double>(progress.total);
    if (terminal_) {
      bar_.update(share, text(progress, now));
      return;
    }
    const int tenth = static_cast<int>(share * 10);
    if (tenth == tenth_ || !progress.doing.empty()) return;
    if (tenth_ >= 0) say(Said::kNote, "{:3} % {}", tenth * 10, text(progress, now));
    tenth_ = tenth;
  }

 private:
  // "1.2 GB of 2.9 GB, 35.1 MB/s, 0:48 left": what fits beside the bar in 80 columns.
  std::string text(const hub::DownloadProgress& progress, Clock::time_point now) {
    const std::string size =
        fmt::format("{} of {}", human_bytes(progress.bytes), human_bytes(progress.total));
    if (!progress.doing.empty()) return size + ", " + progress.doing;
    // The speed of the last seconds: long enough to be calm, short enough to see a change.
    constexpr auto kWindow = std::chrono::seconds(5);
    samples_.emplace_back(now, progress.received);
    while (samples_.size() > 2 && now - samples_.front().first > kWindow) samples_.pop_front();
    const double seconds = std::chrono::duration<double>(now - samples_.front().first).count();
    const double speed =
        seconds > 0 ? static_cast<double>(progress.received - samples_.front().second) / seconds : 0;
    if (speed < 1) return size;
    const double left = static_cast<double>(progress.total - progress.bytes) / speed;
    constexpr double kLongest = 360'000;  // a hundred hours: beyond that nobody is waiting
    return fmt::format("{}, {}/s{}", size, human_bytes(static_cast<std::uint64_t>(speed)),
                       left < kLongest ? fmt::format(", {} left", human_time(left)) : "");
  }

  const bool terminal_ = system::is_terminal(system::Stream::kError);
  ProgressBar bar_;
  Clock::time_point shown_;
  int tenth_ = -1;
  std::deque<std::pair<Clock::time_point, std::uint64_t>> samples_;
};

// A model of a kind that no family runs is refused before a hundred gigabytes of it are fetched.
Status check_family(const hub::PullPlan& plan, bool force) {
  const std::string& type = plan.info.model_type;
  if (type.empty() || force) return {};
  for (const FamilyRule* const family : all_families()) {
    if (family->gguf.architecture == type) return {};
    for (const std::string_view known : family->model_types) {
      if (known == type) return {};
    }
  }
  return fail(
      ErrorCode::kUnsupported,
      "The model {} is of the kind {}, which Doppler does not run. Choose a model of another family, or "
      "get its files all the same with doppler pull --force.",
      plan.info.repo, printable(type));
}

// Makes a path of one.
Result<int> resolve_model(std::string& text) {
  const auto take = [&](const hub::FoundModel& found) {
    if (!found.said.empty()) say(Said::kNote, found.said);
    text = found.path.string();
    return kDone;
  };
  // What is here needs nothing of the Hub, whose variables and token may be wrong.
  DOPPLER_ASSIGN(const std::optional<hub::FoundModel> path, hub::resolve_path(text));
  if (path) return take(*path);
  DOPPLER_ASSIGN(const hub::Places places, hub::find_places());
  DOPPLER_ASSIGN(const std::optional<hub::FoundModel> here, hub::resolve_here(places, text));
  if (here) return take(*here);
  DOPPLER_ASSIGN(const hub::ModelName name, hub::parse_name(text));
  const CancelToken cancel;
  const InterruptGuard guard(cancel);
  const Result<hub::Pulled> pulled = pull_with_bar(places, name, {}, cancel);
  if (!pulled && cancel.cancelled()) {
    say(Said::kNote, pulled.error().message);
    return guard.status(kNotPossible);
  }
  if (!pulled) return std::unexpected(pulled.error());
  text = pulled->model.path.string();
  return kDone;
}

}  // namespace

Option add_model(Command& command, SettingFlags& given, const std::string& name, std::string& to,
                 const std::string& what) {
  given.models.push_back(&to);
  return command.add_option(name, to, what);
}

Result<int> resolve_models(const SettingFlags& given) {
  for (std::string* const model : given.models) {
    if (model->empty()) continue;
    DOPPLER_ASSIGN(const int status, resolve_model(*model));
    if (status != kDone) return status;
  }
  return kDone;
}

Result<hub::Pulled> pull_with_bar(const hub::Places& places, const hub::ModelName& name,
                                  hub::PullOptions options, const CancelToken& cancel) {
  DownloadView view;
  options.download.cancelled = [&] { return cancel.cancelled(); };
  options.download.on_progress = [&](const hub::DownloadProgress& progress) { view.update(progress); };
  options.download.on_note = [](const std::string& note) { log(Level::kWarn, "Hub", note); };
  if (!options.plan_only) {
    options.on_plan = [&](const hub::PullPlan& plan) -> Status {
      std::string text = hub::describe(plan);
      text.pop_back();  // say() ends lines itself
      say(Said::kNote, text);
      return check_family(plan, options.force);
    };
  }
  return hub::pull(places, name, options);
}

}  // namespace doppler::cli
