#include "hub/download.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <memory>

#include "base/text.h"
#include "hub/part_file.h"
#include "hub/url.h"

namespace doppler::hub {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes after which a connection that breaks has made progress, and its failures are counted from none again.
constexpr std::uint64_t kProgress = 64 << 10;

// "bytes 5-9/100": begin, end (exclusive) and the whole, which may be "*".
struct ContentRange {
  std::uint64_t begin = 0, end = 0;
  std::optional<std::uint64_t> whole;
};
std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  const char* at = text.data() + 6;
  const char* const end = text.data() + text.size();
  const auto number = [&](char after, std::uint64_t& value) {
    const auto parsed = std::from_chars(at, end, value);
    if (parsed.ec != std::errc() || (after != '\0' && (parsed.ptr == end || *parsed.ptr != after)))
      return false;
    at = parsed.ptr + (after == '\0' ? 0 : 1);
    return true;
  };
  ContentRange range;
  std::uint64_t last = 0, whole = 0;
  if (!number('-', range.begin) || !number('/', last) || last < range.begin || last == UINT64_MAX)
    return std::nullopt;
  range.end = last + 1;
  if (std::string_view(at, static_cast<std::size_t>(end - at)) == "*") return range;
  if (!number('\0', whole) || at != end) return std::nullopt;
  range.whole = whole;
  return range;
}

// A stretch of a file, fetched by one request after the other until it is whole.
class Piece : public HttpReceiver {
 public:
  enum class State : std::uint8_t { kIdle, kRunning, kEnded, kWhole };

  Piece(const DownloadItem& item, std::uint64_t begin, std::uint64_t end, bool streamed)
      : url(item.url), item_(item), begin_(begin), end_(end), streamed_(streamed) {}

  std::uint64_t position() const { return begin_ + taken_ + buffer_.size(); }
  bool is_full() const { return position() == end_; }
  bool streamed() const { return streamed_; }
  std::uint64_t arrived() const { return arrived_; }
  // How much further the last request has brought it; bytes that were passed over do not count.
  std::uint64_t gained() const { return position() - started_at_; }
  const HttpAnswer& answer() const { return answer_; }
  HttpEnd end() const { return how_; }
  const std::string& reason() const { return reason_; }
  const std::string& lie() const { return lie_; }
  bool has_no_ranges() const { return has_no_ranges_; }
  std::size_t buffered() const { return buffer_.size(); }

  void begin(Http& http, const std::string& token) {
    HttpRequest request{.url = url, .token = token};
    if (!streamed_) request.range = ByteRange{position(), end_};
    started_at_ = position();
    skip_ = streamed_ ? position() : 0;
    arrived_ = 0;
    answered_ = false;
    lie_.clear();
    state = State::kRunning;
    id = http.start(request, *this);
  }

  // Moves what has come to the file.
  Status drain(PartFile& part) {
    DOPPLER_TRY(part.append(std::as_bytes(std::span(buffer_))));
    taken_ += buffer_.size();
    buffer_.clear();
    return {};
  }

  bool on_bytes(const HttpAnswer& answer, std::span<const std::byte> bytes) override {
    if (answer.status != 200 && answer.status != 206) return false;  // its body does not matter
    if (!answered_ && !accept(answer)) return false;
    answered_ = true;
    arrived_ += bytes.size();
    const std::uint64_t skipped = std::min<std::uint64_t>(skip_, bytes.size());
    skip_ -= skipped;
    bytes = bytes.subspan(skipped);
    if (bytes.size() > end_ - position()) {
      lie_ = "sends more bytes than there are";
      return false;
    }
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  }

  void on_end(const HttpAnswer& answer, HttpEnd how, const std::string& reason) override {
    answer_ = answer;
    how_ = how;
    reason_ = reason;
    state = State::kEnded;
  }

  State state = State::kIdle;
  std::string url;
  Http::Id id = 0;
  std::uint32_t failures = 0;
  int hops = 0;
  Clock::time_point not_before;

 private:
  // Whether what is about to come is what was asked for.
  bool accept(const HttpAnswer& answer) {
    const std::uint64_t size = *item_.file.size;
    if (answer.status == 206) {
      const auto range = parse_content_range(answer.header("content-range"));
      if (streamed_ || !range || range->begin != position() || range->end > end_ ||
          range->whole.value_or(size) != size)
        lie_ = fmt::format("answers with the range \"{}\"", printable(answer.header("content-range"), 60));
      return lie_.empty();
    }
    if (position() != 0 || end_ != size) {
      has_no_ranges_ = !streamed_;
      if (has_no_ranges_) return false;
    }
    const std::string_view length = answer.header("content-length");
    if (!length.empty() && length != std::to_string(size))
      lie_ = fmt::format("says that it holds {} bytes", printable(length, 30));
    return lie_.empty();
  }

  const DownloadItem& item_;
  const std::uint64_t begin_, end_;
  const bool streamed_;  // the whole file in one answer, without a range
  std::uint64_t taken_ = 0, skip_ = 0, arrived_ = 0, started_at_ = 0;
  std::string buffer_;
  bool answered_ = false, has_no_ranges_ = false;
  std::string lie_;
  HttpAnswer answer_;
  HttpEnd how_ = HttpEnd::kOther;
  std::string reason_;
};

// A file on its way.
struct Job {
  const DownloadItem* item = nullptr;
  std::optional<PartFile> part;  // once it has begun
  std::deque<std::unique_ptr<Piece>> pieces;
  std::uint64_t next = 0;  // where the next piece begins
  std::string direct;      // where redirects have led
  bool streamed = false, done = false;
  int restarts = 0;

  std::uint64_t size() const { return *item->file.size; }
};

class Downloader {
 public:
  Downloader(Http& http, const Places& places, const ModelName& name, const CachedRepo& repo,
             std::span<const DownloadItem> items, const DownloadOptions& options)
      : http_(http), places_(places), name_(name), repo_(repo), options_(options) {
    for (const DownloadItem& item : items) {
      jobs_.emplace_back();
      jobs_.back().item = &item;
      progress_.total += jobs_.back().size();
    }
  }

  ~Downloader() { stop_all(); }
  Downloader(const Downloader&) = delete;
  Downloader& operator=(const Downloader&) = delete;

  Status run() {
    const Status status = loop();
    stop_all();
    // Whatever went wrong: what came in order is worth keeping.
    for (Job& job : jobs_) {
      if (job.part && !job.pieces.empty()) (void)job.pieces.front()->drain(*job.part);
    }
    return status;
  }

 private:
  Status loop() {
    while (std::ranges::any_of(jobs_, [](const Job& job) { return !job.done; })) {
      if (options_.cancelled()) return std::unexpected(cancelled_error());
      DOPPLER_TRY(fill());
      http_.step(pause());
      for (Job& job : jobs_) DOPPLER_TRY(advance(job));
      report("");
    }
    return {};
  }

  // How long there may be nothing to do: until a piece may be tried again, and no longer than Ctrl-C may
  // wait.
  std::uint32_t pause() const {
    constexpr std::int64_t kLongest = 100;
    std::int64_t wait = kLongest;
    if (count(Piece::State::kRunning) >= options_.connections) return kLongest;
    for (const Job& job : jobs_) {
      if (job.part && job.part->size() == job.size()) wait = 0;  // only its end is left
      for (const auto& piece : job.pieces) {
        if (piece->state != Piece::State::kIdle) continue;
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(piece->not_before - Clock::now());
        wait = std::clamp<std::int64_t>(left.count() + 1, 0, wait);
      }
    }
    return static_cast<std::uint32_t>(wait);
  }

  void stop_all() {
    for (Job& job : jobs_) stop(job);
  }
  void stop(Job& job) {
    for (const auto& piece : job.pieces) {
      if (piece->state == Piece::State::kRunning) {
        http_.stop(piece->id);
        piece->state = Piece::State::kIdle;
      }
    }
  }

  std::size_t count(Piece::State state) const {
    std::size_t sum = 0;
    for (const Job& job : jobs_)
      sum += static_cast<std::size_t>(
          std::ranges::count_if(job.pieces, [&](const auto& p) { return p->state == state; }));
    return sum;
  }
  std::size_t pieces_in_all() const {
    std::size_t sum = 0;
    for (const Job& job : jobs_) sum += job.pieces.size();
    return sum;
  }

  // Keeps all connections busy: pieces that wait for another try first, then new ones, files in their order.
  Status fill() {
    const Clock::time_point now = Clock::now();
    std::size_t running = count(Piece::State::kRunning);
    for (Job& job : jobs_) {
      for (const auto& piece : job.pieces) {
        if (piece->state != Piece::State::kIdle || piece->not_before > now || running >= options_.connections)
          continue;
        start(job, *piece);
        ++running;
      }
    }
    for (Job& job : jobs_) {
      while (running < options_.connections && pieces_in_all() < 2 * std::size_t{options_.connections}) {
        if (job.done || (job.part && (job.next >= job.size() || (job.streamed && !job.pieces.empty()))))
          break;
        if (!job.part) DOPPLER_TRY(begin(job));
        if (job.done || job.next >= job.size()) break;
        const std::uint64_t end =
            job.streamed ? job.size() : job.next + std::min(options_.piece_bytes, job.size() - job.next);
        job.pieces.push_back(std::make_unique<Piece>(*job.item, job.next, end, job.streamed));
        job.next = end;
        start(job, *job.pieces.back());
        ++running;
      }
    }
    return {};
  }

  Status begin(Job& job) {
    const RepoFile& file = job.item->file;
    if (system::file_size(repo_.blob(file.hash)) == file.size) {
      job.done = true;
      ++progress_.files;
      return {};
    }
    auto part = PartFile::open(
        repo_, file,
        [&](std::uint64_t bytes) {
          reading_ = bytes;
          report("reading what is here");
        },
        options_.cancelled);
    reading_ = 0;
    if (!part) return std::unexpected(std::move(part).error());
    job.part.emplace(std::move(*part));
    job.next = job.part->size();
    return {};
  }

  void start(Job& job, Piece& piece) {
    if (piece.hops == 0) piece.url = job.direct.empty() ? job.item->url : job.direct;
    piece.begin(http_, token_for(places_, piece.url));
  }

  // Takes what has come, in order, and looks after what ended.
  Status advance(Job& job) {
    for (std::size_t i = 0; i < job.pieces.size(); ++i) {
      if (job.pieces[i]->state != Piece::State::kEnded) continue;
      received_ += job.pieces[i]->arrived();
      DOPPLER_ASSIGN(const bool same, settle(job, *job.pieces[i]));
      if (!same) break;  // the pieces are others now
    }
    while (job.part && !job.pieces.empty()) {
      DOPPLER_TRY(job.pieces.front()->drain(*job.part));
      if (job.pieces.front()->state != Piece::State::kWhole) break;
      job.pieces.pop_front();
    }
    if (job.part && !job.done && job.pieces.empty() && job.part->size() == job.size()) return finish(job);
    return {};
  }

  // What the end of a piece's request means. False if the job's pieces were thrown away.
  Result<bool> settle(Job& job, Piece& piece) {
    const long status = piece.answer().status;
    DOPPLER_TRY(check_hash(job, piece));
    if (piece.has_no_ranges()) {
      DOPPLER_TRY(stream(job));
      return false;
    }
    if (is_redirect(status)) {
      DOPPLER_TRY(redirect(job, piece));
      return true;
    }
    const bool good = (status == 200 || status == 206) && piece.lie().empty();
    if (good && piece.url != job.item->url) job.direct = piece.url;
    if (good && piece.is_full()) {
      piece.state = Piece::State::kWhole;
      return true;
    }
    if (status == 416 && job.restarts == 0) {
      DOPPLER_TRY(start_over(job, "The server does not know the part that is here"));
      return false;
    }
    DOPPLER_TRY(try_again(job, piece, good));
    return true;
  }

  // What the Hub itself says of the file on the way must be what its list said.
  Status check_hash(const Job& job, const Piece& piece) {
    const std::string named = hash_in_tag(piece.answer().header("x-linked-etag"));
    if (named.empty() || named == job.item->file.hash) return {};
    return fail(ErrorCode::kCorrupt,
                "The file {} has changed while it was downloaded. Run the same command again.", subject(job));
  }

  std::string subject(const Job& job) const {
    return fmt::format("{} of {}", printable(job.item->file.path), name_.repo);
  }

  Status redirect(Job& job, Piece& piece) {
    const auto next = follow(piece.url, piece.answer().header("location"));
    if (!next || ++piece.hops > kMostRedirects) {
      return fail(ErrorCode::kCorrupt, "The file {} is redirected {}. Check HF_ENDPOINT.", subject(job),
                  next ? "again and again" : "to no address");
    }
    if (piece.url.starts_with("https:") && !next->starts_with("https:")) {
      return fail(ErrorCode::kCorrupt,
                  "The file {} is redirected from https to http, which is not safe. Check HF_ENDPOINT.",
                  subject(job));
    }
    piece.url = *next;
    piece.begin(http_, token_for(places_, piece.url));
    return {};
  }

  Status try_again(Job& job, Piece& piece, bool good) {
    const long status = piece.answer().status;
    // A signed address that redirects led to has run out: the Hub gives a new one.
    const bool expired =
        (status == 401 || status == 403 || status == 404 || status == 410) && piece.url != job.item->url;
    const bool hopeful =
        good || expired || !piece.lie().empty() || may_come_right(piece.answer(), piece.end());
    const bool progress = piece.lie().empty() && piece.gained() >= kProgress;
    piece.failures = progress ? 1 : piece.failures + 1;
    const std::uint64_t wait = std::max<std::uint64_t>(wait_before(options_.patience, piece.failures - 1),
                                                       asked_wait_ms(piece.answer()));
    if (!hopeful || piece.failures >= options_.patience.attempts ||
        wait > options_.patience.longest_wait_ms) {
      if (!piece.lie().empty() || (good && piece.end() == HttpEnd::kWhole)) {
        return fail(ErrorCode::kCorrupt,
                    "The file {} has {} bytes, but the server {}. Try again later, or check HF_ENDPOINT.",
                    subject(job), job.size(), piece.lie().empty() ? "sends fewer" : piece.lie());
      }
      if (expired) {
        return fail(
            ErrorCode::kIo,
            "The server that delivers the file {} for the Hub refuses it with status {}. Try again later.",
            subject(job), status);
      }
      return std::unexpected(
          explain(places_, name_, "The file " + subject(job), piece.answer(), piece.end(), piece.reason()));
    }
    job.direct.clear();
    piece.hops = 0;
    piece.state = Piece::State::kIdle;
    piece.not_before = Clock::now() + std::chrono::milliseconds(wait);
    return {};
  }

  // A server without ranges sends a file from its beginning each time; what is there already is passed over.
  Status stream(Job& job) {
    stop(job);
    if (!job.pieces.empty()) DOPPLER_TRY(job.pieces.front()->drain(*job.part));
    job.pieces.clear();
    job.streamed = true;
    job.next = job.part->size();
    return {};
  }

  Status start_over(Job& job, std::string_view why) {
    options_.on_note(fmt::format("{}: {} is fetched from its beginning.", why, subject(job)));
    stop(job);
    job.pieces.clear();
    job.next = 0;
    ++job.restarts;
    return job.part->start_over();
  }

  Status finish(Job& job) {
    DOPPLER_ASSIGN(const bool right, job.part->finish());
    if (!right) {
      if (job.restarts == 0)
        return start_over(job, "What has come does not have the hash that the Hub names");
      return fail(ErrorCode::kCorrupt,
                  "The file {} does not have the hash that the Hub names, again, so it is thrown away. Try "
                  "again later, or check "
                  "HF_ENDPOINT and proxies.",
                  subject(job));
    }
    job.part.reset();
    job.done = true;
    ++progress_.files;
    return {};
  }

  void report(std::string_view doing) {
    progress_.bytes = reading_;
    progress_.received = received_;
    for (const Job& job : jobs_) {
      if (job.done) progress_.bytes += job.size();
      if (job.part) progress_.bytes += job.part->size();
      for (const auto& piece : job.pieces) {
        progress_.bytes += piece->buffered();
        if (piece->state == Piece::State::kRunning) progress_.received += piece->arrived();
      }
    }
    progress_.doing = doing;
    options_.on_progress(progress_);
  }

  Http& http_;
  const Places& places_;
  const ModelName& name_;
  const CachedRepo& repo_;
  const DownloadOptions& options_;
  std::deque<Job> jobs_;  // in place: pieces and receivers point into it
  DownloadProgress progress_;
  std::uint64_t received_ = 0, reading_ = 0;
};

}  // namespace

Status download(Http& http, const Places& places, const ModelName& name, const CachedRepo& repo,
                std::span<const DownloadItem> items, const DownloadOptions& options) {
  DOPPLER_TRY(repo.prepare());
  Downloader downloader(http, places, name, repo, items, options);
  return downloader.run();
}

}  // namespace doppler::hub
