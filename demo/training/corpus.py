#!/usr/bin/env python3
"""Writes the training text of the demo model: stories, facts and conversations, all made up by a grammar.

    python3 corpus.py --seed 1 --documents 20            # print some documents
    python3 corpus.py --seed 1 --documents 20 --held-out # ... of the held-out kind
    python3 corpus.py --statistics                       # sizes and shares

A document is a list of pieces: plain text, or one of the markers BOS, EOS, TURN and END that become special tokens.
The same seed gives the same documents. Held out are: all seeds from HELD_OUT_SEED on, every story in which the hero
and the thing are a held-out pair (text/stories.py, about one pair in forty), and every comparison of a held-out pair
(text/facts.py, one in eight). Only the standard library is used.
"""

import argparse
import random

from text import chats, facts, stories

HELD_OUT_SEED = 1 << 40
BOS, EOS, TURN, END = "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"
MARKERS = (BOS, EOS, TURN, END)


def chat_pieces(turns):
    """A conversation in the form of chat_template.jinja."""
    pieces = [BOS]
    for role, text in turns:
        pieces += [TURN, role + "\n" + text.strip(), END, "\n"]
    return pieces + [EOS]


def story_text(rng, held_out):
    paragraphs, scene, _, moral = stories.story(rng, held_out)
    gap = "\n\n" if rng.random() < 0.7 else "\n" if rng.random() < 0.5 else " "
    text = gap.join(paragraphs)
    if rng.random() < 0.25:
        text = stories.title(rng, scene) + "\n\n" + text
    r = rng.random()
    if r < 0.08:
        text += gap + "The end."
    elif r < 0.14:
        text += gap + "Moral: " + moral
    return text


def document(rng, held_out=False):
    """The pieces of one document."""
    r = rng.random()
    if r < 0.30:
        return [BOS, story_text(rng, held_out), EOS]
    if r < 0.55:
        return [BOS, facts.text(rng, held_out), EOS]
    return chat_pieces(chats.chat(rng, held_out))


def documents(seed, count, held_out=False):
    rng = random.Random(seed)
    for _ in range(count):
        yield document(rng, held_out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--held-out", action="store_true", help="only held-out stories and comparisons")
    parser.add_argument("--joined", action="store_true", help="nothing between documents, for doppler bench --perplexity")
    parser.add_argument("--statistics", action="store_true", help="print sizes instead of documents")
    args = parser.parse_args()
    if args.statistics:
        texts = ["".join(p) for p in documents(args.seed, 20000, args.held_out)]
        words = {w.strip(".,!?\":;()") for t in texts for w in t.split()}
        print(f"20000 documents, {sum(map(len, texts)) / len(texts):.0f} characters on average, {len(words)} different words, "
              f"{len(set(texts))} different documents")
        return
    for pieces in documents(args.seed, args.documents, args.held_out):
        print("".join(pieces), end="" if args.joined else "\n\n")


if __name__ == "__main__":
    main()
