// What Debian's compiler library for WebAssembly (128-bit division) expects of the C library, whose Debian
// version lacks it.
#include <cstdint>

extern "C" {

extern const std::uintptr_t __stack_chk_guard = 0x5a1b00ff;  // a zero byte, so that no copied text matches it

[[noreturn]] void __stack_chk_fail() {
  __builtin_trap();
}
}
