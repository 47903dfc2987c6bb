#!/usr/bin/env python3
"""Records model folders with tools/hf_record.py and compares with their reference.safetensors: for machines with PyTorch.

    python3 tests/tools/check_with_transformers.py tests/data/models/*

One line a folder: names, shapes, and values within 1e-4 of the stage's largest. Exit status 1 if one differs.
"""

import pathlib
import sys
import tempfile

import numpy
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import hf_record  # noqa: E402

ALLOWED = 1e-4  # other summation orders stay below 2e-6; a stage under a wrong name is off by 1e-2 and more


def difference(name, ours, theirs):
    """Why two tensors differ, or None; and the error as a share of the largest value."""
    if ours.shape != theirs.shape:
        return f"{name} has shape {ours.shape}, not {theirs.shape}", 0.0
    if name.endswith("_ids"):
        equal = numpy.array_equal(numpy.sort(ours, -1), numpy.sort(theirs, -1))  # experts may come in any order
        return (None if equal else f"{name} differs"), 0.0
    largest = max(float(numpy.abs(theirs).max()), 1e-30)
    error = float(numpy.abs(ours.astype("f8") - theirs).max()) / largest
    return (None if error <= ALLOWED else f"{name} is off by {error:.1e}"), error


def check(folder):
    theirs = load_file(folder / "reference.safetensors")
    with tempfile.TemporaryDirectory() as place:
        file = pathlib.Path(place) / "recording.safetensors"
        hf_record.main([str(folder), "--prompt-ids", ",".join(map(str, theirs["prompt_ids"])),
                        "--decode", str(len(theirs["greedy_ids"]) - 1), "-o", str(file)])
        ours = load_file(file)
    wrong = [f"{name} is missing" for name in sorted(set(theirs) - set(ours))]
    worst = (0.0, "")
    for name in sorted(set(ours) & set(theirs)):
        why, error = difference(name, ours[name], theirs[name])
        wrong += [why] if why else []
        worst = max(worst, (error, name))
    besides = sorted({name.rpartition(".")[2] for name in set(ours) - set(theirs)})
    print(f"{'FAIL' if wrong else 'pass'} {folder.name}: {len(theirs)} tensors, worst {worst[0]:.1e} at {worst[1]}"
          + (f"; recorded besides: {', '.join(besides)}" if besides else "")
          + (f"; {'; '.join(wrong[:6])} ({len(wrong)} in all)" if wrong else ""), flush=True)
    return not wrong


def main(folders):
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    good = []
    for folder in folders:
        try:
            good.append(check(pathlib.Path(folder)))
        except Exception as error:  # the other folders still count
            print(f"FAIL {folder}: {type(error).__name__}: {error}", flush=True)
            good.append(False)
    print(f"{sum(good)} of {len(good)} folders agree, with transformers {transformers.__version__}")
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
