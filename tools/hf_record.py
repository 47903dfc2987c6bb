#!/usr/bin/env python3
"""Records what a Hugging Face causal model computes, stage by stage, for `doppler compare`.

    python3 tools/hf_record.py MODEL --prompt "The color of the sky is" --decode 8 -o reference.safetensors
    build/release/doppler compare MODEL --reference reference.safetensors

MODEL is a folder or a name that transformers knows. The model runs in float32 with eager attention, on the CPU unless
--device says otherwise. Needs torch, transformers, numpy and safetensors; with --text-only, which records what becomes of texts
and conversations and runs nothing, no torch. What is recorded: docs/recordings.md.
"""

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import hf_stages  # noqa: E402
import hf_text  # noqa: E402
from hf_stages import ATTENTION_FUNCTION, Call, Layer, Value  # noqa: E402

ATTENTION_NAME = "doppler_recording"
USUAL_PROMPT = "The color of the sky is"


class Refused(Exception):
    """A sentence for the user."""


def parse_ids(text):
    try:
        ids = [int(piece) for piece in text.replace(",", " ").split()]
    except ValueError:
        raise Refused(f"--prompt-ids must be whole numbers, like 2,5,9, and is {text!r}.") from None
    if not ids or min(ids) < 0:
        raise Refused("--prompt-ids needs at least one token id, and none below 0.")
    return ids


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="a folder, or a name that transformers knows")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", help="text, with the special tokens that the tokenizer adds")
    prompt.add_argument("--prompt-ids", help="token ids: 2,5,9")
    parser.add_argument("--chat", action="store_true", help="put --prompt through the model's chat template")
    parser.add_argument("--decode", type=int, default=8, metavar="N", help="greedy steps after the prompt (8)")
    parser.add_argument("--text-only", action="store_true", help="record tokenizer and template, and run nothing")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the recording to write")
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, mps")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the code that the model brings")
    arguments = parser.parse_args(argv)
    if arguments.decode < 0:
        parser.error("--decode must not be below 0")
    if arguments.text_only and arguments.prompt is None and arguments.prompt_ids is None:
        arguments.prompt = USUAL_PROMPT
    if arguments.prompt is None and arguments.prompt_ids is None:
        parser.error("--prompt or --prompt-ids is needed")
    if arguments.chat and arguments.prompt is None:
        parser.error("--chat needs --prompt")
    return arguments


# ---- the model

def causal_class(config):
    """What loads the model: transformers' list of causal models lacks some, whose config names their class."""
    import transformers

    named = (getattr(config, "architectures", None) or [""])[0]
    listed = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING or not hasattr(transformers, named)
    return transformers.AutoModelForCausalLM if listed else getattr(transformers, named)


def load_model(arguments):
    import torch
    import transformers

    register_attention()
    torch.set_float32_matmul_precision("highest")  # no shortened mantissas on GPUs
    options = dict(dtype=torch.float32, attn_implementation=ATTENTION_NAME)
    config = transformers.AutoConfig.from_pretrained(arguments.model, trust_remote_code=arguments.trust_remote_code)
    quantised = getattr(config, "quantization_config", None)
    if isinstance(quantised, dict):
        quantised["dequantize"] = True  # what the stored weights say, computed in float32
    options.update(config=config, trust_remote_code=arguments.trust_remote_code)
    kind = causal_class(config)
    try:
        model = kind.from_pretrained(arguments.model, **options)
    except (KeyError, ValueError) as error:
        if ATTENTION_NAME not in str(error):
            raise
        # Its attention is not exchangeable. Then what is rotated inside cannot be seen; all else can.
        # With biases of positions it may add these twice: to the scores, and as a part of the mask.
        options["attn_implementation"] = "sdpa" if getattr(config, "alibi", False) else "eager"
        model = kind.from_pretrained(arguments.model, **options)
    return model.float().to(arguments.device).eval()


def load_tokenizer(arguments):
    """None for a model without one, of which only ids can be recorded."""
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=arguments.trust_remote_code)
    except (OSError, ValueError, TypeError):
        if arguments.prompt_ids is None or arguments.text_only:
            raise
        return None


def text_metadata(arguments, tokenizer):
    """The header's entry `text`, and a note where there is none."""
    import transformers

    if tokenizer is None:
        return {}, ["texts (the model has no tokenizer)"]
    try:
        generation = transformers.GenerationConfig.from_pretrained(arguments.model)
    except (OSError, ValueError):
        generation = None
    part = hf_text.text_part(tokenizer, generation, None if arguments.chat else arguments.prompt)
    return {"text": json.dumps(part)}, []


def prompt_ids(arguments, tokenizer):
    if arguments.prompt_ids is not None:
        return parse_ids(arguments.prompt_ids)
    if arguments.chat:
        turns = [{"role": "user", "content": arguments.prompt}]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]  # the template writes its own
    else:
        ids = tokenizer(arguments.prompt)["input_ids"]
    if not ids:
        raise Refused("The prompt has no tokens. Give a longer one, or --prompt-ids.")
    return list(ids)


# ---- watching it

watcher = None  # the one Recorder that the attention function reports to


def register_attention():
    """An attention implementation that reports query, key and value and then does what eager attention does."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    def attend(module, query, key, value, *rest, **options):
        eager = None
        for kind in type(module).__mro__:  # the function beside the class that calls it
            eager = eager or getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
        if eager is None:
            raise Refused(f"{type(module).__module__} has no eager attention to record.")
        if watcher is not None:
            watcher.saw_attention(module, query, key, value)
        return eager(module, query, key, value, *rest, **options)

    AttentionInterface.register(ATTENTION_NAME, attend)
    AttentionMaskInterface.register(ATTENTION_NAME, eager_mask)


class Recorder:
    """Hooks on every module while it lives; `stages` fills as layers end, so only one layer's calls are held."""

    def __init__(self, model, tokens):
        modules = [(path, module) for path, module in model.named_modules() if path]
        try:
            self.layer_paths = hf_stages.find_layers([(p, type(m).__name__) for p, m in modules])
        except LookupError:
            raise Refused(f"{type(model).__name__} has no decoder layers that this program can find.") from None
        self.tokens = tokens
        self.stages, self.notes = {}, {}
        self.traces = {}  # of each layer, for tests
        self.top_calls, self.calls = [], []
        self.first_input = self.last_output = None
        self.alive = []  # what was seen in this layer: memory that is reused would look like the same tensor
        self.paths = {module: path for path, module in modules}
        self.layer_index = {path: index for index, path in enumerate(self.layer_paths)}
        ropes = getattr(model.config, "rope_parameters", None)
        self.scales_queries = isinstance(ropes, dict) and any(key.endswith("_scaling_beta") for key in ropes)
        self.head = model.get_output_embeddings()
        self.handles = [m.register_forward_hook(self._hook, with_kwargs=True) for _, m in modules]

    def close(self):
        for handle in self.handles:
            handle.remove()

    def _layer_of(self, path):
        for end, character in enumerate(path + "."):
            if character == "." and path[:end] in self.layer_index:
                return path[:end]
        return None

    def _value(self, tensor):
        self.alive.append(tensor)
        key = (tensor.data_ptr(), tensor.numel(), tensor._version)
        integer = not tensor.is_floating_point()
        # A copy: what a module returns may be changed in place by the next.
        return Value(key, tensor.detach().to("cpu", copy=True).float().numpy(), integer)

    def _values(self, things):
        import torch

        found = []
        for thing in things:
            if isinstance(thing, torch.Tensor):
                found.append(self._value(thing))
            elif isinstance(thing, (tuple, list)) and not found:
                found.extend(self._values(thing))
        return found

    def _hook(self, module, args, kwargs, output):
        path = self.paths[module]
        layer = self._layer_of(path)
        if layer is None and self._holds_layers(path):
            return
        named = {key: value for key, value in kwargs.items() if key != "position_embeddings"}
        first = [named.pop(key) for key in ("hidden_states", "x", "input") if key in named]
        relative = path[len(layer) + 1:] if layer else path
        call = Call(relative, type(module).__name__, self._values([*args, *first, *named.values()]),
                    self._values(output if isinstance(output, (tuple, list)) else [output]))
        if layer is None:
            if module is self.head:
                self.stages["logits"] = hf_stages.rows(call.output, self.tokens)
            self.top_calls.append(call)
            return
        self.calls.append(call)
        if path == layer:
            self._end_layer(self.layer_index[layer], call)

    def _holds_layers(self, path):
        return any(layer.startswith(path + ".") for layer in self.layer_paths)

    def saw_attention(self, module, query, key, value):
        path = self.paths.get(module, "")
        layer = self._layer_of(path)
        if layer is not None:
            values = [self._value(tensor) for tensor in (query, key, value)]
            self.calls.append(Call(path[len(layer) + 1:], ATTENTION_FUNCTION, values, []))

    def _end_layer(self, index, whole):
        layer = Layer(self.calls, self.tokens, scales_queries=self.scales_queries)
        for stage, array in layer.assemble().items():
            self.stages[f"layers.{index}.{stage}"] = array
        self.notes.update({f"layers.{index}.{note}": None for note in layer.notes})
        self.traces[index] = self.calls
        if index == 0:
            self.first_input = whole.input
        self.last_output = whole.output
        last = [t for t in self.alive if t.data_ptr() == whole.output.key[0]]
        self.calls, self.alive = [], last  # the output lives on: the next layer, or the final norm, reads it

    def finish(self):
        if self.first_input is None or self.last_output is None:
            raise Refused("The model ran without calling its layers.")
        stages, notes = hf_stages.top_stages(self.top_calls, self.first_input, self.last_output, self.tokens)
        self.stages.update(stages)
        self.notes.update(dict.fromkeys(notes))


# ---- the run

def record(model, ids, steps):
    """The recording's tensors by name, and notes on what is not in it."""
    import numpy
    import torch

    global watcher
    device = next(model.parameters()).device
    recorder = watcher = Recorder(model, len(ids))
    with torch.no_grad():
        try:
            answer = model(input_ids=torch.tensor([ids], device=device), use_cache=steps > 0)
        finally:
            watcher = None
            recorder.close()
        recorder.finish()
        tensors = recorder.stages
        cache_name = "past_key_values" if hasattr(answer, "past_key_values") else "cache_params"
        tensors.update(states(getattr(answer, cache_name, None)))
        recorder.notes.update(dict.fromkeys(best_first(tensors, model, recorder.layer_paths)))
        tensors["logits_final"] = answer.logits[0].float().cpu().numpy()
        tensors.setdefault("logits", tensors["logits_final"])
        greedy = [int(answer.logits[0, -1].argmax())]
        decoded = []
        for _ in range(steps):
            fed = torch.tensor([[greedy[-1]]], device=device)
            answer = model(input_ids=fed, use_cache=True, **{cache_name: getattr(answer, cache_name)})
            decoded.append(answer.logits[0, -1].float().cpu().numpy())
            greedy.append(int(decoded[-1].argmax()))
    if decoded:
        tensors["decode_logits"] = numpy.stack(decoded)
    tensors["prompt_ids"] = numpy.array(ids, dtype=numpy.int32)
    tensors["greedy_ids"] = numpy.array(greedy, dtype=numpy.int32)
    return tensors, list(recorder.notes), recorder


def states(cache):
    """What recurrent layers keep of the prompt: `state`, and `conv_state` [taps - 1, channels], oldest first."""
    found = {}
    for index, layer in enumerate(getattr(cache, "layers", [])):
        state = (getattr(layer, "recurrent_states", None) or {}).get(0)
        taps = (getattr(layer, "conv_states", None) or {}).get(0)
        if state is not None:
            found[f"layers.{index}.state"] = state[0].float().cpu().numpy().copy()
        if taps is not None:  # one more is kept than the next token reads
            found[f"layers.{index}.conv_state"] = taps[0].float().cpu().numpy()[:, 1:].T.copy()
    return found


def best_first(tensors, model, layer_paths):
    """Puts each token's chosen experts in the order of the score that they were chosen by, as compare expects them.

    Routers give them in any order. The score rises with the logit; where a bias for the choice was added, it was added to
    the logits' softmax or logistic function, whichever the weights are proportional to. Returns notes on routers that give
    probabilities instead of logits, which are then not recorded.
    """
    import numpy

    modules = dict(model.named_modules())
    notes = []
    for index, path in enumerate(layer_paths):
        names = [f"layers.{index}.{stage}" for stage in ("router_logits", "router_ids", "router_weights")]
        given = tensors.get(names[0])
        if given is not None and given.min() >= 0 and given.max() <= 1:
            notes.append(f"{names[0]}: the router gives probabilities")
            del tensors[names[0]]
        if any(name not in tensors for name in names):
            continue
        logits, ids, weights = (numpy.asarray(tensors[name], dtype="f8") for name in names)
        chosen = ids.astype("i8")
        score = logits
        biases = [t for name, t in [*modules[path].named_parameters(), *modules[path].named_buffers()]
                  if name.endswith(("correction_bias", "expert_bias")) and t.numel() == logits.shape[1]]
        if biases:
            softmax = numpy.exp(logits - logits.max(-1, keepdims=True))
            forms = [softmax / softmax.sum(-1, keepdims=True), 1 / (1 + numpy.exp(-logits))]

            def spread(form):
                shares = weights / numpy.maximum(numpy.take_along_axis(form, chosen, -1), 1e-30)
                return float((shares.std(-1) / shares.mean(-1)).max())

            score = min(forms, key=spread) + biases[0].detach().float().cpu().numpy().reshape(1, -1)
        order = numpy.argsort(-numpy.take_along_axis(score, chosen, -1), axis=-1, kind="stable")
        tensors[names[1]] = numpy.take_along_axis(ids, order, -1)
        tensors[names[2]] = numpy.take_along_axis(weights, order, -1).astype("f4")
    return notes


def write(tensors, path, more_metadata=None):
    """All or nothing: the name appears when the file is whole."""
    import numpy
    import transformers
    from safetensors.numpy import save_file

    ready = {}
    for name, array in tensors.items():
        integer = name in ("prompt_ids", "greedy_ids")
        ready[name] = numpy.ascontiguousarray(array, dtype=numpy.int32 if integer else numpy.float32)
    partial = f"{path}.partial-{os.getpid()}"
    metadata = {"producer": f"transformers {transformers.__version__}", "dtype": "float32", "attention": "eager",
                **(more_metadata or {})}
    try:
        save_file(ready, partial, metadata=metadata)
        os.replace(partial, path)
    except Exception as error:  # safetensors has an exception of its own for a full disk
        raise Refused(f"The file {path} cannot be written: {error}") from None
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def main(argv):
    arguments = parse_arguments(argv)
    try:
        import transformers  # noqa: F401
        if not arguments.text_only:
            import torch  # noqa: F401
    except ImportError as missing:
        raise Refused(f"This needs PyTorch and transformers ({missing}). Install them with pip, then run it again.")
    folder = Path(arguments.output).absolute().parent
    if not os.access(folder, os.W_OK):  # said before the model is loaded, not after
        raise Refused(f"The folder {folder} is not there or cannot be written.")
    import numpy

    tokenizer = load_tokenizer(arguments)
    ids = prompt_ids(arguments, tokenizer)
    metadata, lacking = text_metadata(arguments, tokenizer)
    if arguments.text_only:
        write({"prompt_ids": numpy.array(ids, dtype=numpy.int32)}, arguments.output, metadata)
        print(f"{arguments.output}: texts and conversations, {len(ids)} prompt tokens")
        return 0
    model = load_model(arguments)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    if max(ids) >= vocabulary:
        raise Refused(f"The prompt holds the id {max(ids)}, but the vocabulary has {vocabulary} tokens.")
    tensors, notes, recorder = record(model, ids, arguments.decode)
    spoilt = [name for name, array in tensors.items() if not numpy.isfinite(array).all()]
    write(tensors, arguments.output, metadata)
    for note in lacking + notes:
        print(f"not recorded: {note}", file=sys.stderr)
    if spoilt:
        print(f"NaN or infinity in {', '.join(spoilt[:5])}: compare will refuse this recording.", file=sys.stderr)
    print(f"{arguments.output}: {len(tensors)} tensors, {len(recorder.layer_paths)} layers, {len(ids)} prompt tokens, "
          f"{arguments.decode} greedy steps")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Refused, OSError, ValueError) as error:
        print(f"hf_record: {error}", file=sys.stderr)
        sys.exit(3)
