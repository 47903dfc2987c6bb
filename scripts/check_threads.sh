#!/usr/bin/env bash
# The tests of what include/doppler/doppler.h promises about threads, under ThreadSanitizer. They need every room up to
# engine once more, without the GPU (whose driver no sanitizer sees), so this is not a part of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset threads -DDOPPLER_TESTS=ON >/dev/null
cmake --build build/threads --target engine_thread_tests -j "$(nproc)"
TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1" build/threads/tests/engine_thread_tests "$@"
