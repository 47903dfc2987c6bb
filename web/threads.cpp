// What only a module with several threads has: exports for their workers (web/src/threads.js, thread.js), and
// locks around what Debian's libraries for WebAssembly, made for one thread, keep for all: the heap, and the
// first passes through functions' static variables. Of their other shared things threads use none: the counts
// of a std::shared_ptr that others hold, and errno.
#include "system/web/threads.h"

#include <cstdlib>
#include <mutex>

namespace doppler::web {
namespace {

// Kernels hold a few tiles; what needs more has memory of its own.
constexpr std::size_t kStackBytes = std::size_t{1} << 20;

system::web::RawMutex heap;
using HeapLock = std::lock_guard<system::web::RawMutex>;

// One for all such variables, whose making may make others.
class StaticsLock {
 public:
  void lock() {
    const std::uint32_t me = system::web::thread_number() + 1;
    if (owner_.load() != me) mutex_.lock();
    owner_.store(me);
    ++depth_;
  }
  void unlock() {
    if (--depth_ != 0) return;
    owner_.store(0);
    mutex_.unlock();
  }

 private:
  system::web::RawMutex mutex_;
  std::atomic<std::uint32_t> owner_{0};
  std::uint32_t depth_ = 0;
};
StaticsLock statics;

}  // namespace
}  // namespace doppler::web

std::uint32_t& doppler::system::web::thread_number() {
  constinit thread_local std::uint32_t number = 0;
  return number;
}

extern "C" {

using doppler::web::heap;
using doppler::web::HeapLock;

// The linker gives calls of malloc() to the first of each pair (--wrap), and the library's own is the second.
void* __real_malloc(std::size_t bytes);
void* __wrap_malloc(std::size_t bytes) {
  const HeapLock lock(heap);
  return __real_malloc(bytes);
}
void* __real_calloc(std::size_t count, std::size_t bytes);
void* __wrap_calloc(std::size_t count, std::size_t bytes) {
  const HeapLock lock(heap);
  return __real_calloc(count, bytes);
}
void* __real_realloc(void* old, std::size_t bytes);
void* __wrap_realloc(void* old, std::size_t bytes) {
  const HeapLock lock(heap);
  return __real_realloc(old, bytes);
}
void* __real_aligned_alloc(std::size_t alignment, std::size_t bytes);
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  const HeapLock lock(heap);
  return __real_aligned_alloc(alignment, bytes);
}
int __real_posix_memalign(void** made, std::size_t alignment, std::size_t bytes);
int __wrap_posix_memalign(void** made, std::size_t alignment, std::size_t bytes) {
  const HeapLock lock(heap);
  return __real_posix_memalign(made, alignment, bytes);
}
void __real_free(void* old);
void __wrap_free(void* old) {
  const HeapLock lock(heap);
  __real_free(old);
}

// The C++ interface of compilers: the guard's first byte says that the variable is there.
int __cxa_guard_acquire(std::uint64_t* guard) {
  auto& there = *reinterpret_cast<std::atomic<std::uint8_t>*>(guard);
  if (there.load() != 0) return 0;
  doppler::web::statics.lock();
  if (there.load() == 0) return 1;
  doppler::web::statics.unlock();
  return 0;
}
void __cxa_guard_release(std::uint64_t* guard) {
  reinterpret_cast<std::atomic<std::uint8_t>*>(guard)->store(1);
  doppler::web::statics.unlock();
}
void __cxa_guard_abort(std::uint64_t*) {
  doppler::web::statics.unlock();
}

// Room for a thread: its stack, which grows downwards, and behind it, where this points, its thread_local
// variables.
__attribute__((export_name("thread_room"))) std::byte* thread_room() {
  constexpr std::size_t kAlignment = 64;
  const std::size_t variables = (__builtin_wasm_tls_size() + kAlignment - 1) / kAlignment * kAlignment;
  void* const room = std::aligned_alloc(kAlignment, doppler::web::kStackBytes + variables);
  return room == nullptr ? nullptr : static_cast<std::byte*>(room) + doppler::web::kStackBytes;
}

__attribute__((export_name("set_threads"))) void set_threads(std::uint32_t count) {
  doppler::system::web::set_threads(count);
}

__attribute__((export_name("serve_as_thread"))) void serve_as_thread(std::uint32_t number,
                                                                     const std::byte* room) {
  doppler::system::web::serve_as_thread(number, room - doppler::web::kStackBytes);
}

__attribute__((export_name("fail_thread"))) void fail_thread(const char* why, std::size_t length) {
  doppler::system::web::fail_thread(why, length);
}
}
