"""Gives a file of `doppler synth`, which has none, a vocabulary: single bytes and as many made-up words as its embedding has rows.
Other programs refuse to load a model without one."""

import pathlib
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of GGUF's types of values
TEXT, LIST, U32, I32, F32, BOOL = 8, 9, 4, 5, 6, 7
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # of llama.cpp's types of tokens
SPECIAL = ["<unk>", "<s>", "</s>"]


def skip_value(data, at, kind):
    if kind == TEXT:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == LIST:
        inner, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(count):
            at = skip_value(data, at, inner)
        return at
    return at + SIZES[kind]


def text(value):
    bytes_ = value.encode()
    return struct.pack("<Q", len(bytes_)) + bytes_


def entry(key, kind, packed):
    return text(key) + struct.pack("<I", kind) + packed


def vocabulary(rows):
    """The entries of a SentencePiece vocabulary. A text of letters becomes as many tokens: no word holds one alone."""
    tokens = SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    tokens += [f"<word {i}>" for i in range(len(tokens), rows)]
    kinds += [NORMAL] * (rows - len(kinds))
    strings = b"".join(map(text, tokens))
    return [entry("tokenizer.ggml.model", TEXT, text("llama")),
            entry("tokenizer.ggml.tokens", LIST, struct.pack("<IQ", TEXT, rows) + strings),
            entry("tokenizer.ggml.scores", LIST, struct.pack(f"<IQ{rows}f", F32, rows, *[-float(i) for i in range(rows)])),
            entry("tokenizer.ggml.token_type", LIST, struct.pack(f"<IQ{rows}i", I32, rows, *kinds)),
            entry("tokenizer.ggml.unknown_token_id", U32, struct.pack("<I", 0)),
            entry("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 1)),
            entry("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2)),
            entry("tokenizer.ggml.add_bos_token", BOOL, b"\1"),
            entry("tokenizer.ggml.add_space_prefix", BOOL, b"\0")]


def add_vocabulary(source, target):
    """Writes `target`: `source` with a vocabulary. Its weights stay as they are, behind a longer description."""
    data = pathlib.Path(source).read_bytes()
    magic, version, tensors, values = struct.unpack_from("<4sIQQ", data)
    at, alignment, kept = 24, 32, []
    for _ in range(values):
        begin = at
        length = struct.unpack_from("<Q", data, at)[0]
        key, at = data[at + 8:at + 8 + length], at + 8 + length
        kind, at = struct.unpack_from("<I", data, at)[0], at + 4
        if key == b"general.alignment":
            alignment = struct.unpack_from("<I", data, at)[0]
        at = skip_value(data, at, kind)
        if not key.startswith(b"tokenizer."):
            kept.append(data[begin:at])
    rows, tensors_begin = 0, at
    for _ in range(tensors):
        length = struct.unpack_from("<Q", data, at)[0]
        name, at = data[at + 8:at + 8 + length], at + 8 + length
        dimensions, at = struct.unpack_from("<I", data, at)[0], at + 4
        if name == b"token_embd.weight":
            rows = struct.unpack_from(f"<{dimensions}Q", data, at)[1]
        at += 8 * dimensions + 12
    more = vocabulary(rows)
    head = struct.pack("<4sIQQ", magic, version, tensors, len(kept) + len(more)) + b"".join(kept + more) + data[tensors_begin:at]
    begin = -(-at // alignment) * alignment
    with open(target, "wb") as file:
        file.write(head + bytes(-len(head) % alignment))
        file.write(data[begin:])
