#!/usr/bin/env python3
"""Writes text.json of every folder here: what transformers makes of its texts, by tools/hf_text.py.

Needs transformers and jinja2, no PyTorch. Run it in this folder: python3 make_texts.py. Each folder lacks tokenizer.json, which is
that of ../tokenizers (or, for demo, of the demo model) by the name in `tokenizer`. The templates are our own, in the styles that
models ship.
"""
import datetime
import json
import pathlib
import shutil
import sys
import tempfile

import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))
import hf_text  # noqa: E402

NOW = datetime.datetime.now()


def write(folder):
    source = HERE.parents[2] / "demo" if folder.name == "demo" else folder
    with tempfile.TemporaryDirectory() as place:
        for file in source.glob("*.j*"):
            if file.name != "text.json":
                shutil.copy(file, place)
        if source is folder:
            name = (folder / "tokenizer").read_text().strip()
            shutil.copy(HERE.parent / "tokenizers" / name / "tokenizer.json", place)
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        generation = transformers.GenerationConfig.from_pretrained(place)
        part = hf_text.text_part(tokenizer, generation, None, NOW)
    (folder / "text.json").write_text(json.dumps(part) + "\n")
    print(folder.name, len(part["texts"]), "texts,", sum("rendered" in c for c in part["conversations"]), "conversations")


for folder in sorted(path for path in HERE.iterdir() if path.is_dir()):
    write(folder)
