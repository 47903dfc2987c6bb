"""Names what a transformer layer computes: from the calls of its modules to the stages of docs/recordings.md.

Knows nothing of torch and of model families. Modules are recognised by what flows into what (the norm whose output the
attention reads is the norm before attention, whatever it is called), and only inside attention and feed-forward by the
few names that models use for a projection. Arrays need only what numpy's have: shape, reshape, transpose, slices.
"""

import re
from dataclasses import dataclass, field


@dataclass
class Value:
    """A tensor as one call saw it. Two with the same key are the same memory at the same time."""

    key: object
    array: object
    integer: bool = False

    @property
    def shape(self):
        return tuple(self.array.shape)


@dataclass
class Call:
    """One call of a module. The path is relative to the layer: "" is the layer, "self_attn.q_proj" a projection."""

    path: str
    kind: str  # class name
    inputs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)

    @property
    def name(self):
        return self.path.rpartition(".")[2]

    @property
    def input(self):
        return self.inputs[0] if self.inputs else None

    @property
    def output(self):
        return self.outputs[0] if self.outputs else None


# The kind under which the attention function itself is reported: its inputs are query, key and value.
ATTENTION_FUNCTION = "(attention function)"

# Names inside attention and feed-forward. A family that calls its parts otherwise needs a word here, nothing else.
ROLES = {
    "q": {"q_proj", "q_b_proj", "query", "wq", "q_lin", "q"},
    "k": {"k_proj", "key", "wk", "k_lin", "k"},
    "v": {"v_proj", "value", "wv", "v_lin", "v"},
    "qkv": {"qkv_proj", "c_attn", "query_key_value", "Wqkv", "wqkv", "qkv", "in_proj"},
    "q_norm": {"q_norm", "query_norm", "q_layernorm", "query_layernorm", "q_ln"},
    "k_norm": {"k_norm", "key_norm", "k_layernorm", "key_layernorm", "k_ln"},
    "v_norm": {"v_norm", "value_norm", "v_layernorm"},
    "o": {"o_proj", "out_proj", "dense", "c_proj", "wo", "out_lin", "o"},
    "gate": {"gate_proj", "w1", "gate"},
    "up": {"up_proj", "w3", "up", "fc1", "c_fc", "fc_in", "dense_h_to_4h"},
    "gate_up": {"gate_up_proj", "gate_and_up_proj"},
    "down": {"down_proj", "w2", "down", "fc2", "c_proj", "fc_out", "dense_4h_to_h"},
    "ffn": {"mlp", "feed_forward", "ffn", "block_sparse_moe", "moe"},
    "router": {"gate", "router"},
    "experts": {"experts"},
}

# Stages that are what one module gives, by its name: latent attention's steps, a recurrent mixer's projections.
ATTENTION_STEPS = {"q_a_proj": "q_a_proj", "q_a_layernorm": "q_a_norm", "kv_a_proj_with_mqa": "kv_a_proj",
                   "kv_a_layernorm": "kv_a_norm"}
MIXER_STEPS = {"in_proj": "ssm_in", "in_proj_qkvz": "ssm_in", "in_proj_ba": "ssm_in_ba", "in_proj_b": "ssm_in_b",
               "in_proj_a": "ssm_in_a", "x_proj": "ssm_x_proj"}

_NORM = re.compile(r"norm|(^|_)ln(_|\d|$)", re.IGNORECASE)
_ATTENTION = re.compile(r"(^|_)(self_)?att(n|ention)($|_)|Attention$")
# A mixer with a state: it stands where attention does, and knows no queries, keys and values.
_MIXER = re.compile(r"(^|_)(mixer|mamba|ssm|linear_attn|conv)($|_)|Mamba|DeltaNet|ShortConv")
_FEED_FORWARD = re.compile(r"(MLP|Mlp|MoE|MOE|SparseMoe\w*|FeedForward)$")
_LINEAR = re.compile(r"Linear|Conv1D")
# Parts of a model that hold layers with attention but do not decode text.
_NOT_TEXT = re.compile(r"vision|visual|image|audio|speech|encoder|(^|\.)mtp", re.IGNORECASE)


class Unshaped(Exception):
    """A tensor that is not rows by token."""


def is_norm(name, kind):
    return bool(_NORM.search(name) or "Norm" in kind)


def mixes(name, kind):
    """Whether a module of this name and class lets tokens see each other."""
    return bool(_ATTENTION.search(name) or _ATTENTION.search(kind) or keeps_state(name, kind))


def keeps_state(name, kind):
    return bool(_MIXER.search(kind) or _MIXER.search(name) and not _FEED_FORWARD.search(kind))


def find_layers(modules):
    """The decoder's layers among (path, class name) of all modules: path of each layer, by index.

    They are the longest numbered list with an attention module or another mixer in it; of equally long ones the
    outermost. Raises LookupError if there is none.
    """
    lists = {}
    for path, _ in modules:
        parent, _, last = path.rpartition(".")
        if last.isdigit() and not _NOT_TEXT.search(parent):
            lists.setdefault(parent, set()).add(int(last))
    attending = set()
    for path, kind in modules:
        parts = path.split(".")
        if is_norm(parts[-1], kind) or not mixes(parts[-1], kind):
            continue
        attending.update(".".join(parts[:end]) for end in range(1, len(parts)))
    found = [
        (len(members), -parent.count("."), parent)
        for parent, members in lists.items()
        if any(f"{parent}.{i}" in attending for i in members)
    ]
    if not found:
        raise LookupError("no numbered list of modules with attention or another mixer in them")
    count, _, parent = max(found)
    return [f"{parent}.{i}" for i in sorted(lists[parent])]


def rows(value, tokens, flat=None):
    """The tensor as [tokens, width] or [tokens, heads, dim].

    Four dimensions come as [1, tokens, heads, dim] or [1, heads, tokens, dim]; where the two numbers are equal,
    `flat` (the same values as [tokens, heads * dim], before whatever was done to them) tells which.
    """
    array, shape = value.array, value.shape
    if len(shape) == 2 and shape[0] == tokens:
        return array
    if len(shape) == 3 and shape[0] == 1 and shape[1] == tokens:
        return array.reshape(shape[1:])
    if len(shape) == 3 and shape[0] == tokens:
        return array
    if len(shape) == 4 and shape[0] == 1:
        inner = array.reshape(shape[1:])
        tokens_first = shape[1] == tokens
        if tokens_first and shape[2] == tokens and flat is not None:
            tokens_first = flat(inner)
        if tokens_first:
            return inner
        if shape[2] == tokens:
            return inner.transpose((1, 0, 2))
    raise Unshaped(f"{'x'.join(map(str, shape))} is not one row for each of {tokens} tokens")


def same_values(a, b):
    return tuple(a.shape) == tuple(b.shape) and bool((a == b).all())


class Layer:
    """One layer's calls, in the order in which they ended, and the stages they hold."""

    def __init__(self, calls, tokens, equal=same_values, scales_queries=False):
        self.calls = calls
        self.tokens = tokens
        self.equal = equal
        self.scales_queries = scales_queries  # by their position, so that attention does not see what rope gave
        self.stages = {}
        self.notes = []  # why a stage that one would expect is not there

    def assemble(self):
        whole = next((c for c in self.calls if c.path == ""), None)
        if whole is None:
            return self.stages
        attention = self._attention_module()
        self._put("attn_input" if attention else "post_attn", whole.input)
        ffn = self._feed_forward(attention)
        self._residual_stream(whole, attention, ffn)
        mixer = self._mixer(attention)
        if mixer:
            self._inside_mixer(mixer, beside_attention=mixer is not attention)
        if attention and attention is not mixer:
            self._inside_attention(attention)
        if ffn:
            self._inside_feed_forward(ffn)
        self._put("layer_out", whole.output)
        return self.stages

    # -- finding the parts

    def _direct(self):
        return [c for c in self.calls if c.path and "." not in c.path and c.kind != ATTENTION_FUNCTION]

    def _inside(self, parent, role):
        """The call of the module directly below `parent` whose name has this role."""
        for c in self.calls:
            if c.path == f"{parent}.{c.name}" and c.name in ROLES[role] and c.kind != ATTENTION_FUNCTION:
                return c
        return None

    def _function(self):
        return next((c for c in self.calls if c.kind == ATTENTION_FUNCTION), None)

    def _attention_module(self):
        function = self._function()
        for c in self._direct():
            if function and (function.path == c.path or function.path.startswith(c.path + ".")):
                return c
        parts = [c for c in self._direct() if not is_norm(c.name, c.kind)]
        return next((c for c in parts if mixes(c.name, c.kind)), None)

    def _mixer(self, attention):
        """The recurrent mixer: beside attention, or what stands in its place."""
        function = self._function()
        for c in self._direct():
            attends = function and (function.path == c.path or function.path.startswith(c.path + "."))
            if keeps_state(c.name, c.kind) and not attends and not is_norm(c.name, c.kind) and (function or c is attention):
                return c
        return None

    def _feed_forward(self, attention):
        direct = self._direct()
        named = [c for c in direct if c.name in ROLES["ffn"]]
        named = named or [c for c in direct if c is not attention and _FEED_FORWARD.search(c.kind)
                          and _MIXER.search(c.name) and not is_norm(c.name, c.kind)]
        if named:
            return named[0]
        up = next((c for c in direct if c.name in ROLES["up"]), None)
        down = next((c for c in direct if c.name in ROLES["down"]), None)
        if up and down:  # projections that belong to the layer itself
            return Call("", "", up.inputs, down.outputs)
        known = [c for c in direct if c is not attention and not is_norm(c.name, c.kind) and not mixes(c.name, c.kind)]
        known = [c for c in known if any(other.path.startswith(c.path + ".") for other in self.calls)]
        return known[-1] if known else None

    # -- the stages

    def _put(self, stage, value, flat=None):
        if value is None:
            return
        try:
            self.stages[stage] = rows(value, self.tokens, flat)
        except Unshaped as why:
            self.notes.append(f"{stage}: {why}")

    def _residual_stream(self, whole, attention, ffn):
        """Everything that is told by what flows into what: norms and the sums between them."""
        norms = [c for c in self._direct() if is_norm(c.name, c.kind) and c.input and c.output]

        def before(module):
            return next((n for n in norms if module and module.input and n.output.key == module.input.key), None)

        def after(module):
            return next((n for n in norms if module and module.output and n.input.key == module.output.key), None)

        first, second = before(attention), before(ffn)
        self._put("attn_normed", first.output if first else None)
        behind = after(attention)
        self._put("post_attn_norm", behind.output if behind and behind is not second else None)
        if second and second is not first:  # the feed-forward beside attention reads the same norm
            self._put("ffn_normed", second.output)
        stream = second.input if second else ffn.input if ffn else None
        if stream and whole.input and stream.key != whole.input.key:
            self._put("post_attn", stream)
        if not ffn:
            return
        last, result = after(ffn), ffn.output
        mixed = self._norm_of_sum(norms, stream)
        if mixed:
            last, result = mixed, mixed.input
        beside = None if mixed else self._beside(ffn, attention)
        if beside:
            self.notes.append(f"ffn_out: {beside.name} reads the same rows, and no module gives the sum of both")
        else:
            self._put("ffn_out", result)
        self._put("post_ffn_norm", last.output if last else None)

    def _beside(self, ffn, attention):
        """Another module that reads what the feed-forward reads: a shared expert that belongs to the layer itself."""
        for c in self._direct():
            other = c is not ffn and c is not attention and c.path != ffn.path
            part = is_norm(c.name, c.kind) or mixes(c.name, c.kind) or c.name in ROLES["router"] | ROLES["experts"]
            alone = ffn.path and ffn.input and ffn.output and other and not part and c.input and c.output
            if alone and c.input.key == ffn.input.key and c.output.shape == ffn.output.shape:
                return c
        return None

    def _norm_of_sum(self, norms, stream):
        """Where experts stand beside a dense feed-forward: the norm of what both give together."""
        order = {id(c): i for i, c in enumerate(self.calls)}
        experts = next((c for c in self._direct() if c.name in ROLES["experts"]), None)
        if not experts:
            return None
        known = {c.output.key for c in self.calls if c.output} | {stream.key if stream else None}
        late = [n for n in norms if order[id(n)] > order[id(experts)]]
        return next((n for n in late if n.input.key not in known), None)

    def _inside_mixer(self, mixer, beside_attention):
        for c in self.calls:
            if c.path == f"{mixer.path}.{c.name}" and c.name in MIXER_STEPS:
                self._put(MIXER_STEPS[c.name], c.output)
        output = self._inside(mixer.path, "o")
        if output:
            self._put("ssm_gated", output.input)
            self._put("ssm_o_proj" if beside_attention else "o_proj", output.output)

    def _inside_attention(self, attention):
        function = self._function()
        at = function.path if function else attention.path
        for c in self.calls:
            if c.path == f"{at}.{c.name}" and c.name in ATTENTION_STEPS:
                self._put(ATTENTION_STEPS[c.name], c.output)
        projections = {role: self._inside(at, role) for role in ("q", "k", "v")}
        gated = self._split_gate(projections, self._inside(at, "q_norm"), function)
        for role, call in projections.items():
            self._put(f"{role}_proj", call.output if call else None)
        fused = self._inside(at, "qkv")
        if fused and fused.output and "q_proj" not in self.stages:
            self._split_fused(fused, function)
        for role in ("q", "k"):
            call = self._inside(at, f"{role}_norm")
            if call:
                self._put(f"{role}_norm", call.output, self._reads(call, self.stages.get(f"{role}_proj")))
        if function:
            self._rotated(function)
        output = self._inside(at, "o") or self._last_linear(at)
        if output:
            self._put("attn_gated" if gated else "attn_out", output.input)
            self._put("o_proj", output.output)

    def _split_gate(self, projections, norm, function):
        """A projection twice as wide as the queries holds, head by head, queries and the gate on what attention gives."""
        call = projections["q"]
        if not function or not call or not norm or not norm.input:
            return False
        queries, whole = self._heads(function.inputs[0]), rows(call.output, self.tokens)
        heads, dim = queries.shape[1], queries.shape[2]
        if tuple(whole.shape) != (self.tokens, 2 * heads * dim):
            return False
        by_head = whole.reshape((self.tokens, heads, 2 * dim))
        if not self.equal(rows(norm.input, self.tokens), by_head[..., 0:dim]):
            self.notes.append("q_proj: it is twice as wide as the queries, and its order is unknown")
            return True
        del projections["q"]
        self.stages["q_proj"] = by_head[..., 0:dim].reshape((self.tokens, heads * dim))
        self.stages["attn_gate"] = by_head[..., dim:2 * dim].reshape((self.tokens, heads * dim))
        return True

    def _reads(self, norm, projected):
        """Asks whether a norm reads the projection with tokens before heads."""
        def tokens_first(_):
            if projected is None or not norm.input or len(norm.input.shape) != 4:
                return True
            inner = norm.input.array.reshape(norm.input.shape[1:])
            return self.equal(inner.reshape(tuple(projected.shape)), projected)

        return tokens_first

    def _last_linear(self, parent):
        linear = [c for c in self.calls if c.path == f"{parent}.{c.name}" and _LINEAR.search(c.kind)]
        return linear[-1] if linear else None

    def _heads(self, value):
        """[1, heads, positions, dim] as [tokens, heads, dim]: the last positions are the prompt's."""
        _, heads, positions, dim = value.shape
        array = value.array.reshape((heads, positions, dim)).transpose((1, 0, 2))
        return array[positions - self.tokens:]

    def _split_fused(self, fused, function):
        """One projection for q, k and v: side by side, or head by head. The values, never rotated, tell which."""
        whole = rows(fused.output, self.tokens)
        if not function:
            self.notes.append("qkv_proj: no attention function seen, so its columns are unknown")
            return
        q, k, v = (self._heads(value) for value in function.inputs[:3])
        width = whole.shape[1]
        sizes = [a.shape[1] * a.shape[2] for a in (q, k, v)]
        if sum(sizes) == width and self.equal(whole[..., width - sizes[2]:], v.reshape((self.tokens, sizes[2]))):
            self.stages["qkv_proj"] = whole
            return
        if sizes[0] == sizes[1] == sizes[2] and sum(sizes) == width:
            heads, dim = v.shape[1], v.shape[2]
            by_head = whole.reshape((self.tokens, heads, 3 * dim))
            parts = [by_head[..., i * dim:(i + 1) * dim] for i in range(3)]
            if self.equal(parts[2], v):
                for stage, part in zip(("q_proj", "k_proj", "v_proj"), parts):
                    self.stages[stage] = part.reshape((self.tokens, heads * dim))
                return
        self.notes.append(f"qkv_proj: the order of its {width} columns is unknown")

    def _rotated(self, function):
        """q and k as attention sees them, unless k is what its projection gave: then this layer rotates nothing."""
        shown = {}
        for role, value in zip(("q", "k"), function.inputs):
            if f"{role}_proj" in self.stages or "qkv_proj" in self.stages:  # not keys of another layer
                shown[role] = self._heads(value)
        if self.tokens > 1 and "k" in shown:  # the first position is turned by nothing, so one token cannot tell
            size = shown["k"].shape[1] * shown["k"].shape[2]
            flat, plain = shown["k"].reshape((self.tokens, size)), self._unrotated_keys(size)
            if plain is not None and self.equal(flat, plain):
                self.notes.append("q_rope: this layer rotates nothing")
                return
        for role, array in shown.items():
            if self._is_normed(array, function.path):
                self.notes.append(f"{role}_rope: a norm follows, and what it reads is not seen")
                continue
            self.stages["q_scaled" if role == "q" and self.scales_queries else f"{role}_rope"] = array

    def _is_normed(self, array, at):
        """Whether attention sees what a norm gave that is no norm before the rotation."""
        known = ROLES["q_norm"] | ROLES["k_norm"] | ROLES["v_norm"] | set(ATTENTION_STEPS)
        for c in self.calls:
            inside = c.path == f"{at}.{c.name}" and c.name not in known and is_norm(c.name, c.kind)
            if not inside or not c.output or len(c.output.shape) != 4:
                continue
            try:
                if self.equal(rows(c.output, self.tokens), array):
                    return True
            except Unshaped:
                continue
        return False

    def _unrotated_keys(self, size):
        for stage in ("k_norm", "k_proj"):
            plain = self.stages.get(stage)
            if plain is not None:
                count = 1
                for extent in plain.shape[1:]:
                    count *= extent
                return plain.reshape((self.tokens, size)) if count == size else None
        whole = self.stages.get("qkv_proj")
        return None if whole is None else whole[..., whole.shape[1] - 2 * size:whole.shape[1] - size]

    def _inside_feed_forward(self, ffn):
        parent = ffn.path
        experts, router = self._find(parent, "experts"), self._find(parent, "router")
        several = any(c.path.startswith(f"{parent}.experts.") for c in self.calls)  # each a module of its own
        if experts or several or (router and router.name == "router"):
            self._routing(router, experts)
            return
        if self._find("", "experts"):  # experts beside a dense feed-forward
            self._routing(self._find("", "router"), self._find("", "experts"))
        gate, up, both = (self._find(parent, role) for role in ("gate", "up", "gate_up"))
        self._put("ffn_gate", gate.output if gate else None)
        self._put("ffn_up", up.output if up else None)
        self._put("ffn_gate_up", both.output if both else None)
        down = self._find(parent, "down")
        self._put("ffn_act", down.input if down else None)

    def _find(self, parent, role):
        if parent:
            return self._inside(parent, role)
        return next((c for c in self._direct() if c.name in ROLES[role]), None)

    def _routing(self, router, experts):
        if router is None:
            return
        # Some give the chosen weights, too: the logits are as many as there are experts.
        floats = [v for v in router.outputs if not v.integer and len(v.shape) >= 2]
        self._put("router_logits", max(floats, key=lambda v: v.shape[-1], default=None))
        # What the experts are told is what counts; the router may say less, or say it in another form.
        for told in ([experts.inputs] if experts else []) + [router.outputs]:
            ids = next((v for v in told if v.integer and len(v.shape) >= 2), None)
            if ids is None:
                continue
            self._put("router_ids", ids)
            weights = next((v for v in told if not v.integer and v.shape == ids.shape), None)
            self._put("router_weights", weights)
            return
        self.notes.append("router_ids: the choice of experts is made inside a module and cannot be seen")


def top_stages(calls, first_input, last_output, tokens):
    """The stages around the layers, from the calls of modules outside them, and notes on what is missing."""
    wanted = {"embed_out": first_input}
    norms = [c for c in calls if is_norm(c.name, c.kind) and c.input and c.output]
    final = next((n for n in norms if n.input.key == last_output.key), norms[-1] if norms else None)
    if final:
        wanted.update(pre_final_norm=final.input, final_norm=final.output)
    stages, notes = {}, []
    for stage, value in wanted.items():
        try:
            stages[stage] = rows(value, tokens)
        except Unshaped as why:
            notes.append(f"{stage}: {why}")
    return stages, notes
