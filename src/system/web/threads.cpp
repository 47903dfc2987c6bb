#include "system/threads.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "system/web/imports.h"
#include "system/web/threads.h"

namespace doppler::system {
namespace web {
namespace {

using ThreadSet = std::uint32_t;

// A thread that waits, waits for its bell. Whoever changes what it may wait for rings it afterwards, so that
// one look at the condition between two looks at the bell misses nothing.
struct Place {
  std::atomic<std::uint32_t> bell{0};
  std::atomic<std::uint32_t> given{0}, done{0};  // bodies so far
  std::atomic<ThreadSet> joins{0};               // who waits for its end
  std::function<void()> body;
};

struct Wish {
  void (*call)(void*);
  void* with;
  std::uint32_t from;
  Wish* next;
  std::atomic<bool> done{false};
};

std::array<Place, kMostThreads> places;
std::atomic<std::uint32_t> threads{1};
std::atomic<Wish*> wishes{nullptr};
std::atomic<bool> failed{false};
std::array<char, 1000> failure{};
std::size_t failure_size = 0;

ThreadSet only(std::uint32_t thread) {
  return ThreadSet{1} << thread;
}

void ring(std::uint32_t thread) {
  std::atomic<std::uint32_t>& bell = places[thread].bell;
  bell.fetch_add(1);
  __builtin_wasm_memory_atomic_notify(reinterpret_cast<int*>(&bell), 1);
}

void ring_all(ThreadSet set) {
  for (; set != 0; set &= set - 1) ring(static_cast<std::uint32_t>(std::countr_zero(set)));
}

void grant_wishes() {
  for (Wish* wish = wishes.exchange(nullptr); wish != nullptr;) {
    Wish& granted = *std::exchange(wish, wish->next);  // gone as soon as it is done
    const std::uint32_t from = granted.from;
    granted.call(granted.with);
    granted.done.store(true);
    ring(from);
  }
}

// Until `holds()`, or for at most so many nanoseconds; negative: however long it takes.
template <typename F>
void wait_until(const F& holds, std::int64_t most = -1) {
  const std::uint32_t number = thread_number();
  std::atomic<std::uint32_t>& bell = places[number].bell;
  for (;;) {
    const std::uint32_t heard = bell.load();
    if (number == 0) {
      if (failed.load()) thread_stopped(failure.data(), failure_size);  // does not return
      grant_wishes();
    }
    if (holds()) return;
    constexpr int kTimedOut = 2;
    if (__builtin_wasm_memory_atomic_wait32(reinterpret_cast<int*>(&bell), static_cast<int>(heard), most) ==
        kTimedOut)
      return;
  }
}

// A stack that runs over meets no trap, but what lies at its end.
constexpr std::uint64_t kStackEnd = 0x0dd5'7ac4'e4d5'0bad;
void check_stack(const std::byte* end) {
  if (std::memcmp(end, &kStackEnd, sizeof(kStackEnd)) != 0) __builtin_trap();
}

}  // namespace

__attribute__((weak)) std::uint32_t& thread_number() {
  static constinit std::uint32_t number = 0;
  return number;
}

void set_threads(std::uint32_t count) {
  threads.store(std::clamp<std::uint32_t>(count, 1, kMostThreads));
}

void serve_as_thread(std::uint32_t mine, const std::byte* stack_end) {
  thread_number() = mine;
  std::memcpy(const_cast<std::byte*>(stack_end), &kStackEnd, sizeof(kStackEnd));
  Place& place = places[mine];
  for (;;) {
    wait_until([&] { return place.given.load() != place.done.load(); });
    place.body();
    place.body = nullptr;
    check_stack(stack_end);
    place.done.fetch_add(1);
    ring_all(place.joins.exchange(0));
  }
}

void fail_thread(const char* why, std::size_t length) {
  if (failed.load()) return;
  failure_size = std::min(length, failure.size());
  std::memcpy(failure.data(), why, failure_size);
  failed.store(true);
  ring(0);
}

void call_on_first_thread(void (*call)(void*), void* with) {
  Wish wish{call, with, thread_number(), wishes.load()};
  while (!wishes.compare_exchange_weak(wish.next, &wish)) {
  }
  ring(0);
  wait_until([&] { return wish.done.load(); });
}

void RawMutex::lock() {
  if (held_.exchange(1) == 0) return;
  const ThreadSet mine = only(thread_number());
  waiting_.fetch_or(mine);
  wait_until([&] { return held_.exchange(1) == 0; });
  waiting_.fetch_and(~mine);
}

void RawMutex::unlock() {
  held_.store(0);
  ring_all(waiting_.load());
}

}  // namespace web

struct Mutex::Inner {
  web::RawMutex mutex;
};
Mutex::Mutex() : inner_(std::make_unique<Inner>()) {}
Mutex::~Mutex() = default;
void Mutex::lock() {
  inner_->mutex.lock();
}
void Mutex::unlock() {
  inner_->mutex.unlock();
}

struct Condition::Inner {
  std::atomic<web::ThreadSet> waiting{0};

  void wait(Mutex& held, std::int64_t most) {
    if (web::threads.load() == 1) return;  // nobody would notify it
    const web::ThreadSet mine = web::only(web::thread_number());
    waiting.fetch_or(mine);
    held.unlock();
    web::wait_until([&] { return (waiting.load() & mine) == 0; }, most);
    waiting.fetch_and(~mine);
    held.lock();
  }
};
Condition::Condition() : inner_(std::make_unique<Inner>()) {}
Condition::~Condition() = default;
void Condition::wait(Mutex& held) {
  inner_->wait(held, -1);
}
void Condition::wait_for(Mutex& held, std::chrono::milliseconds most) {
  inner_->wait(held, std::chrono::nanoseconds(most).count());
}
void Condition::notify_all() {
  web::ring_all(inner_->waiting.exchange(0));
}

struct Thread::Inner {
  web::Place& place;
  std::uint32_t body;

  bool ended() const { return place.done.load() - body < UINT32_MAX / 2; }
};
Thread::Thread(std::unique_ptr<Inner> inner) : inner_(std::move(inner)) {}
Thread::Thread(Thread&&) noexcept = default;
Thread::~Thread() {
  if (!inner_) return;
  web::wait_until([&] {
    inner_->place.joins.fetch_or(web::only(web::thread_number()));
    return inner_->ended();
  });
}

// Only the first thread starts others.
std::optional<Thread> Thread::start(std::function<void()> body) {
  for (std::uint32_t thread = 1; thread < web::threads.load(); ++thread) {
    web::Place& place = web::places[thread];
    if (place.given.load() != place.done.load()) continue;
    place.body = std::move(body);
    const std::uint32_t given = place.given.fetch_add(1) + 1;
    web::ring(thread);
    return Thread(std::make_unique<Inner>(Inner{place, given}));
  }
  return std::nullopt;
}

std::uintptr_t this_thread() {
  return web::thread_number() + 1;
}

int looks_before_sleep() {
  return 50'000;  // WebAssembly has no instruction that pauses
}

double thread_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ProcessorShare processor_share() {
  std::array<char, 500> why;
  const std::size_t size = web::thread_reason(why.data(), why.size());
  return {web::threads.load(), std::string(why.data(), std::min(size, why.size()))};
}

}  // namespace doppler::system
