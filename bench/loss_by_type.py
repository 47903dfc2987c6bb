#!/usr/bin/env python3
"""What quantisation costs: converts a model to each type and measures the loss on held-out text; prints a table.

    bench/loss_by_type.py                       # the demo model, on its own held-out documents
    bench/loss_by_type.py --types Q4_0,Q4_K_M --model models/gemma-3-1b-it --text held_out.txt

Needs build/release/doppler; files are made in build/loss-by-type and kept. Only the standard library is used.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The order of the table: by size. F32 and F16 hold what BF16 weights hold.
TYPES = "BF16,Q8_0,Q6_K,Q5_K_M,Q5_K_S,Q5_1,Q5_0,Q4_K_M,Q4_K_S,Q4_1,Q4_0,IQ4_NL,MXFP4,Q3_K_L,Q3_K_M,Q3_K_S,Q2_K"


def run_json(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"loss_by_type: {command[1]} ends with status {done.returncode}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--doppler", default=ROOT / "build/release/doppler")
    parser.add_argument("--model", default=ROOT / "demo")
    parser.add_argument("--text", help="left out: 1024 documents with held-out seeds, as demo/training makes them")
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--chunks", type=int, default=0, help="stop after so many chunks of the text; 0: never")
    parser.add_argument("--folder", default=ROOT / "build/loss-by-type", type=pathlib.Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    text = args.text
    if text is None:
        text = args.folder / "held_out.txt"
        with open(text, "w", encoding="utf-8") as file:
            corpus = ROOT / "demo/training/corpus.py"
            subprocess.run([sys.executable, corpus, "--seed", str(1 << 40), "--documents", "1024", "--joined"], stdout=file, check=True)
    print("| type | bits a weight | file | largest error of a tensor | nats a token | more than BF16 |")
    print("|---|---|---|---|---|---|")
    base = None
    for kind in args.types.split(","):
        path = args.folder / f"{pathlib.Path(args.model).name}.{kind}.gguf"
        made = run_json(args.doppler, "convert", args.model, "-o", path, "--type", kind, "--json")
        told = run_json(args.doppler, "bench", path, "--perplexity", text, "--chunks", args.chunks, "--json")
        worst = max((t["relative_error"] or 0 for t in made["tensors"]), default=0)
        base = told["loss"] if base is None else base
        print(f"| {kind} | {made['bits_per_weight']:.2f} | {made['file_bytes'] / 1e6:.1f} MB | {100 * worst:.2f} % | {told['loss']:.4f} | {told['loss'] - base:+.4f} |", flush=True)


if __name__ == "__main__":
    main()
