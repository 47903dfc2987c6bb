#!/usr/bin/env bash
# Formats every C++ file of the project in place; with --check it only says whether all are formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh format
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run --Werror)
git ls-files -z --cached --others --exclude-standard '*.cpp' '*.h' | xargs -0 clang-format-19 "${mode[@]}"
