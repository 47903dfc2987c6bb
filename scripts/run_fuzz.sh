#!/usr/bin/env bash
# Builds the fuzz targets and runs each on its corpus for a number of seconds (60 by default), as many at a time as
# there are cores.
#   scripts/run_fuzz.sh [seconds] [target ...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
scripts/install_deps.sh fuzz
cmake --preset fuzz -DDOPPLER_GPU="${DOPPLER_GPU:-ON}" >/dev/null
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in fuzz/*_fuzz.cpp; do targets+=("$(basename "$source" .cpp)"); done
fi
cmake --build build/fuzz --target "${targets[@]}" -j "$(nproc)"

# One target: its findings are kept beside the build, new corpus entries are thrown away with the build.
run_one() {
  local target=$1 seconds=$2 grown=build/fuzz/corpus/$1 log=build/fuzz/$1.log
  mkdir -p "$grown"
  if build/fuzz/fuzz/"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
      -artifact_prefix="build/fuzz/$target-" "$grown" "fuzz/corpus/$target" >"$log" 2>&1; then
    echo "$target: $(grep -o 'Done [0-9]* runs in [0-9]* second' "$log" | tail -1), no finding"
  else
    echo "$target: FOUND something; the input is build/fuzz/$target-*, the log $log"
    tail -n 40 "$log"
    return 1
  fi
}
export -f run_one
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c "run_one {} $seconds"
