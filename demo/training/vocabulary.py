"""Turns the pieces of corpus.py into token ids, quickly: words repeat, so each is looked up once.

No merge of the tokenizer crosses the borders of SPLIT (train_tokenizer.py learns inside of them), so that encoding
piece by piece gives the same ids as encoding the whole text. train_tokenizer.py checks that.
"""

import re

from corpus import MARKERS

SPLIT = re.compile(r" ?[A-Za-z]+| (?=[0-9])|[0-9]| ?[^A-Za-z0-9 \n]+|\n+| +")


class Encoder:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.known = {}
        self.marker = {m: tokenizer.token_to_id(m) for m in MARKERS}

    def encode(self, pieces):
        """The ids of a document (a list of texts and markers)."""
        ids, known = [], self.known
        for piece in pieces:
            if piece in self.marker:
                ids.append(self.marker[piece])
                continue
            for part in SPLIT.findall(piece):
                part_ids = known.get(part)
                if part_ids is None:
                    part_ids = known[part] = self.tokenizer.encode(part, add_special_tokens=False).ids
                ids += part_ids
        return ids
