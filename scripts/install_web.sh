#!/usr/bin/env bash
# Puts the libraries of the WebAssembly build into .deps/web, made of Debian's source packages with the compiler that
# scripts/install_deps.sh web has installed. Half a minute; does nothing and says nothing if all is there.
set -euo pipefail
cd "$(dirname "$0")/.."
machine=web
root=$PWD/.deps/web
[ ! -e "$root/complete" ] || exit 0
mkdir -p .deps
work=$(mktemp -d "$PWD/.deps/building.XXXXXX")
trap 'rm -rf "$work"' EXIT
. scripts/debian_sources.sh
# FMT_OS: what a system without processes lacks. PCRE2 has no compiler for WebAssembly, so its interpreter runs.
build_sources "$root" "fmtlib: -DFMT_TEST=OFF -DFMT_DOC=OFF -DFMT_OS=OFF" "nlohmann-json3: -DJSON_BuildTests=OFF" \
  "pcre2: -DPCRE2_BUILD_TESTS=OFF -DPCRE2_BUILD_PCRE2GREP=OFF" "utf8proc: -DUTF8PROC_ENABLE_TESTING=OFF" \
  "highway: -DBUILD_TESTING=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF"
