#!/bin/sh
# make bench: decode speed of 1B models against the machine's memory bandwidth. Models with random weights are made once in
# build/bench-models (about 2 GB each) and kept. The share that decoding reaches is the line "decode / plain loop".
set -eu
cd "$(dirname "$0")/.."
cmake --build build/release --target cpu_bench synth_hf -j "$(nproc)" > /dev/null
for shape in gemma3-1b llama3.2-1b; do
  model="build/bench-models/$shape"
  if [ ! -f "$model/config.json" ]; then
    echo "making $model"
    build/release/bench/synth_hf "$shape" "$model"
  fi
  echo "== $shape (bfloat16)"
  build/release/bench/cpu_bench "$model" "$@"
done
