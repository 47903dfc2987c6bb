"""What transformers makes of text: the part of a recording that needs no weights. For hf_record.py."""

import datetime
import json
import re
from pathlib import Path

PROBES = Path(__file__).resolve().parent / "text_probes.json"
MOST_PIECES = 4096  # of larger vocabularies so many, evenly spread
MOST_SPECIAL_TEXTS = 64  # some tokenizers have hundreds that nobody uses
BYTE = re.compile("<0x[0-9A-F]{2}>")  # a byte's token, special in some tokenizers
SAMPLING_KEYS = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def ids_of(tokenizer, text, special):
    return [int(i) for i in tokenizer(text, add_special_tokens=special)["input_ids"]]


def text_of(tokenizer, ids, skip_special):
    return tokenizer.decode(ids, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False)


def text_case(tokenizer, text):
    ids, whole = ids_of(tokenizer, text, False), ids_of(tokenizer, text, True)
    return {"text": text, "ids": ids, "with_special": whole, "decoded": text_of(tokenizer, ids, False),
            "without_special": text_of(tokenizer, whole, True)}


def render(tokenizer, conversation):
    """The conversation's text; None if the template refuses it, or there is none."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    try:
        return tokenizer.apply_chat_template(conversation["messages"], tools=conversation.get("tools"),
                                             add_generation_prompt=conversation["add_generation_prompt"], tokenize=False)
    except Exception:  # jinja2's, and those of templates that call methods of what is not there
        return None


def roles(tokenizer):
    found = {}
    for name in ("bos", "eos", "unk", "pad"):
        text, number = getattr(tokenizer, f"{name}_token", None), getattr(tokenizer, f"{name}_token_id", None)
        if text is not None and number is not None:
            found[name] = {"id": int(number), "text": str(text)}
    return found


def special_ids(tokenizer):
    added = getattr(tokenizer, "added_tokens_decoder", {})
    ids = {int(i) for i, token in added.items() if getattr(token, "special", False)}
    return sorted(ids | {int(i) for i in tokenizer.all_special_ids})[:MOST_PIECES]


def pieces(tokenizer, wanted):
    size = len(tokenizer)
    wanted = {i for i in wanted if i < size} | set(range(0, size, size // MOST_PIECES + 1))
    names = tokenizer.convert_ids_to_tokens(sorted(wanted))
    return [[i, name] for i, name in zip(sorted(wanted), names) if isinstance(name, str)]


def as_list(value):
    return [int(v) for v in (value if isinstance(value, (list, tuple)) else [value])]


def generation_part(generation):
    """What generation_config.json says; nothing where there is none."""
    part = {}
    if generation is None:
        return part
    if generation.eos_token_id is not None:
        part["stop_ids"] = as_list(generation.eos_token_id)
    if generation.pad_token_id is not None and generation.pad_token_id >= 0:
        part["pad_id"] = int(generation.pad_token_id)
    said = {key: getattr(generation, key, None) for key in SAMPLING_KEYS}
    part["sampling"] = {key: float(value) for key, value in said.items() if value is not None}
    return part


def text_part(tokenizer, generation=None, prompt=None, now=None):
    """The recording's entry `text` (docs/recordings.md)."""
    probes = json.loads(PROBES.read_text(encoding="utf-8"))
    now = now or datetime.datetime.now()
    conversations = []
    texts = ([prompt] if prompt else []) + probes["texts"]
    if getattr(tokenizer, "chat_template", None):
        for probe in probes["conversations"]:
            rendered = render(tokenizer, probe["conversation"])
            conversations.append({**probe, **({} if rendered is None else {"rendered": rendered})})
            texts += [] if rendered is None else [rendered]
    for name, role in roles(tokenizer).items():
        if name != "unk":
            texts.append(f"one{role['text']}two {role['text']} three\n")
    special = special_ids(tokenizer)
    names = [name for name in tokenizer.convert_ids_to_tokens(special) if name and not BYTE.fullmatch(name)]
    texts += [f"one{name}two" for name in names[:MOST_SPECIAL_TEXTS]]
    cases = [text_case(tokenizer, text) for text in texts]
    used = {i for case in cases for i in case["with_special"]}
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default", "")
    return {"texts": cases, "conversations": conversations, "pieces": pieces(tokenizer, used | set(special)),
            "special": special, "roles": roles(tokenizer), "chat_template": template or "",
            "now": now.strftime("%Y-%m-%dT%H:%M:%S"), **generation_part(generation)}
