#!/usr/bin/env bash
# turn.sh PARTS: which of so many parts, from 0, has its turn. CI takes its longest checks in parts, a part at each commit, so the number
# of commits says it.
set -euo pipefail
cd "$(dirname "$0")/.."
echo $(($(git rev-list --count HEAD) % ${1:?"usage: scripts/turn.sh PARTS"}))
