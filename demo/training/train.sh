#!/bin/sh
# Makes the demo model from nothing: tokenizer, weights, measurements, samples, recording. `sh train.sh --smoke` tries the way.
# Needs Python 3.11 or newer with torch, transformers 5, tokenizers and safetensors; the training wants one GPU.
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
if [ "${1:-}" = --smoke ]; then
  trial="$(mktemp -d)"
  cp ../chat_template.jinja "$trial"
  "$python" train_tokenizer.py --documents 5000 --out "$trial"
  "$python" train.py --smoke --out "$trial" --log "$trial/training.json"
  "$python" evaluate.py --model "$trial" --documents 16 --tasks 4 -o "$trial/evaluation.json" > /dev/null
  "$python" samples.py --model "$trial" --limit 8 -o "$trial/samples.json" > /dev/null
  "$python" record.py --model "$trial" --steps 4 -o "$trial/reference.safetensors"
  ls -l "$trial"
  rm -r "$trial"
  exit
fi
"$python" train_tokenizer.py
"$python" train.py
"$python" evaluate.py
"$python" samples.py
"$python" record.py
