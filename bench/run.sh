#!/bin/sh
# make bench: speed of 1B models against what this machine's memory allows, by op. Models with random weights are made once
# in build/bench-models (0.7 to 2.5 GB each) and kept. Arguments go to doppler bench: bench/run.sh --threads 1 --depths 0,4000.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/bench-models
for model in gemma3-1b.Q4_0 gemma3-1b.Q8_0 gemma3-1b.Q4_K_M llama3.2-1b.Q4_0 llama3.2-1b.BF16; do
  file="build/bench-models/$model.gguf"
  [ -f "$file" ] || build/release/doppler synth "${model%.*}" "$file" --type "${model##*.}"
  build/release/doppler bench "$file" "$@"
  echo
done
