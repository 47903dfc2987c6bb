#!/usr/bin/env bash
# run_tests_together.sh BUILD [--in-turn]: every GoogleTest program of that build, in few processes instead of one for each test, which
# is what ctest starts: a sanitizer takes a tenth of a second to set up its memory, 1700 times. For CI's sanitizer run; the
# programs are cut into shards, as many of them at a time as there are cores. Prints what fails; the exit status says whether.
# --in-turn: of the programs that take longest, a sixth of the tests; which, depends on the number of commits, so that all are seen in turn.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?"usage: scripts/run_tests_together.sh BUILD [--in-turn]"}
at_a_time=2  # shards of a program: each opens its devices and compiles its kernels anew, and two keep two cores busy
longest=""  # programs of which a part is run
if [ "${2:-}" = --in-turn ]; then
  # Whole models by every command and interface, and searches for faults: five sixths of the time, and code that the users' tests run, too.
  longest="backend_tests cli_tests diagnosis_tests engine_tests"
  parts=6
  turn=$(scripts/turn.sh $parts)
  echo "Of $longest part $((turn + 1)) of $parts is run; scripts/run_tests_together.sh $build runs all."
fi
# Searches through a trained model on the CPU: a minute or two each under a sanitizer, and the same code as the case that stays
# (layer_left_out; of two faults at once, norms_and_base). The users' tests have them all.
left_out='-Doctor/Alone.*/k_v_swapped:Doctor/Alone.*/residual_after_norm:Doctor/Alone.*/rope_thetas_swapped'
left_out+=':Doctor/Alone.*/rotary_rows_permuted:Doctor/Alone.*/qk_norm_offset:DoctorAlone.SaysThatTheLossTellsNothing*'
left_out+=':Doctor/TwoAlongAChain.*/base_and_*:Doctor/TwoAlongAChain.*/scale_and_activation'
# More models on the GPU, whose kernels a software adapter would have to compile first, under the sanitizers in three times the time.
[ "${2:-}" != --in-turn ] || left_out+=':More/*'

run_shard() {
  local program=$1 shard=$2 shards=$3 log
  log="$program.$shard.log"
  if GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard timeout 2400 "$program" --gtest_filter="$left_out" >"$log" 2>&1; then return 0; fi
  echo "FAILED: $program, shard $shard of $shards; $log ends:"
  grep -E '^\[  FAILED  \]|Failure$|ERROR: |runtime error: ' "$log" | sort -u | head -n 40
  tail -n 40 "$log"
  return 1
}
export -f run_shard
export left_out
export LSAN_OPTIONS="suppressions=$PWD/tests/leaks.supp:print_suppressions=0"  # as tests/CMakeLists.txt sets it for ctest

programs=("$build"/tests/*_tests)
rm -f "$build"/tests/*_tests.*.log
[ -x "${programs[0]}" ] || { echo "There are no tests in $build/tests. Build them first: cmake --build $build" >&2; exit 2; }
status=0
# The largest programs first, so that no long one is left for the end.
for program in $(ls -S "${programs[@]}"); do
  of=1 part=0
  if [[ " $longest " == *" $(basename "$program") "* ]]; then of=$parts part=$turn; fi
  for ((shard = 0; shard < at_a_time; ++shard)); do echo "$program $((shard * of + part)) $((at_a_time * of))"; done
done | xargs -P "$(nproc)" -L 1 bash -c 'run_shard "$@"' run_shard || status=1
ran=$(cat "$build"/tests/*_tests.*.log | grep -oE '^\[  PASSED  \] [0-9]+' | awk '{sum += $4} END {print sum + 0}')
skipped=$(cat "$build"/tests/*_tests.*.log | grep -cE '^\[  SKIPPED \] [^0-9]' || true)
echo "$ran tests passed, $((skipped / 2)) skipped, in ${#programs[@]} programs"
exit $status
