#!/usr/bin/env python3
"""Writes a model as large as a real one that says what the demo model says, for measuring what depends on what a text is like.

    bench/widen_demo.py OUT_FOLDER [--layers 26] [--feed-forward 8192]

A trained model of a billion weights cannot be made here, and one of random weights says nothing. So the demo model's matrices
get rows and columns of zeros, four times its width, and layers that add nothing, which cost what others cost:
every value is the demo's, padded (bfloat16, like the demo's; the norms in float32), and so are the logits, but for roundings. Then

    doppler convert OUT_FOLDER -o wide.gguf --type Q4_0
    bench/speculation wide.gguf --backend gpu"""

import argparse
import json
import pathlib
import shutil
import struct

DEMO = pathlib.Path(__file__).resolve().parent.parent / "demo"
TIMES = 4  # as wide; the root of it, by which a norm of mostly zeros differs, is exact in binary
HEADS, KV_HEADS = 16, 4


def read_tensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {name: (tensor["shape"], data[8 + length + tensor["data_offsets"][0] : 8 + length + tensor["data_offsets"][1]])
            for name, tensor in header.items()}


def floats(data):
    return [struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data), 2)]


def bfloats(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def padded(shape, data, rows, columns, row_of=lambda row: row, column_of=None):
    """The matrix with zeros around it; row_of and column_of(index) say where a row or column goes. bfloat16."""
    old_rows, old_columns = shape
    out = bytearray(rows * columns * 2)
    for row in range(old_rows):
        values = data[row * old_columns * 2 : (row + 1) * old_columns * 2]
        at = row_of(row) * columns * 2
        if column_of is None:
            out[at : at + len(values)] = values
            continue
        for column in range(old_columns):
            to = at + column_of(column) * 2
            out[to : to + 2] = values[column * 2 : column * 2 + 2]
    return bytes(out)


def widened(tensors, config, layers, feed_forward):
    """Yields (name, type, shape, bytes) of the wide model."""
    narrow, head = config["hidden_size"], config["head_dim"]
    wide = narrow * TIMES
    group, wide_group = config["num_attention_heads"] // config["num_key_value_heads"], HEADS // KV_HEADS

    def head_place(index):  # query heads stay with their KV head
        number, within = divmod(index, head)
        return (number // group * wide_group + number % group) * head + within

    def norm(name, factor):
        # A row that is mostly zeros has a root mean square that is smaller by the root of TIMES; Gemma multiplies by 1 + weight.
        values = [(1 + value) * factor - 1 for value in floats(tensors[name][1])]
        return "F32", [wide], struct.pack(f"<{wide}f", *values, *[-1.0] * (wide - narrow))

    half = TIMES ** -0.5
    # Gemma multiplies embeddings by the root of the width, and the head is the same matrix: the last norm makes up for it.
    shape, data = tensors["model.embed_tokens.weight"]
    embedding = bfloats([value * half for value in floats(data)])
    yield "model.embed_tokens.weight", "BF16", [shape[0], wide], padded(shape, embedding, shape[0], wide)
    yield "model.norm.weight", *norm("model.norm.weight", 1.0)
    for layer in range(layers):
        name = f"model.layers.{layer}."
        there = layer < config["num_hidden_layers"]

        def matrix(part, rows, columns, **places):
            shape, data = tensors[name + part] if there else ([0, columns], b"")
            return name + part, "BF16", [rows, columns], padded(shape, data, rows, columns, **places)

        for part in ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]:
            yield name + part + ".weight", *(norm(name + part + ".weight", half) if there else
                                             ("F32", [wide], bytes(4 * wide)))
        for part in ["self_attn.q_norm.weight", "self_attn.k_norm.weight"]:
            yield name + part, "BF16", [head], tensors[name + part][1] if there else bytes(2 * head)
        yield matrix("self_attn.q_proj.weight", HEADS * head, wide, row_of=head_place)
        yield matrix("self_attn.k_proj.weight", KV_HEADS * head, wide)
        yield matrix("self_attn.v_proj.weight", KV_HEADS * head, wide)
        yield matrix("self_attn.o_proj.weight", wide, HEADS * head, column_of=head_place)
        yield matrix("mlp.gate_proj.weight", feed_forward, wide)
        yield matrix("mlp.up_proj.weight", feed_forward, wide)
        yield matrix("mlp.down_proj.weight", wide, feed_forward)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=26)
    parser.add_argument("--feed-forward", type=int, default=8192)
    arguments = parser.parse_args()
    config = json.loads((DEMO / "config.json").read_text())
    if arguments.layers < config["num_hidden_layers"] or arguments.feed_forward < config["intermediate_size"]:
        parser.error(f"the demo has {config['num_hidden_layers']} layers and a feed-forward of {config['intermediate_size']}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for file in DEMO.iterdir():
        if file.is_file() and file.name not in ("README.md", "config.json", "model.safetensors", "reference.safetensors"):
            shutil.copy(file, arguments.folder)

    tensors = read_tensors(DEMO / "model.safetensors")
    header, at = {}, 0
    with open(arguments.folder / "tensors", "wb") as out:
        for name, type_, shape, data in widened(tensors, config, arguments.layers, arguments.feed_forward):
            header[name] = {"dtype": type_, "shape": shape, "data_offsets": [at, at + len(data)]}
            at += out.write(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(arguments.folder / "model.safetensors", "wb") as out, open(arguments.folder / "tensors", "rb") as data:
        out.write(struct.pack("<Q", len(text)) + text)
        shutil.copyfileobj(data, out, 1 << 24)
    (arguments.folder / "tensors").unlink()

    added = arguments.layers - config["num_hidden_layers"]
    config.update(hidden_size=config["hidden_size"] * TIMES, intermediate_size=arguments.feed_forward, num_attention_heads=HEADS,
                  num_key_value_heads=KV_HEADS, num_hidden_layers=arguments.layers, rms_norm_eps=config["rms_norm_eps"] / TIMES,
                  layer_types=config["layer_types"] + ["sliding_attention"] * added)
    (arguments.folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
