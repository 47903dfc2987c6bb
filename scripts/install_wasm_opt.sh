#!/usr/bin/env bash
# Puts Binaryen's wasm-opt, from npm, of the version and hash below, into .deps/binaryen: with it modules are a sixteenth smaller
# to download, and without it make web works all the same. Debian's own is too old to know relaxed vectors as browsers take them.
set -euo pipefail
cd "$(dirname "$0")/.."
version=132.0.0
hash=sha512-4Usg7yEvwO3FMso3Oov6qkOOHSod1IEv+boKkh77kTljM+eNBouqCTbqWswGzbG+vDNO/b/v2C4gfEh1WgB9Lg==
scripts/install_from_npm.sh .deps/binaryen binaryen "$version" \
  '"node_modules/binaryen": {"version": "'$version'", "integrity": "'$hash'"}' ||
  echo "wasm-opt cannot be fetched, so that modules are not made smaller by it."
