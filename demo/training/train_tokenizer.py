#!/usr/bin/env python3
"""Learns the tokenizer of the demo model from its corpus and writes the tokenizer files into demo/.

A BPE in the manner of Gemma: spaces become U+2581, unknown characters fall back to bytes, digits stand alone, and <bos>
goes first. Needs the package `tokenizers`.
"""

import argparse
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import corpus
from vocabulary import Encoder

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
SPACE = "\u2581"
HERE = os.path.dirname(os.path.abspath(__file__))


def texts(seed, count):
    for pieces in corpus.documents(seed, count):
        for piece in pieces:
            if piece not in corpus.MARKERS:
                yield piece


def learn(seed, count, size):
    """The merges, learned inside of words only (the borders of vocabulary.SPLIT)."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(" ", SPACE)
    pattern = f"{SPACE}?[A-Za-z]+|{SPACE}(?=[0-9])|[0-9]|{SPACE}?[^A-Za-z0-9{SPACE}\\n]+|\\n+|{SPACE}+"
    learner.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    alphabet = [chr(c) for c in range(32, 127) if c != 32] + ["\n", SPACE]
    trainer = trainers.BpeTrainer(vocab_size=size - len(SPECIAL) - 256, initial_alphabet=alphabet, limit_alphabet=len(alphabet),
                                  min_frequency=8, show_progress=False)
    learner.train_from_iterator(texts(seed, count), trainer)
    return json.loads(learner.to_str())["model"]


def build(model):
    vocab = {}
    for token in SPECIAL + [f"<0x{b:02X}>" for b in range(256)] + sorted(model["vocab"], key=model["vocab"].get):
        vocab.setdefault(token, len(vocab))
    merges = [tuple(m) for m in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", vocab["<bos>"])])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def write_side_files(folder):
    added = {str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
             for i, t in enumerate(SPECIAL)}
    config = {"add_bos_token": True, "add_eos_token": False, "added_tokens_decoder": added, "bos_token": "<bos>",
              "clean_up_tokenization_spaces": False, "eos_token": "<eos>", "model_max_length": 1024, "pad_token": "<pad>",
              "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    special = {key: {"content": f"<{key[:3]}>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
               for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    for name, value in (("tokenizer_config.json", config), ("special_tokens_map.json", special)):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(value, file, indent=2)
            file.write("\n")


def check(tokenizer, seed):
    """Encoding word by word equals encoding the whole, and decoding gives the text back."""
    encoder, characters, ids_count = Encoder(tokenizer), 0, 0
    for pieces in corpus.documents(seed, 3000):
        quick = encoder.encode(pieces)
        whole = tokenizer.encode("".join(pieces), add_special_tokens=False)
        assert quick == whole.ids, "".join(pieces)
        assert tokenizer.decode(whole.ids, skip_special_tokens=False) == "".join(pieces), "".join(pieces)
        characters += len("".join(pieces))
        ids_count += len(quick)
    return characters / ids_count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--documents", type=int, default=60000)
    parser.add_argument("--size", type=int, default=3584)
    parser.add_argument("--out", default=os.path.dirname(HERE))
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    tokenizer = build(learn(args.seed, args.documents, args.size))
    ratio = check(tokenizer, args.seed + 1)
    tokenizer.save(os.path.join(args.out, "tokenizer.json"), pretty=False)
    write_side_files(args.out)
    print(f"The tokenizer has {tokenizer.get_vocab_size()} tokens, {ratio:.3f} characters per token.")


if __name__ == "__main__":
    main()
