#!/usr/bin/env python3
"""Writes demo/samples.json: what transformers says to some prompts, greedily, in float32 with eager attention.

Each entry has the prompt (or messages), the ids that the tokenizer and the chat template make of it, the ids and text that
follow, why it stopped, and the smallest margin between the best and the second logit: where it is small, another
correct program may choose otherwise. Entries under "sampled" were drawn at temperature 0.7, top-k 40, with torch's own
generator; they show the style and are not meant to be repeated elsewhere.
"""

import argparse
import json
import os

import torch
from transformers import AutoTokenizer, Gemma3ForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
RAW = ["The color of the sky is", "The capital of France is", "Once upon a time", "In the forest lived a", "Water freezes", "A fox", "Question: What is 7 plus 5?\nAnswer:"]
CHATS = [["Tell me a story about a fox."], ["What is your name?"], ["What color is a frog?"], ["tell me a story about a detective and a red bicycle"], ["Is a whale bigger than a bee?"], ["What is 8 times 7?"],
         ["Write a story about a brave potato named Kevin."], ["Tell me a story about a boy named Zorbin who learns to swim."], ["Who was Napoleon?"], ["Tell me about elephants."],
         ["My name is Kevin.", "What color is the sky?", "What is my name?"], ["What does a bear eat?", "And where does it live?", "What about a bee?"], ["Hello!", "Tell me a joke.", "Thank you!"], ["Wie geht es dir?"],
         ["Repeat: the old owl reads a book about the moon."]]
SYSTEM = [("You are Bella, a friendly fox.", "What is your name?")]
SAMPLED = [("raw", "Once upon a time"), ("raw", "The color of"), ("raw", "The little bear"), ("chat", "Tell me a story about a dragon who is afraid of the dark."), ("chat", "Tell me a story about a robot and a green violin."),
           ("chat", "Write a short poem about a cat."), ("chat", "I am sad."), ("chat", "What can I cook tonight?"), ("chat", "Tell me a story about sharing.")]


def generate(model, ids, limit, stop, temperature=0.0, generator=None):
    """(new ids, why it ended, smallest margin)"""
    new, cache, least, feed = [], None, float("inf"), torch.tensor([ids])
    while len(new) < limit:
        with torch.no_grad():
            out = model(feed, past_key_values=cache, use_cache=True)
        logits, cache = out.logits[0, -1], out.past_key_values
        best = logits.topk(2).values
        least = min(least, (best[0] - best[1]).item())
        if temperature:
            top = logits.topk(40)
            pick = int(top.indices[torch.multinomial(torch.softmax(top.values / temperature, -1), 1, generator=generator)])
        else:
            pick = int(logits.argmax())
        if pick in stop:
            return new, "stop", least
        new.append(pick)
        feed = torch.tensor([[pick]])
    return new, "length", least


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=os.path.dirname(HERE))
    parser.add_argument("--limit", type=int, default=240)
    parser.add_argument("--only", help="print the answer to this one chat message and write nothing")
    parser.add_argument("-o", "--out", default=os.path.join(HERE, "samples.json"))
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = Gemma3ForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="eager").eval()
    stop = [1, 5]

    def ids_of(messages):
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text, tokenizer(text, add_special_tokens=False).input_ids

    if args.only:
        new, _, _ = generate(model, ids_of([{"role": "user", "content": args.only}])[1], args.limit, stop)
        print(tokenizer.decode(new))
        return
    result = {"producer": "transformers, float32, eager attention, greedy", "stop_ids": stop, "limit": args.limit, "raw": [], "chat": [], "sampled": []}
    for prompt in RAW:
        ids = tokenizer(prompt).input_ids
        new, why, least = generate(model, ids, args.limit, stop)
        result["raw"].append({"prompt": prompt, "prompt_ids": ids, "ids": new, "text": tokenizer.decode(new), "stop": why, "smallest_margin": round(least, 4)})
    talks = [([], users) for users in CHATS] + [([{"role": "system", "content": s}], [u]) for s, u in SYSTEM]
    for messages, users in talks:
        for user in users:
            messages = messages + [{"role": "user", "content": user}]
            text, ids = ids_of(messages)
            new, why, least = generate(model, ids, args.limit, stop)
            answer = tokenizer.decode(new)
            result["chat"].append({"messages": messages, "prompt_text": text, "prompt_ids": ids, "ids": new, "text": answer, "stop": why, "smallest_margin": round(least, 4)})
            messages = messages + [{"role": "assistant", "content": answer}]
    generator = torch.Generator().manual_seed(1)
    for kind, prompt in SAMPLED:
        ids = tokenizer(prompt).input_ids if kind == "raw" else ids_of([{"role": "user", "content": prompt}])[1]
        new, why, _ = generate(model, ids, args.limit, stop, 0.7, generator)
        result["sampled"].append({"kind": kind, "prompt": prompt, "text": tokenizer.decode(new), "stop": why})
    with open(args.out, "w") as file:
        json.dump(result, file, indent=1, ensure_ascii=False)
        file.write("\n")
    for entry in result["raw"] + result["chat"]:
        asked = entry.get("prompt") or entry["messages"][-1]["content"]
        print(f"[{entry['stop']}, {entry['smallest_margin']}] {asked} => {entry['text']}")
    for entry in result["sampled"]:
        print(f"[sampled] {entry['prompt']} => {entry['text']}")


if __name__ == "__main__":
    main()
