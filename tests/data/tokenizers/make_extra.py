#!/usr/bin/env python3
"""Makes the extra tokenizers of this folder, each with cases.json as the original libraries compute them.

Needs the Python packages tokenizers and sentencepiece. The texts of the cases are those of gpt2/cases.json and the
ones below; training is deterministic. Fields of a case: text, ids (no special tokens), ids_special, decoded (of ids,
special tokens kept), and decoded_skip (of ids_special, special tokens left out).
"""
import base64
import json
import os
import sys

import sentencepiece as spm
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = [c["text"] for c in json.load(open(os.path.join(HERE, "gpt2", "cases.json")))]
MORE = [
    "<s>Hello</s> world <unk> <pad>", "a <mask> b", "a  <mask>  b<mask>c", "<s> x", " <s>x", "<sep>word<sep> word",
    "word<word>word", "x <word> y", "Café CAFÉ cafe\u0301 İI", "e\u0301\u0323 e\u0323\u0301", "½ ﬁ ① ㎏ ｱ",
    "a\u180eb\u200bc\u3000d\u0085e", "naïve__under_score 12 345", "don't. Isn't it? do not!", "日本語 テキスト 漢字。",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "      ", " a  b   c    d", "\t\ta\n\n b \r\n c", "٣٤٥ ४५ Ⅷ ²",
    "👨‍👩‍👧 🇩🇪 é", "the quick brown fox, the lazy dog; the end", "ſt ſ 'S 'ſ it'ſ", "x\u0000y", "\ufeffbom", "A.B.C...",
    "▁already ▁marked▁", "<0x41> <0xE2><0x96>", "hello<s>", "[CLS] hello [SEP] unhappiness unaffable",
]


def corpus():
    lines = []
    for text in TEXTS[15:77] + MORE:
        lines += [line.strip() for line in text.replace("\0", " ").splitlines() if line.strip()]
    return [line for line in lines * 3]


def write(name, tokenizer, texts=None, **files):
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    cases = []
    for text in texts or TEXTS[:60] + MORE:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        special = tokenizer.encode(text).ids
        cases.append({"text": text, "ids": ids, "ids_special": special,
                      "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                      "decoded_skip": tokenizer.decode(special, skip_special_tokens=True)})
    save_cases(folder, cases, files)


def write_sentencepiece(name, files=None, **options):
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    prefix = os.path.join(folder, "tokenizer")
    spm.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_prefix=prefix, minloglevel=2,
                                   num_threads=1, hard_vocab_limit=False, **options)
    os.remove(prefix + ".vocab")
    model = spm.SentencePieceProcessor(model_file=prefix + ".model")
    cases = [{"text": text, "ids": model.encode(text), "decoded": model.decode(model.encode(text))}
             for text in TEXTS + MORE if not any(t in text for t in ("<s>", "</s>", "<unk>", "<pad>"))]
    save_cases(folder, cases, files or {})


def save_cases(folder, cases, files):
    with open(os.path.join(folder, "cases.json"), "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
    for file, content in files.items():
        with open(os.path.join(folder, file), "w") as out:
            json.dump(content, out, ensure_ascii=False, indent=1)


def train_bpe(tokenizer, size, special, **options):
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, special_tokens=special,
                                                                show_progress=False, **options))


def llama2_style():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    train_bpe(t, 700, ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=60)
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=False), AddedToken("<sep>", single_word=True),
                  AddedToken("fox", normalized=True)])
    write("llama2_json", t)


def unigram_metaspace():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"],
                                                            unk_token="<unk>", show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    write("unigram_json", t)


def precompiled():
    """The charsmap of SentencePiece's nmt_nfkc in a tokenizer.json, as T5 and XLM-R have it."""
    model = open(os.path.join(HERE, "spm_unigram", "tokenizer.model"), "rb").read()
    charsmap = find_charsmap(model)
    sp = spm.SentencePieceProcessor(model_file=os.path.join(HERE, "spm_unigram", "tokenizer.model"))
    vocab = [(sp.id_to_piece(i), sp.get_score(i)) for i in range(sp.get_piece_size())]
    t = Tokenizer(models.Unigram(vocab, unk_id=sp.unk_id(), byte_fallback=False))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Strip(left=False, right=True),
                                         normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                               pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.decoder = decoders.Metaspace()
    write("precompiled_json", t)


def find_charsmap(model):
    """precompiled_charsmap of a ModelProto: field 2 of field 3, read by hand to need no protobuf package."""
    def fields(data):
        at = 0
        while at < len(data):
            tag, at = varint(data, at)
            if tag & 7 == 2:
                size, at = varint(data, at)
                yield tag >> 3, data[at:at + size]
                at += size
            elif tag & 7 == 0:
                value, at = varint(data, at)
            else:
                at += 4 if tag & 7 == 5 else 8

    def varint(data, at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at
    return next(b for n, b in fields(next(b for n, b in fields(model) if n == 3)) if n == 2)


def word_piece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.decoder = decoders.WordPiece()
    write("bert_json", t)


def end_of_word():
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    train_bpe(t, 500, ["<unk>"], end_of_word_suffix="</w>", limit_alphabet=50)
    t.decoder = decoders.BPEDecoder()
    write("clip_json", t)


def roberta():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    train_bpe(t, 500, ["<s>", "<pad>", "</s>", "<unk>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True)])
    t.add_tokens([AddedToken("<word>", single_word=True, rstrip=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    t.decoder = decoders.ByteLevel()
    write("roberta_json", t)


def splits():
    """Every behaviour of Split, punctuation, digits and nested classes in one chain (DeepSeek and BLOOM have such)."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("[\r\n]"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "merged_with_previous"),
        pre_tokenizers.Split(Regex(r"[\p{Han}\u3040-\u30ff]+"), "isolated"),
        pre_tokenizers.Split(Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+"), "isolated"),
        pre_tokenizers.Split("o", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\w\b"), "contiguous"),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.Split(Regex("z"), "removed", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    train_bpe(t, 500, ["<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.decoder = decoders.ByteLevel()
    write("splits_json", t)


def main():
    llama2_style()
    unigram_metaspace()
    word_piece()
    end_of_word()
    roberta()
    splits()
    write_sentencepiece("spm_unigram", model_type="unigram", vocab_size=300, user_defined_symbols=["<sep>", "lazy dog"],
                        control_symbols=["<ctl>"])
    write_sentencepiece("spm_unigram_bytes", model_type="unigram", vocab_size=600, byte_fallback=True,
                        normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98)
    write_sentencepiece("spm_bpe_nfkc", model_type="bpe", vocab_size=400, user_defined_symbols=["<sep>", "ab"],
                        normalization_rule_name="nfkc_cf", add_dummy_prefix=False, character_coverage=0.98)
    write_sentencepiece("spm_suffix", model_type="unigram", vocab_size=300, treat_whitespace_as_suffix=True,
                        normalization_rule_name="identity")
    precompiled()


if __name__ == "__main__":
    sys.exit(main())
