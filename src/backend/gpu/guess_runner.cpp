#include "backend/gpu/guess_runner.h"

#include <algorithm>
#include <cstring>

namespace doppler::gpu {
namespace {

// One workgroup goes through the text: as many threads as every device has.
constexpr std::uint32_t kTextThreads = 256;
// As Drafter::kLongest.
constexpr std::uint32_t kLongestEnd = 4;
// One check runs while the results of the one before are looked at.
constexpr std::size_t kMostFlights = 2;

}  // namespace

Result<GuessRunner> GuessRunner::create(Context& context, std::uint32_t rows) {
  GuessRunner runner(context, rows);
  Device& device = *context.device;
  DOPPLER_ASSIGN(runner.text_,
                 device.make_buffer("text that guesses come from", (context.options.context + 1) * 4));
  DOPPLER_ASSIGN(runner.result_, device.make_buffer("a check's tokens", (1 + 2 * std::uint64_t{rows}) * 4));
  return runner;
}

Status GuessRunner::prepare(const GuessCheck& check, const GenerateOptions& sampling) {
  const GuessCheck::Way way = check.way_of(rows_, sampling);
  if (next_.contains(way)) return {};
  const bool draws = way != GuessCheck::Way::kLikeliest, at_once = way == GuessCheck::Way::kAtOnce;
  ShaderValues values = {{"THREADS", kTextThreads},
                         {"ROWS", rows_},
                         {"DRAWN", draws},
                         {"AT_ONCE", at_once},
                         {"VOCAB", context_->plan.vocab_size},
                         {"IDS", context_->layout.ids()},
                         {"POSITIONS", context_->layout.positions()},
                         {"LONGEST", kLongestEnd}};
  std::vector<Bound> bound = {{"step", context_->step}, {"text", text_}, {"result", result_}};
  if (!draws) {
    values["CANDIDATES"] = check.likeliest().each();
    bound.push_back({"candidates", check.likeliest().candidates()});
  } else {
    bound.push_back({"drawn", check.drawn()});
  }
  if (at_once) {
    values["STATE_WORDS"] = Sampling::kStateWords;
    bound.push_back({"draws", check.draws()});
  }
  DOPPLER_ASSIGN(auto kernel, context_->kernels.get("guess_tokens.wgsl", values));
  DOPPLER_ASSIGN(next_[way], BoundKernel::create(*context_->device, std::move(kernel), bound));
  return {};
}

// Who winds down and then stops in the middle drops tokens of the check that came before, those that were
// under way, and what the last of these had guessed.
std::size_t GuessRunner::most_flights(const BackendOptions& options, std::size_t rows) {
  const std::size_t checks = ring_reach(options) / rows;
  return std::min(kMostFlights, checks > 2 ? checks - 2 : 0);
}

Status GuessRunner::begin(const Continuation& c, std::uint64_t length, GuessCheck& check) {
  DOPPLER_TRY(check.begin(rows_, c));
  DOPPLER_TRY(context_->device->write(text_, 0, std::as_bytes(c.history)));
  flying_ = {.slot = c.slot,
             .way = check.way_of(rows_, *c.sampling),
             .begin = length,
             .left = c.most,
             .newest = c.id,
             .flights = {}};
  return {};
}

// False where the cache may not have room for another check, wherever those under way leave the text.
Result<bool> GuessRunner::submit(const GuessCheck& check) {
  Flying& f = *flying_;
  const std::uint64_t from = f.begin + f.given, most = (f.flights.size() + 1) * std::uint64_t{rows_};
  if (from + most > context_->options.context) return false;
  DOPPLER_ASSIGN(const std::uint32_t got,
                 context_->reserve_some(f.slot, from, static_cast<std::uint32_t>(most)));
  if (got < most) return false;
  Flight flight;
  DOPPLER_ASSIGN(flight.back, context_->device->take_read_back(spare_, "a check's tokens", result_.bytes()));
  Recorder recorder(*context_->device);
  check.record(recorder, rows_, f.way);
  recorder.dispatch(next_.at(f.way), {1, 1, 1});
  recorder.copy(result_, 0, flight.back, 0, result_.bytes());
  DOPPLER_ASSIGN(flight.submission, recorder.submit());
  f.flights.push_back(std::move(flight));
  return true;
}

Result<std::vector<std::uint32_t>> GuessRunner::receive() {
  Flight flight = std::move(flying_->flights.front());
  flying_->flights.erase(flying_->flights.begin());
  std::vector<std::uint32_t> words(result_.bytes() / 4);
  DOPPLER_TRY(context_->device->read(
      flight.back, result_.bytes(), flight.submission,
      [&](std::span<const std::byte> bytes) { std::memcpy(words.data(), bytes.data(), bytes.size()); }));
  spare_.push_back(std::move(flight.back));
  return words;
}

Result<std::span<const TokenId>> GuessRunner::next_tokens(const GuessCheck& check) {
  Flying& f = *flying_;
  const auto wants_more = [&] { return f.left > f.flights.size() * std::uint64_t{rows_}; };
  bool room = true;
  while (room && f.flights.size() < most_flights(context_->options, rows_) && wants_more()) {
    DOPPLER_ASSIGN(room, submit(check));
  }
  tokens_.clear();
  if (f.flights.empty()) return std::span<const TokenId>(tokens_);
  DOPPLER_ASSIGN(const std::vector<std::uint32_t> words, receive());
  const auto fed = std::span(words).subspan(1, rows_), chosen = std::span(words).subspan(1 + rows_, rows_);
  // What the device took for right in the check before shows here.
  if (words[0] != f.begin + f.given || fed[0] != static_cast<std::uint32_t>(f.newest)) {
    return fail(ErrorCode::kMismatch, "The device went on with other tokens than its check of guesses gave.");
  }
  for (std::size_t row = 0; row < rows_; ++row) {
    const auto id = static_cast<TokenId>(chosen[row]);
    // Logits that are broken are met again by the check that begins with them.
    if (id == kNoToken && row > 0) break;
    tokens_.push_back(id);
    if (row + 1 == rows_ || chosen[row] != fed[row + 1]) break;
  }
  f.given += tokens_.size();
  f.left -= std::min<std::uint64_t>(f.left, tokens_.size());
  f.newest = tokens_.back();
  return std::span<const TokenId>(tokens_);
}

// What is under way is written behind what is kept, in the order of submissions.
Result<TokenRunner::Ended> GuessRunner::end(std::uint64_t length) {
  Flying f = std::move(*flying_);
  flying_.reset();
  Status waited;
  for (Flight& flight : f.flights) {
    if (Status status = context_->device->wait(flight.submission); !status) waited = std::move(status);
    spare_.push_back(std::move(flight.back));
  }
  const std::uint64_t held = f.begin + f.given;
  if (length < f.begin || length > held) {
    return fail(ErrorCode::kUsage, "The slot {} cannot keep {} tokens; it has {} to {}.", f.slot, length,
                f.begin, held);
  }
  DOPPLER_TRY(waited);
  const std::uint64_t checks = std::max<std::uint64_t>(f.flights.size(), 1);
  return TokenRunner::Ended{f.slot, length, held + checks * rows_};
}

}  // namespace doppler::gpu
