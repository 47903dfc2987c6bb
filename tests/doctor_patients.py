"""Copies of model folders with one thing made wrong by hand, and what the doctor says of each.

    python3 tests/doctor_patients.py build/release/doppler [NAME ...]

Real files, changed as a converter, a download or a person would change them: config.json values, tensors of
model.safetensors, merges of tokenizer.json, metadata and blocks of GGUF files. Each patient names the cause that the
doctor must give; the last line counts. Needs numpy; the tests of the repository do the same in C++ for a few of them.
"""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {"F32": 4, "F16": 2, "BF16": 2}


class Safetensors:
    """A file's tensors as numpy arrays of raw 16-bit or 32-bit words."""

    def __init__(self, path):
        self.path = path
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + size])
        self.metadata = header.pop("__metadata__", {})
        self.dtypes, self.tensors = {}, {}
        for name, info in header.items():
            begin, end = info["data_offsets"]
            word = {4: numpy.uint32, 2: numpy.uint16}[SIZES[info["dtype"]]]
            raw = numpy.frombuffer(data[8 + size + begin : 8 + size + end], word)
            self.tensors[name] = raw.reshape(info["shape"]).copy()
            self.dtypes[name] = info["dtype"]

    def write(self):
        header, at = {"__metadata__": self.metadata}, 0
        for name, tensor in self.tensors.items():
            header[name] = {"dtype": self.dtypes[name], "shape": list(tensor.shape),
                            "data_offsets": [at, at + tensor.nbytes]}
            at += tensor.nbytes
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t.tobytes() for t in self.tensors.values()))


def to_float(words):
    return (words.astype(numpy.uint32) << 16).view(numpy.float32)


def to_bf16(values):
    bits = values.astype(numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def config(**changes):
    def change(folder):
        path = folder / "config.json"
        values = json.loads(path.read_text())
        for key, value in changes.items():
            if value is DELETE:
                values.pop(key, None)
            elif callable(value):
                values[key] = value(values.get(key))
            else:
                values[key] = value
        path.write_text(json.dumps(values))
    return change


DELETE = object()


def tensors(function):
    def change(folder):
        file = Safetensors(folder / "model.safetensors")
        function(file.tensors, file)
        file.write()
    return change


def each_theta(value):
    def change(parameters):
        if "rope_theta" in parameters:
            return {**parameters, "rope_theta": value}
        return {kind: {**values, "rope_theta": value} for kind, values in parameters.items()}
    return change


def local_theta(value):
    return lambda parameters: {**parameters, "sliding_attention": {**parameters["sliding_attention"], "rope_theta": value}}


def swap_thetas(parameters):
    return {"full_attention": parameters["sliding_attention"], "sliding_attention": parameters["full_attention"]}


L = "model.layers.{}.{}.weight"


def layer(i, name):
    return L.format(i, name)


def set_tensor(name, function):
    def change(all_tensors, _):
        all_tensors[name] = numpy.ascontiguousarray(function(all_tensors[name])).reshape(all_tensors[name].shape)
    return tensors(change)


def swap(a, b):
    def change(all_tensors, _):
        all_tensors[a], all_tensors[b] = all_tensors[b], all_tensors[a]
    return tensors(change)


def copy(source, to):
    def change(all_tensors, _):
        all_tensors[to] = all_tensors[source].copy()
    return tensors(change)


def each_layer(count, name, function):
    def change(all_tensors, _):
        for i in range(count):
            key = layer(i, name)
            all_tensors[key] = numpy.ascontiguousarray(function(all_tensors[key])).reshape(all_tensors[key].shape)
    return tensors(change)


def zero_tail(share):
    def change(words):
        flat = words.reshape(-1).copy()
        flat[int(len(flat) * (1 - share)) :] = 0
        return flat
    return change


def pairs(heads):
    """Hugging Face's order of rows becomes GGUF's."""
    def change(words):
        rows, cols = words.shape
        return words.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2)
    return change


def one(row, col, value):
    def change(words):
        words = words.copy()
        words[row, col] = value
        return words
    return change


def as_f16(all_tensors, file):
    name = layer(1, "self_attn.k_proj")
    file.dtypes[name] = "F16"


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 3])


def without(suffix):
    def change(all_tensors, _):
        for name in [n for n in all_tensors if suffix in n]:
            del all_tensors[name]
    return tensors(change)


def tokenizer(function):
    def change(folder):
        path = folder / "tokenizer.json"
        values = json.loads(path.read_text())
        function(values)
        path.write_text(json.dumps(values))
    return change


def drop_merges(share):
    def change(values):
        merges = values["model"]["merges"]
        values["model"]["merges"] = merges[: int(len(merges) * (1 - share))]
    return tokenizer(change)


def replace_text(name, old, new):
    def change(folder):
        path = folder / name
        text = path.read_text()
        assert old in text, (name, old)
        path.write_text(text.replace(old, new))
    return change


def no_bos(folder):
    tokenizer(lambda v: v.update(post_processor=None))(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "add_bos_token": False}))


PATIENTS = [
    # name, model, cause(s) of which one must be named, change
    ("eps", "llama", "norm_eps", config(rms_norm_eps=1e-6)),
    ("eps_gemma", "gemma3", "norm_eps", config(rms_norm_eps=1e-5)),
    ("eps_qwen", "qwen3", "norm_eps", config(rms_norm_eps=1e-5)),
    ("eps_demo", "demo", "norm_eps", config(rms_norm_eps=1e-5)),
    ("theta", "qwen3", "rope_theta", config(rope_parameters=each_theta(10000.0))),
    ("theta_odd", "llama", "rope_theta", config(rope_parameters=each_theta(123456.0))),
    ("theta_local", "gemma3", "rope_theta", config(rope_parameters=local_theta(1000000.0))),
    ("theta_local_demo", "demo", "rope_theta", config(rope_parameters=local_theta(20000.0))),
    ("thetas_swapped", "gemma3", "rope_theta", config(rope_parameters=swap_thetas)),
    ("scaling_none", "llama3", "rope_scaling", config(rope_parameters=lambda p: {"rope_theta": p["rope_theta"], "rope_type": "default"})),
    ("scaling_factor", "llama3", "rope_scaling", config(rope_parameters=lambda p: {**p, "factor": 8.0})),
    ("scaling_linear", "llama3", "rope_scaling", config(rope_parameters=lambda p: {"rope_theta": p["rope_theta"], "rope_type": "linear", "factor": 32.0})),
    ("scaling_forced", "llama", "rope_scaling", config(rope_parameters=lambda p: {**p, "rope_type": "linear", "factor": 4.0})),
    ("partial", "llama", "rope_dims", config(rope_parameters=lambda p: {**p, "partial_rotary_factor": 0.5})),
    ("window", "gemma3", "sliding_window", config(sliding_window=7)),
    ("window_large", "mistral", "sliding_window", config(sliding_window=9)),
    ("window_none", "mistral", "sliding_window", config(sliding_window=None)),
    ("window_demo", "demo", "sliding_window", config(sliding_window=4)),
    ("window_demo_late", "demo", "sliding_window", config(sliding_window=12)),
    ("layer_types", "gemma3", "layer_types", config(layer_types=["full_attention"] + ["sliding_attention"] * 4 + ["full_attention", "sliding_attention"])),
    ("layer_types_all", "gemma2", "layer_types", config(layer_types=["full_attention"] * 4)),
    ("layer_types_shift", "gemma3", "layer_types", config(layer_types=["sliding_attention"] * 4 + ["full_attention"] + ["sliding_attention"] * 2)),
    ("layer_types_demo", "demo", "layer_types", config(layer_types=["sliding_attention"] * 6 + ["full_attention", "sliding_attention"])),
    ("query_scalar", "gemma3", "attention_scale", config(query_pre_attn_scalar=64)),
    ("query_scalar_odd", "gemma2", "attention_scale", config(query_pre_attn_scalar=100)),
    ("query_scalar_demo", "demo", "attention_scale", config(query_pre_attn_scalar=256)),
    ("softcap", "gemma2", "attention_softcap", config(attn_logit_softcapping=None)),
    ("softcap_forced", "gemma3", "attention_softcap", config(attn_logit_softcapping=50.0)),
    ("final_softcap", "gemma2", "final_softcap", config(final_logit_softcapping=None)),
    ("final_softcap_other", "gemma2", "final_softcap", config(final_logit_softcapping=25.0)),
    ("activation", "gemma3", "activation", config(hidden_activation="silu")),
    ("activation_erf", "gemma3", "activation", config(hidden_activation="gelu")),
    ("activation_llama", "llama", "activation", config(hidden_act="gelu")),
    ("tie", "llama", "tied_head", config(tie_word_embeddings=True)),
    ("untie", "qwen3", "tied_head", config(tie_word_embeddings=False)),
    ("heads", "llama", "head_grouping", config(num_attention_heads=8, num_key_value_heads=4, head_dim=16)),
    ("layers_fewer", "llama", "layer_count", config(num_hidden_layers=2)),
    ("layers_more", "llama", ("layer_count", "tensor_missing"), config(num_hidden_layers=4)),
    ("family_llama_qwen3", "qwen3", "qk_norm_missing", config(model_type="llama")),
    ("family_gemma2", "gemma3", ("qk_norm_missing",), config(model_type="gemma2")),
    ("bias_flag", "qwen2", "bias_missing", config(model_type="llama")),
    ("no_q_norm", "qwen3", "qk_norm_missing", without("q_norm")),
    ("no_post_norm", "gemma3", "post_norm_missing", without("post_feedforward_layernorm")),
    ("truncated_file", "llama", "truncated_weight", truncate),
    ("truncated_down", "llama", "truncated_weight", set_tensor(layer(1, "mlp.down_proj"), zero_tail(0.5))),
    ("truncated_little", "demo", "truncated_weight", set_tensor(layer(3, "self_attn.o_proj"), zero_tail(0.1))),
    ("nan", "llama", "weight_nan", set_tensor(layer(2, "mlp.up_proj"), one(3, 5, 0x7FC0))),
    ("transposed", "llama", "weight_transposed", set_tensor(layer(1, "self_attn.q_proj"), lambda w: w.reshape(w.shape[::-1]).T)),
    ("transposed_down", "demo", "weight_transposed", set_tensor(layer(2, "mlp.down_proj"), lambda w: w.reshape(w.shape[::-1]).T)),
    ("transposed_back", "llama", "weight_transposed", set_tensor(layer(0, "mlp.gate_proj"), lambda w: w.T.copy().reshape(w.shape))),
    ("embedding_transposed", "llama", "weight_transposed", set_tensor("model.embed_tokens.weight", lambda w: w.reshape(w.shape[::-1]).T)),
    ("permuted_q", "llama", "weight_permuted", each_layer(3, "self_attn.q_proj", pairs(4))),
    ("permuted_k_demo", "demo", "weight_permuted", set_tensor(layer(0, "self_attn.k_proj"), pairs(2))),
    ("rows_reversed", "llama", "weight_permuted", set_tensor(layer(1, "mlp.up_proj"), lambda w: w[::-1])),
    ("shifted_rows", "llama", "weight_shifted", set_tensor(layer(1, "self_attn.v_proj"), lambda w: numpy.roll(w, 1, 0))),
    ("shifted_values", "qwen3", "weight_shifted", set_tensor(layer(1, "mlp.down_proj"), lambda w: numpy.roll(w.reshape(-1), 3))),
    ("shifted_embedding", "demo", "weight_shifted", set_tensor("model.embed_tokens.weight", lambda w: numpy.roll(w, 1, 0))),
    ("shifted_norm", "llama", "weight_shifted", set_tensor(layer(1, "input_layernorm"), lambda w: numpy.roll(w, 2))),
    ("stale", "llama", "stale_weight", copy(layer(1, "self_attn.o_proj"), layer(2, "self_attn.o_proj"))),
    ("stale_norm", "gemma3", "stale_weight", copy(layer(1, "post_attention_layernorm"), layer(2, "post_attention_layernorm"))),
    ("swapped_layers", "llama", "tensor_swapped", swap(layer(0, "mlp.down_proj"), layer(2, "mlp.down_proj"))),
    ("swapped_kv", "demo", "tensor_swapped", swap(layer(4, "self_attn.k_proj"), layer(4, "self_attn.v_proj"))),
    ("swapped_qk_norm", "qwen3", "tensor_swapped", swap(layer(1, "self_attn.q_norm"), layer(1, "self_attn.k_norm"))),
    ("gate_up", "llama", "gate_up_swapped", swap(layer(1, "mlp.gate_proj"), layer(1, "mlp.up_proj"))),
    ("dtype", "llama", "wrong_dtype", tensors(as_f16)),
    ("scaled", "llama", "weight_scaled", set_tensor(layer(1, "mlp.up_proj"), lambda w: to_bf16(to_float(w) * 2))),
    ("flipped_bit", "qwen3", "weight_wrong", set_tensor(layer(1, "mlp.up_proj"), one(17, 9, 0x4100))),
    ("norm_plus_one", "gemma3", ("norm_weight_offset",), tensors(lambda t, f: [t.__setitem__(n, to_bf16(to_float(t[n]) + 1)) for n in t if "norm" in n])),
    ("norm_minus_one", "llama", ("norm_weight_offset",), tensors(lambda t, f: [t.__setitem__(n, to_bf16(to_float(t[n]) - 1)) for n in t if "norm" in n])),
    ("embedding_scaled", "llama", ("embedding_scale", "weight_scaled"), set_tensor("model.embed_tokens.weight", lambda w: to_bf16(to_float(w) * 8))),
    ("merges_all", "demo", "merges_dropped", drop_merges(1)),
    ("merges_tenth", "demo", "merges_dropped", drop_merges(0.1)),
    ("merges_some", "demo", "merges_dropped", drop_merges(0.02)),
    ("double_bos", "demo", "double_bos", replace_text("chat_template.jinja", "{{- bos_token -}}", "{{- bos_token -}}{{- bos_token -}}")),
    ("no_bos", "demo", "bos_missing", no_bos),
    ("healthy_llama", "llama", None, lambda folder: None),
    ("healthy_demo", "demo", None, lambda folder: None),
]


def main():
    program, wanted = sys.argv[1], sys.argv[2:]
    good = 0
    chosen = [p for p in PATIENTS if not wanted or p[0] in wanted]
    for name, model, causes, change in chosen:
        source = ROOT / ("demo" if model == "demo" else f"tests/data/models/{model}")
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / "model"
            shutil.copytree(source, folder, ignore=shutil.ignore_patterns("training"))
            change(folder)
            run = subprocess.run([program, "doctor", folder, "--reference", source / "reference.safetensors", "--backend", "cpu", "--json"],
                                 capture_output=True, text=True)
        try:
            findings = json.loads(run.stdout)["findings"]
        except ValueError:
            findings = [{"cause": "ERROR " + run.stderr.strip(), "stage": "", "layer": 0, "explanation": "", "confidence": 0}]
        named = [f["cause"] for f in findings]
        expected = [] if causes is None else [causes] if isinstance(causes, str) else list(causes)
        right = (not named) if causes is None else len(named) > 0 and named[0] in expected and run.returncode == 1
        alone = right and len(named) <= 1
        good += alone
        print("ok " if alone else "?? " if right else "BAD", f"{name:20} {model:8}", "healthy" if not named else "")
        if not alone or "-v" in sys.argv:
            for f in findings:
                print(f"      {f['cause']} ({f['stage']} {f['layer']}, {f['confidence']:.2f}): {f['explanation']}")
    print(f"{good} of {len(chosen)} as they should be")
    return 0 if good == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
