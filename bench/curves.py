#!/usr/bin/env python3
"""What one more thread, a longer context, and more sequences in a step cost: bench/curves.py MODEL.gguf [doppler bench options].

Runs build/release/doppler bench three ways and prints a table for each. Every figure is a median with its 95% interval.
"""

import json
import os
import pathlib
import subprocess
import sys

DOPPLER = pathlib.Path(os.environ.get("DOPPLER", pathlib.Path(__file__).resolve().parent.parent / "build/release/doppler"))
DEPTHS = [0, 512, 1024, 2048, 4096]
SEQUENCES = [1, 2, 4, 8]


def bench(model, options):
    command = [str(DOPPLER), "bench", model, "--json", "--no-ops", "--loads", "1", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def cell(summary, digits=2):
    return f"{summary['median']:.{digits}f} ({summary['low']:.{digits}f}..{summary['high']:.{digits}f})"


def table(title, head, rows):
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def threads(model, options):
    rows, first = [], None
    for count in range(1, (os.cpu_count() or 1) + 1):
        result = bench(model, ["--depths", "0", "--threads", str(count), *options])
        decode, prefill = result["decode"][0]["tokens_per_second"], result["prefill"]["tokens_per_second"]
        first = first or (decode["median"], prefill["median"])
        limit = result["read_bandwidth"]["median"] / 1e9
        rows.append([count, cell(decode), f"{decode['median'] / first[0]:.2f}x", cell(prefill, 1), f"{prefill['median'] / first[1]:.2f}x", f"{limit:.1f}"])
    table("Threads", ["threads", "decode @0, tok/s", "over 1", "prefill, tok/s", "over 1", "plain loop, GB/s"], rows)


def context(model, options):
    result = bench(model, ["--depths", ",".join(map(str, DEPTHS)), *options])
    base = result["decode"][0]["tokens_per_second"]["median"]
    rows = [[line["depth"], cell(line["tokens_per_second"]), f"{1e3 / line['tokens_per_second']['median'] - 1e3 / base:+.2f}",
             f"{line['step_bytes'] / 1e6:.0f}", f"{100 * line['share_of_limit']:.0f}%"] for line in result["decode"]]
    table("Context", ["tokens before", "decode, tok/s", "ms more than @0", "MB a token", "of the plain loop"], rows)


def sequences(model, options):
    result = bench(model, ["--depths", "0", "--sequences", ",".join(map(str, SEQUENCES)), *options])
    base = result["decode"][0]["tokens_per_second"]["median"]
    rows = [[line["sequences"], cell(line["tokens_per_second"]), f"{line['tokens_per_second']['median'] / base:.2f}x",
             f"{1e3 * line['sequences'] / line['tokens_per_second']['median']:.1f}"] for line in result["decode"]]
    table("Sequences in a step", ["sequences", "tok/s, all together", "over 1", "ms a step"], rows)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    model, options = sys.argv[1], sys.argv[2:]
    print(f"{model}")
    threads(model, options)
    context(model, options)
    sequences(model, options)


if __name__ == "__main__":
    main()
