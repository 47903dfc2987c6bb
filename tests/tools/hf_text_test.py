"""The text part of recordings (tools/hf_text.py), with a stand-in for transformers' tokenizers."""

import datetime
import json
import pathlib
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
import hf_record  # noqa: E402
import hf_text  # noqa: E402


class StandIn:
    """A token for each character, and <s> before a text; a template that refuses system texts."""

    bos_token, bos_token_id, eos_token, eos_token_id = "<s>", 0, "</s>", 1
    unk_token = unk_token_id = pad_token = pad_token_id = None
    all_special_ids = [0, 1]
    added_tokens_decoder = {0: types.SimpleNamespace(special=True), 1: types.SimpleNamespace(special=True)}
    chat_template = "{{ messages }}"

    def __init__(self, size=300):
        self.size = size

    def __len__(self):
        return self.size

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [0] * add_special_tokens + [2 + ord(c) % 200 for c in text]}

    def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
        assert clean_up_tokenization_spaces is False
        return "".join(chr(i) for i in ids if not (skip_special_tokens and i in self.all_special_ids))

    def convert_ids_to_tokens(self, ids):
        return [None if i == 7 else f"<{i}>" for i in ids]

    def apply_chat_template(self, messages, tools, add_generation_prompt, tokenize):
        assert tokenize is False
        if messages[0]["role"] == "system":
            raise ValueError("System texts are not supported.")
        return f"{len(messages)}{'T' if tools else ''}{'>' if add_generation_prompt else ''}"


def part(tokenizer=None, **more):
    return hf_text.text_part(tokenizer or StandIn(), now=datetime.datetime(2026, 5, 17, 12, 30), **more)


class TextPart(unittest.TestCase):
    def test_texts_have_ids_with_and_without_special_tokens(self):
        first = part(prompt="Hi")["texts"][0]
        self.assertEqual(first["text"], "Hi")
        self.assertEqual(first["with_special"], [0, *first["ids"]])
        self.assertEqual(len(first["ids"]), 2)
        self.assertEqual(first["decoded"], first["without_special"])

    def test_a_conversation_that_is_refused_has_no_text(self):
        by_name = {c["name"]: c for c in part()["conversations"]}
        self.assertNotIn("rendered", by_name["a system text"])
        self.assertEqual(by_name["two turns"]["rendered"], "3>")
        self.assertEqual(by_name["a tool"]["rendered"], "1T>")
        self.assertEqual(by_name["an answered question"]["rendered"], "2")

    def test_rendered_conversations_and_special_tokens_are_texts_too(self):
        texts = [case["text"] for case in part()["texts"]]
        self.assertIn("3>", texts)
        self.assertIn("one<s>two <s> three\n", texts)
        self.assertIn("one<1>two", texts)

    def test_gaps_of_the_vocabulary_are_left_out_and_large_ones_are_thinned(self):
        self.assertNotIn(7, [i for i, _ in part()["pieces"]])
        many = part(StandIn(200_000))["pieces"]
        self.assertLess(len(many), 2 * hf_text.MOST_PIECES)
        self.assertGreater(max(i for i, _ in many), 199_000)

    def test_what_ends_an_answer_comes_from_the_generation_config(self):
        generation = types.SimpleNamespace(eos_token_id=[1, 5], pad_token_id=0, temperature=0.5, do_sample=True)
        made = part(generation=generation)
        self.assertEqual((made["stop_ids"], made["pad_id"]), ([1, 5], 0))
        self.assertEqual(made["sampling"], {"do_sample": 1.0, "temperature": 0.5})
        self.assertNotIn("stop_ids", part())
        generation = types.SimpleNamespace(eos_token_id=1, pad_token_id=None)
        self.assertEqual(part(generation=generation)["stop_ids"], [1])

    def test_it_is_json(self):
        made = json.loads(json.dumps(part()))
        self.assertEqual(made["now"], "2026-05-17T12:30:00")
        self.assertEqual(made["roles"], {"bos": {"id": 0, "text": "<s>"}, "eos": {"id": 1, "text": "</s>"}})

    def test_a_tokenizer_without_template_has_no_conversations(self):
        tokenizer = StandIn()
        tokenizer.chat_template = None
        self.assertEqual((part(tokenizer)["conversations"], part(tokenizer)["chat_template"]), ([], ""))


class TextOnly(unittest.TestCase):
    def test_it_needs_no_prompt(self):
        arguments = hf_record.parse_arguments(["model", "--text-only", "-o", "file"])
        self.assertEqual(arguments.prompt, hf_record.USUAL_PROMPT)


if __name__ == "__main__":
    unittest.main()
