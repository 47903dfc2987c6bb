#!/usr/bin/env python3
"""Trains the demo model with transformers and writes config, weights (bfloat16) and generation config into demo/.

    python3 train.py              # the real run, on one GPU
    python3 train.py --smoke      # the same path in a few steps, also on a CPU

Every step reads documents that no step before has read: processes write them while the GPU works. Row r of step s holds
the documents of a seed made of (seed, s, r), so the data of a run depend only on --seed, --rows and --length. Needs torch
and transformers 5, and the tokenizer files of train_tokenizer.py.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import time
from array import array

from tokenizers import Tokenizer

import corpus
from vocabulary import Encoder

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS_PER_SHARD = 256
_encoder = None


def start_worker(tokenizer_file):
    global _encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _encoder = Encoder(Tokenizer.from_file(tokenizer_file))


def make_shard(job):
    """ROWS_PER_SHARD rows of length + 1 ids; each row begins with a document, and its last document is cut off."""
    seed, index, length, held_out = job
    if len(_encoder.known) > 200000:
        _encoder.known.clear()
    rng = random.Random(seed * 1000003 + index + (corpus.HELD_OUT_SEED if held_out else 0))
    ids = array("H")
    for _ in range(ROWS_PER_SHARD):
        row = []
        while len(row) <= length:
            row += _encoder.encode(corpus.document(rng))
        ids.extend(row[: length + 1])
    return ids.tobytes()


def held_out_rows(encoder, kind, count, length, seed=1):
    """Documents of a held-out kind, one a row, as lists of ids."""
    rng = random.Random(corpus.HELD_OUT_SEED + seed)
    rows = []
    while len(rows) < count:
        if kind == "seeds":
            pieces = corpus.document(rng)
        elif kind == "stories":
            pieces = [corpus.BOS, corpus.story_text(rng, True), corpus.EOS]
        else:
            pieces = [corpus.BOS, corpus.facts.text(rng, True), corpus.EOS]
        rows.append(encoder.encode(pieces)[:length])
    return rows


def config_for(vocab_size):
    from transformers import Gemma3TextConfig

    return Gemma3TextConfig(
        vocab_size=vocab_size, hidden_size=256, intermediate_size=512, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, query_pre_attn_scalar=64, max_position_embeddings=1024, sliding_window=128, rms_norm_eps=1e-6,
        hidden_activation="gelu_pytorch_tanh", initializer_range=0.02, tie_word_embeddings=True, pad_token_id=0, eos_token_id=1, bos_token_id=2,
        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                         "full_attention": {"rope_type": "default", "rope_theta": 1000000.0}})


def masks(torch, length, window, device):
    """What each position may look at; None lets the attention take its own causal path."""
    at = torch.arange(length, device=device)
    near = (at[:, None] >= at[None, :]) & (at[:, None] - at[None, :] < window)
    return {"full_attention": None, "sliding_attention": near[None, None]}


def evaluate(torch, model, rows, device, mask):
    """Mean loss per predicted token of documents that are padded to one length."""
    total, count = 0.0, 0
    with torch.no_grad():
        for at in range(0, len(rows), 64):
            part = rows[at : at + 64]
            width = mask["sliding_attention"].shape[-1] + 1
            ids = torch.zeros(len(part), width, dtype=torch.long)
            for i, row in enumerate(part):
                ids[i, : len(row)] = torch.tensor(row[:width])
            ids = ids.to(device)
            hidden = model.model(input_ids=ids[:, :-1], attention_mask=mask, use_cache=False).last_hidden_state
            logits = model.lm_head(hidden).float()
            target = ids[:, 1:].clone()
            target[target == 0] = -100
            total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100, reduction="sum").item()
            count += int((target >= 0).sum())
    return total / count


def train(args):
    tokenizer_file = os.path.join(args.out, "tokenizer.json")
    per_step = args.rows // ROWS_PER_SHARD if args.rows >= ROWS_PER_SHARD else 1
    steps_per_shard = max(1, ROWS_PER_SHARD // args.rows)
    shards = math.ceil(args.steps / steps_per_shard) * per_step
    jobs = ((args.seed, i, args.length, False) for i in range(shards))
    context = multiprocessing.get_context("fork")
    workers = args.workers or max(1, (os.cpu_count() or 2) - 2)
    pool = context.Pool(workers, start_worker, (tokenizer_file,))  # before torch starts its threads and the GPU
    stream = pool.imap(make_shard, jobs)

    import torch
    from transformers import Gemma3ForCausalLM

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder = Encoder(Tokenizer.from_file(tokenizer_file))
    config = config_for(encoder.tokenizer.get_vocab_size())
    config._attn_implementation = "sdpa"
    model = Gemma3ForCausalLM(config).to(device).train()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters} parameters, {args.steps} steps of {args.rows * args.length} tokens, {workers} writers, {device}", flush=True)
    mask = masks(torch, args.length, config.sliding_window, device)

    def loss_of(ids):
        hidden = model.model(input_ids=ids[:, :-1], attention_mask=mask, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    step_loss = torch.compile(loss_of, dynamic=False) if args.compile and device == "cuda" else loss_of
    matrices = [p for p in model.model.layers.parameters() if p.dim() >= 2]
    kept = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in kept]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=args.rate,
                                  betas=(0.9, 0.95), eps=1e-8, fused=device == "cuda")

    def rate(step):
        if step < args.warmup:
            return args.rate * (step + 1) / args.warmup
        return args.rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - args.warmup) / max(1, args.steps - args.warmup))))

    held_out = {kind: held_out_rows(encoder, kind, args.held_out, args.length) for kind in ("seeds", "stories", "comparisons")}
    history, started, waited, seen, rows = [], time.time(), 0.0, 0, None
    for step in range(args.steps):
        within = step % steps_per_shard
        if within == 0:
            t = time.time()
            block = b"".join(next(stream) for _ in range(per_step))
            rows = torch.frombuffer(bytearray(block), dtype=torch.uint16).view(-1, args.length + 1).to(torch.int32).to(device).long()
            waited += time.time() - t
        ids = rows[within * args.rows : (within + 1) * args.rows]
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = step_loss(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += ids.shape[0] * args.length
        if step == 0 or (step + 1) % args.report == 0 or step + 1 == args.steps:
            value = loss.item()
            spent = time.time() - started
            history.append({"step": step + 1, "tokens": seen, "loss": round(value, 4)})
            print(f"step {step + 1}: loss {value:.4f}, rate {rate(step):.2e}, {seen / 1e6:.0f}M tokens, {spent:.0f} s ({waited:.0f} s waiting), "
                  f"{seen / spent / 1e3:.0f}k tokens/s", flush=True)
        if (step + 1) % args.check == 0 and step + 1 < args.steps:
            model.eval()
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                print(f"  held out: {evaluate(torch, model, held_out['seeds'], device, mask):.4f}", flush=True)
            model.train()
            model.save_pretrained(os.path.join(HERE, "checkpoint"))
        if args.minutes and time.time() - started > 60 * args.minutes:
            print("The time is over before the last step: the rate has not come down.", flush=True)
            break
    pool.terminate()
    model.eval().to(torch.bfloat16).save_pretrained(args.out)
    with open(os.path.join(args.out, "generation_config.json"), "w") as file:
        json.dump({"bos_token_id": 2, "do_sample": False, "eos_token_id": [1, 5], "pad_token_id": 0}, file, indent=2)
        file.write("\n")
    model = Gemma3ForCausalLM.from_pretrained(args.out, dtype=torch.float32, attn_implementation="sdpa").to(device).eval()
    result = {kind: round(evaluate(torch, model, rows, device, mask), 4) for kind, rows in held_out.items()}
    print("held-out loss of the saved weights, in float32:", result, flush=True)
    seconds = round(time.time() - started)
    log = {"parameters": parameters, "steps": step + 1, "tokens": seen, "seconds": seconds, "device": torch.cuda.get_device_name() if device == "cuda" else device,
           "torch": torch.__version__, "arguments": {k: v for k, v in vars(args).items() if k not in ("out", "log")}, "held_out_loss": result, "history": history}
    with open(args.log, "w") as file:
        json.dump(log, file, indent=1)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=7500)
    parser.add_argument("--rows", type=int, default=64, help="rows of a step")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a row")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--report", type=int, default=250)
    parser.add_argument("--check", type=int, default=2500)
    parser.add_argument("--held-out", type=int, default=1024, help="documents of each held-out set")
    parser.add_argument("--minutes", type=float, default=0, help="stop after so many minutes, for a machine that is lent")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--smoke", action="store_true", help="20 small steps")
    parser.add_argument("--out", default=os.path.dirname(HERE))
    parser.add_argument("--log", default=os.path.join(HERE, "training.json"))
    args = parser.parse_args()
    if args.smoke:
        args.steps, args.rows, args.length, args.report, args.check, args.held_out, args.warmup = 20, 4, 256, 5, 10, 16, 5
    train(args)


if __name__ == "__main__":
    main()
