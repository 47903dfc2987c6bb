#!/usr/bin/env python3
"""Measures the demo model on what it never read, and writes demo/evaluation.json.

Loss: mean per predicted token, in nats, of documents with held-out seeds ("seeds"), of stories whose pair of hero and thing
is held out ("stories"), and of texts with comparisons of held-out pairs ("comparisons"). Answers, greedy, in the chat
form: comparisons of held-out pairs, sums, facts, and story requests with a held-out pair of hero and thing, where the story
must name both and come to its end within 400 tokens.
"""

import argparse
import json
import os
import random

import torch
from tokenizers import Tokenizer
from transformers import Gemma3ForCausalLM

import corpus
from text import facts, stories, world
from text.grammar import article
from train import evaluate, held_out_rows, masks
from vocabulary import Encoder

HERE = os.path.dirname(os.path.abspath(__file__))
LENGTH = 1024


def answers(model, tokenizer, questions, limit, device):
    """Greedy answers to questions in the chat form, in batches padded on the left."""
    out = []
    for at in range(0, len(questions), 100):
        rows = [tokenizer.encode(f"<bos><start_of_turn>user\n{q}<end_of_turn>\n<start_of_turn>model\n", add_special_tokens=False).ids for q in questions[at : at + 100]]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(r)) + r for r in rows], device=device)
        seen = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows], device=device)
        with torch.no_grad():
            new = model.generate(ids, attention_mask=seen, max_new_tokens=limit, do_sample=False, eos_token_id=[1, 5], pad_token_id=0)[:, width:].tolist()
        for row in new:
            end = next((i for i, t in enumerate(row) if t in (0, 1, 5)), None)
            out.append((tokenizer.decode(row if end is None else row[:end]).strip(), end is not None))
    return out


def comparison_tasks(rng, count):
    """Questions on held-out pairs with one right first sentence: which of the two, or yes or no."""
    tasks, seen = [], set()
    while len(tasks) < count:
        question, answer, _ = facts.compare(rng, held_out=True)
        if question not in seen:
            seen.add(question)
            tasks.append((question, answer))
    return tasks


def sum_tasks():
    return ([(f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.") for a in range(13) for b in range(13)]
            + [(f"What is {a} minus {b}?", f"{a} minus {b} is {a - b}.") for a in range(21) for b in range(a + 1)]
            + [(f"What is {a} times {b}?", f"{a} times {b} is {a * b}.") for a in range(11) for b in range(11)])


def color_tasks():
    return [(f"What color {'are' if x == 'rain clouds' else 'is'} {x}?", c) for x, c, _ in world.COLORS]


def story_tasks(rng, count):
    tasks = []
    while len(tasks) < count:
        _, scene, theme, _ = stories.story(rng, True)
        if theme == "lost" or theme == "stuck":
            tasks.append((f"Tell me a story about {article(scene.hero_kind)} and {article(scene.slots['obj'])}.", scene.hero_kind, scene.thing))
    return tasks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=os.path.dirname(HERE))
    parser.add_argument("--documents", type=int, default=1024)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("-o", "--out", default=os.path.join(HERE, "evaluation.json"))
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    model = Gemma3ForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa").to(device).eval()
    encoder, mask = Encoder(tokenizer), masks(torch, LENGTH, model.config.sliding_window, device)
    result = {"documents": args.documents, "loss": {}}
    for kind in ("seeds", "stories", "comparisons"):
        result["loss"][kind] = round(evaluate(torch, model, held_out_rows(encoder, kind, args.documents, LENGTH, seed=2), device, mask), 4)
    rng = random.Random(corpus.HELD_OUT_SEED + 3)
    for name, tasks in (("held_out_comparisons", comparison_tasks(rng, args.tasks)), ("sums", sum_tasks()), ("colors", color_tasks())):
        if args.tasks < 100:  # a trial
            tasks = tasks[: args.tasks]
        got = answers(model, tokenizer, [q for q, _ in tasks], 40, device)
        right = [a == want or (name == "colors" and want in a.split(".")[0]) for (_, want), (a, _) in zip(tasks, got)]
        result[name] = {"asked": len(tasks), "right": sum(right),
                        "wrong": [{"question": q, "answer": a} for (q, _), (a, _), ok in zip(tasks, got, right) if not ok][:8]}
    tasks = story_tasks(rng, args.tasks)
    got = answers(model, tokenizer, [t[0] for t in tasks], 400, device)
    both = [kind in text and thing in text for (_, kind, thing), (text, _) in zip(tasks, got)]
    result["held_out_stories"] = {"asked": len(tasks), "name_both": sum(both), "end": sum(e for _, e in got), "different": len({t for t, _ in got}),
                                  "wrong": [{"request": t[0], "story": g[0]} for t, g, ok in zip(tasks, got, both) if not ok][:4]}
    with open(args.out, "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
