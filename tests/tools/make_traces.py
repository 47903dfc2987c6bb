#!/usr/bin/env python3
"""Writes traces.json, on a machine with PyTorch: what transformers' modules call, for the tests that have no PyTorch.

    python3 tests/tools/make_traces.py FOLDER...      model folders with a reference.safetensors

Of each model: its modules, the calls of its first layer (paths, classes, which tensor flowed where, shapes), how often two
arrays were found equal, and the names and shapes that the reference holds.
"""

import json
import pathlib
import sys
import types

from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))
import hf_record  # noqa: E402
import hf_stages  # noqa: E402


def trace(folder):
    reference = load_file(folder / "reference.safetensors")
    ids = [int(i) for i in reference["prompt_ids"]]
    model = hf_record.load_model(types.SimpleNamespace(model=str(folder), trust_remote_code=False, device="cpu"))
    _, _, recorder = hf_record.record(model, ids, 0)
    numbers = {}

    def value(v):
        return [numbers.setdefault(str(v.key), len(numbers)), list(v.shape), int(v.integer)]

    answers = []

    def equal(a, b):
        answers.append(hf_stages.same_values(a, b))
        return answers[-1]

    calls = recorder.traces[0]
    hf_stages.Layer(calls, len(ids), equal).assemble()
    return {
        "tokens": len(ids),
        "modules": [[path, type(m).__name__] for path, m in model.named_modules() if path],
        "layers": recorder.layer_paths,
        "calls": [[c.path, c.kind, [value(v) for v in c.inputs], [value(v) for v in c.outputs]] for c in calls],
        "equal": [int(answer) for answer in answers],
        "reference": {n.removeprefix("layers.0."): list(a.shape) for n, a in reference.items() if n.startswith("layers.0.")},
    }


def main(folders):
    traces = {pathlib.Path(folder).name: trace(pathlib.Path(folder)) for folder in folders}
    lines = []
    for name, one in sorted(traces.items()):
        fields = [f"  {json.dumps(key)}: {json.dumps(content, separators=(',', ':'))}" for key, content in one.items()]
        lines.append(f"{json.dumps(name)}: {{\n" + ",\n".join(fields) + "\n}")
    (HERE / "traces.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
