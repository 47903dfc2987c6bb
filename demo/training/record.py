#!/usr/bin/env python3
"""Records what transformers computes for one prompt, stage by stage, in float32 with eager attention.

    python3 record.py                                   # the famous prompt, into demo/reference.safetensors
    python3 record.py --model DIR --prompt-ids 2,5,9 -o FILE

The file holds every stage of the prompt's pass under the names of Doppler (`embed_out`, `layers.0.q_proj`, ...,
`logits_final`), then greedy decoding: `greedy_ids`, whose first id the prompt's pass chose, and one row of
`decode_logits` for each step after it. The weights are those of the folder, widened from bfloat16.
"""

import argparse
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers.models.gemma3 import modeling_gemma3

HERE = os.path.dirname(os.path.abspath(__file__))


class Stages:
    """Collects one pass. Hooks see what goes into and comes out of each module."""

    def __init__(self, model):
        self.values = {}
        self.handles = []
        self.layer = 0
        inner = model.model
        self.after(inner.embed_tokens, "embed_out")
        for i, layer in enumerate(inner.layers):
            at = f"layers.{i}."
            self.handles.append(layer.register_forward_pre_hook(self.enter(i), with_kwargs=True))
            self.handles.append(layer.register_forward_hook(lambda m, a, out, at=at: self.keep(at + "layer_out", out[0] if isinstance(out, tuple) else out)))
            attention, mlp = layer.self_attn, layer.mlp
            self.after(layer.input_layernorm, at + "attn_normed")
            for name in ("q_proj", "k_proj", "v_proj"):
                self.after(getattr(attention, name), at + name)
            for name in ("q_norm", "k_norm"):
                self.after(getattr(attention, name), at + name, heads=True)
            self.before(attention.o_proj, at + "attn_out")
            self.after(attention.o_proj, at + "o_proj")
            self.after(layer.post_attention_layernorm, at + "post_attn_norm")
            self.before(layer.pre_feedforward_layernorm, at + "post_attn")
            self.after(layer.pre_feedforward_layernorm, at + "ffn_normed")
            self.after(mlp.gate_proj, at + "ffn_gate")
            self.after(mlp.up_proj, at + "ffn_up")
            self.before(mlp.down_proj, at + "ffn_act")
            self.after(mlp, at + "ffn_out")
            self.after(layer.post_feedforward_layernorm, at + "post_ffn_norm")
        self.before(inner.norm, "pre_final_norm")
        self.after(inner.norm, "final_norm")
        self.after(model.lm_head, "logits")
        self.rope = modeling_gemma3.apply_rotary_pos_emb
        modeling_gemma3.apply_rotary_pos_emb = self.rotate

    def keep(self, name, value, heads=False):
        value = value[0].transpose(0, 1) if heads else value[0]
        self.values[name] = value.detach().to(torch.float32).contiguous().clone()

    def after(self, module, name, heads=False):
        self.handles.append(module.register_forward_hook(lambda m, a, out: self.keep(name, out, heads)))

    def before(self, module, name):
        self.handles.append(module.register_forward_pre_hook(lambda m, a: self.keep(name, a[0])))

    def enter(self, i):
        def hook(module, args, kwargs):
            self.layer = i
            self.keep(f"layers.{i}.attn_input", args[0] if args else kwargs["hidden_states"])

        return hook

    def rotate(self, q, k, *args, **kwargs):
        q, k = self.rope(q, k, *args, **kwargs)
        self.keep(f"layers.{self.layer}.q_rope", q, heads=True)
        self.keep(f"layers.{self.layer}.k_rope", k, heads=True)
        return q, k

    def close(self):
        modeling_gemma3.apply_rotary_pos_emb = self.rope
        for handle in self.handles:
            handle.remove()


def margin(row):
    best = row.topk(2).values
    return (best[0] - best[1]).item()


def record(model, prompt_ids, steps, stop):
    stages = Stages(model)
    with torch.no_grad():
        out = model(torch.tensor([prompt_ids]), use_cache=True)
    stages.close()
    values = stages.values
    values["logits_final"] = out.logits[0].to(torch.float32).contiguous().clone()
    greedy, rows, margins = [int(out.logits[0, -1].argmax())], [], [margin(out.logits[0, -1])]
    cache = out.past_key_values
    while len(rows) < steps and greedy[-1] not in stop:
        with torch.no_grad():
            out = model(torch.tensor([[greedy[-1]]]), past_key_values=cache, use_cache=True)
        rows.append(out.logits[0, -1].to(torch.float32).clone())
        margins.append(margin(rows[-1]))
        greedy.append(int(rows[-1].argmax()))
    values["prompt_ids"] = torch.tensor(prompt_ids, dtype=torch.int32)
    values["greedy_ids"] = torch.tensor(greedy, dtype=torch.int32)
    values["decode_logits"] = torch.stack(rows)
    return values, min(margins)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=os.path.dirname(HERE))
    parser.add_argument("--prompt", default="The color of the sky is")
    parser.add_argument("--prompt-ids", help="ids instead of a prompt, with commas between them")
    parser.add_argument("--steps", type=int, default=24, help="decode steps at most; <eos> and <end_of_turn> end it")
    parser.add_argument("-o", "--out", default=os.path.join(os.path.dirname(HERE), "reference.safetensors"))
    args = parser.parse_args()
    model = transformers.Gemma3ForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="eager").eval()
    if args.prompt_ids:
        ids, stop = [int(i) for i in args.prompt_ids.split(",")], set()
    else:
        tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
        ids, stop = tokenizer.encode(args.prompt).ids, {tokenizer.token_to_id("<eos>"), tokenizer.token_to_id("<end_of_turn>")}
    values, least = record(model, ids, args.steps, stop)
    metadata = {"producer": "transformers " + transformers.__version__, "dtype": "float32", "attention": "eager"}
    if not args.prompt_ids:
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools"))
        import hf_text
        metadata["text"] = json.dumps(hf_text.text_part(transformers.AutoTokenizer.from_pretrained(args.model), model.generation_config))
    save_file(values, args.out, metadata=metadata)
    print(f"{len(values)} tensors, {len(ids)} prompt tokens, {len(values['greedy_ids'])} greedy ids, smallest margin {least:.3f}, {os.path.getsize(args.out)} bytes")
    if not args.prompt_ids:
        print(repr(tokenizer.decode(values["greedy_ids"].tolist(), skip_special_tokens=False)))


if __name__ == "__main__":
    main()
