#!/usr/bin/env bash
# Puts npm's module webgpu, which holds the compiler of kernels that Chromium has (Dawn's), of the version and hash below, into
# .deps/dawn: for one test, which is skipped without it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.6.2
scripts/install_from_npm.sh .deps/dawn webgpu "$version" '
 "node_modules/webgpu": {"version": "'$version'", "dependencies": {"@webgpu/types": "^0.1.72", "debug": "^4.4.0"},
  "integrity": "sha512-3L4GfmqJLvYUIEWJngEQY+2HQiUlAFkg8+P8NDDj3Xx5hHHIFO/r8JW+ynfqBj7kHN4mbnwO74uB+lrRtLhp4Q=="},
 "node_modules/@webgpu/types": {"version": "0.1.74",
  "integrity": "sha512-lgiI4hbuLcI9unnm2cL/tvCaQU45dp0xcLWJh5uB/9MBGvIA4F8XIk7nSiBeg+K4xWGYwgZKn80LmERI5CxoTA=="},
 "node_modules/debug": {"version": "4.4.3", "dependencies": {"ms": "^2.1.3"},
  "integrity": "sha512-RGwwWnwQvkVfavKVt22FGLw+xYSdzARwm0ru6DhTVA3umU5hZc28V3kO4stgYryrTlLpuvgI9GiijltAjNbcqA=="},
 "node_modules/ms": {"version": "2.1.3",
  "integrity": "sha512-6FlzubTLZG3J2a/NVCAleEhjzq5oxgHyaCU9yYXvcLsvoVaHJq/s5xXI6/XXP6tz7R9xAOtHnSO/tXtF3WRTlA=="}'
