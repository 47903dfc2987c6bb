"""The naming of tools/hf_record.py, without PyTorch: on calls that transformers' modules made (traces.json, written by
make_traces.py) and on small layers made up here."""

import json
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
from hf_stages import ATTENTION_FUNCTION, Call, Layer, Unshaped, Value, find_layers, rows, top_stages  # noqa: E402
import hf_record  # noqa: E402

TRACES = json.loads((HERE / "traces.json").read_text())


def size_of(shape):
    size = 1
    for extent in shape:
        size *= extent
    return size


class Shape:
    """An array that knows only its shape."""

    def __init__(self, *shape):
        self.shape = tuple(shape)

    def reshape(self, shape):
        assert size_of(shape) == size_of(self.shape), f"{self.shape} as {shape}"
        return Shape(*shape)

    def transpose(self, axes):
        return Shape(*(self.shape[axis] for axis in axes))

    def __getitem__(self, key):
        if isinstance(key, slice):
            return Shape(len(range(*key.indices(self.shape[0]))), *self.shape[1:])
        assert key[0] is Ellipsis
        return Shape(*self.shape[:-1], len(range(*key[1].indices(self.shape[-1]))))


class Array:
    """An array of numbers, in plain Python: what the naming needs of numpy's."""

    def __init__(self, shape, numbers):
        self.shape, self.numbers = tuple(shape), list(numbers)
        assert size_of(shape) == len(self.numbers)

    def reshape(self, shape):
        return Array(shape, self.numbers)

    def _at(self, index):
        place = 0
        for extent, i in zip(self.shape, index):
            place = place * extent + i
        return self.numbers[place]

    def _built(self, shape, source):
        indices = [()]
        for extent in shape:
            indices = [index + (i,) for index in indices for i in range(extent)]
        return Array(shape, [self._at(source(index)) for index in indices])

    def transpose(self, axes):
        back = [axes.index(axis) for axis in range(len(axes))]
        return self._built([self.shape[a] for a in axes], lambda index: [index[b] for b in back])

    def __getitem__(self, key):
        if isinstance(key, slice):
            kept = range(*key.indices(self.shape[0]))
            return self._built((len(kept), *self.shape[1:]), lambda index: [kept[index[0]], *index[1:]])
        kept = range(*key[1].indices(self.shape[-1]))
        return self._built((*self.shape[:-1], len(kept)), lambda index: [*index[:-1], kept[index[-1]]])


def equal_arrays(a, b):
    return a.shape == b.shape and a.numbers == b.numbers


def counted(*shape, start=0):
    return Array(shape, range(start, start + size_of(shape)))


def value(array, key=None):
    return Value(key if key is not None else object(), array)


class RealModules(unittest.TestCase):
    """What transformers' modules call must come out under the names and shapes of the fixtures."""

    def traced_layer(self, trace):
        def read(values):
            return [Value(number, Shape(*shape), bool(integer)) for number, shape, integer in values]

        answers = iter(trace["equal"])
        calls = [Call(path, kind, read(inputs), read(outputs)) for path, kind, inputs, outputs in trace["calls"]]
        return Layer(calls, trace["tokens"], lambda a, b: bool(next(answers)))

    def test_every_family_gets_the_names_and_shapes_of_its_fixture(self):
        self.assertGreaterEqual(len(TRACES), 11)
        for family, trace in TRACES.items():
            with self.subTest(family):
                stages = {name: list(array.shape) for name, array in self.traced_layer(trace).assemble().items()}
                if family == "gemma4":  # whose fixture leaves these out
                    self.assertEqual(stages.pop("q_rope"), [20, 4, 32])
                    self.assertEqual(stages.pop("k_rope"), [20, 1, 32])
                self.assertEqual(stages, trace["reference"])

    def test_the_traces_expect_what_the_fixtures_in_this_repository_hold(self):
        checked = 0
        for family, trace in TRACES.items():
            file = ROOT / "tests/data/models" / family / "reference.safetensors"
            if not file.exists():
                continue
            content = file.read_bytes()
            header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
            shapes = {name.removeprefix("layers.0."): entry["shape"] for name, entry in header.items()
                      if name.startswith("layers.0.")}
            self.assertEqual(trace["reference"], shapes, family)
            checked += 1
        self.assertGreaterEqual(checked, 7)

    def test_layers_are_found_among_all_modules(self):
        for family, trace in TRACES.items():
            self.assertEqual(find_layers(trace["modules"]), trace["layers"], family)

    def test_no_family_is_known_by_name(self):
        for file in ("hf_stages.py", "hf_record.py"):
            text = (ROOT / "tools" / file).read_text().lower()
            for family in ("llama", "gemma", "qwen", "mistral", "mixtral", "phi3", "gpt_oss", "falcon"):
                self.assertNotIn(family, text, file)


class FindingLayers(unittest.TestCase):
    def test_towers_for_pictures_and_lists_of_experts_are_no_decoder(self):
        modules = [(f"model.vision_tower.layers.{i}.self_attn", "VisionAttention") for i in range(9)]
        modules += [(f"model.vision_tower.layers.{i}", "VisionLayer") for i in range(9)]
        for i in range(2):
            modules += [(f"model.language_model.layers.{i}", "Layer"), (f"model.language_model.layers.{i}.attn", "Any")]
            modules += [(f"model.language_model.layers.{i}.mlp.experts.{e}", "MLP") for e in range(12)]
        self.assertEqual(find_layers(modules), ["model.language_model.layers.0", "model.language_model.layers.1"])

    def test_the_longest_list_is_the_decoder(self):
        modules = [(f"heads.{i}.attn", "Any") for i in range(2)] + [(f"heads.{i}", "Layer") for i in range(2)]
        modules += [(f"h.{i}.attn", "Any") for i in range(5)] + [(f"h.{i}", "Layer") for i in range(5)]
        modules += [(f"a.{i}.attn", "Any") for i in range(3)] + [(f"a.{i}", "Layer") for i in range(3)]
        self.assertEqual(find_layers(modules), [f"h.{i}" for i in range(5)])

    def test_a_norm_named_after_attention_is_no_attention(self):
        modules = [(f"model.layers.{i}", "Layer") for i in range(3)]
        modules += [(f"model.layers.{i}.post_attention_layernorm", "RMSNorm") for i in range(3)]
        with self.assertRaises(LookupError):
            find_layers(modules)

    def test_a_mixer_with_a_state_makes_a_layer(self):
        modules = [(f"backbone.layers.{i}", "Block") for i in range(3)]
        modules += [(f"backbone.layers.{i}.mixer", "Mamba2Mixer" if i < 2 else "LargeMLP") for i in range(3)]
        self.assertEqual(find_layers(modules), [f"backbone.layers.{i}" for i in range(3)])

    def test_a_model_without_layers_is_refused(self):
        with self.assertRaises(LookupError):
            find_layers([("embed", "Embedding"), ("head", "Linear"), ("list.0", "Linear")])


def attention_calls(projections, query, key, cells, at="attn"):
    """The calls of an attention module: its projections, the function, the output projection."""
    tokens = cells.shape[2]
    mixed = value(Array((1, tokens, cells.shape[1] * cells.shape[3]), [0] * size_of(cells.shape)))
    return [*projections, Call(at, ATTENTION_FUNCTION, [value(query), value(key), value(cells)]),
            Call(f"{at}.wo", "Linear", [mixed], [value(mixed.array)])]


class Attention(unittest.TestCase):
    # 3 tokens, 2 heads of 2.
    def layer(self, projections, query, key, cells):
        entering, leaving = value(counted(1, 3, 4), "in"), value(counted(1, 3, 4), "out")
        calls = attention_calls(projections, query, key, cells)
        calls += [Call("attn", "Any", [entering], [value(counted(1, 3, 4), "mixed")]), Call("", "Block", [entering], [leaving])]
        return Layer(calls, 3, equal_arrays)

    def heads(self, flat):
        return flat.reshape((3, 2, 2)).transpose((1, 0, 2)).reshape((1, 2, 3, 2))

    def test_a_fused_projection_with_q_k_v_side_by_side_stays_whole(self):
        whole = counted(3, 12)
        q, k, v = (self.heads(whole[..., 4 * i:4 * i + 4]) for i in range(3))
        turned = Array(q.shape, [-x for x in q.numbers]), Array(k.shape, [-x for x in k.numbers])
        layer = self.layer([Call("attn.qkv_proj", "Linear", [], [value(whole.reshape((1, 3, 12)))])], *turned, v)
        stages = layer.assemble()
        self.assertEqual(stages["qkv_proj"].numbers, whole.numbers)
        self.assertIn("q_rope", stages)
        self.assertNotIn("v_proj", stages)

    def test_a_fused_projection_head_by_head_is_taken_apart(self):
        whole = counted(3, 12)
        by_head = whole.reshape((3, 2, 6))
        q, k, v = (self.heads(by_head[..., 2 * i:2 * i + 2].reshape((3, 4))) for i in range(3))
        turned = Array(q.shape, [-x for x in q.numbers]), Array(k.shape, [-x for x in k.numbers])
        stages = self.layer([Call("attn.query_key_value", "Linear", [], [value(whole)])], *turned, v).assemble()
        self.assertNotIn("qkv_proj", stages)
        self.assertEqual(stages["v_proj"].numbers[:4], [4, 5, 10, 11])
        self.assertEqual(stages["q_proj"].numbers[:4], [0, 1, 6, 7])

    def test_a_fused_projection_in_an_unknown_order_is_left_out_and_said_so(self):
        whole = counted(3, 12)
        other = counted(1, 2, 3, 2, start=500)
        layer = self.layer([Call("attn.qkv", "Linear", [], [value(whole)])], other, other, other)
        self.assertNotIn("qkv_proj", layer.assemble())
        self.assertIn("order of its 12 columns is unknown", layer.notes[0])

    def test_a_layer_that_rotates_nothing_has_no_rope_stages(self):
        q, k, v = (counted(3, 4, start=100 * i) for i in range(3))
        named = [Call(f"attn.{n}_proj", "Linear", [], [value(a.reshape((1, 3, 4)))]) for n, a in zip("qkv", (q, k, v))]
        layer = self.layer(named, self.heads(q), self.heads(k), self.heads(v))
        stages = layer.assemble()
        self.assertEqual(stages["k_proj"].numbers, k.numbers)
        self.assertNotIn("q_rope", stages)
        self.assertNotIn("k_rope", stages)
        self.assertIn("rotates nothing", layer.notes[0])

    def test_what_a_norm_behind_the_rotation_gives_is_not_what_rope_gave(self):
        q, k, v = (counted(3, 4, start=100 * i) for i in range(3))
        named = [Call(f"attn.{n}_proj", "Linear", [], [value(a)]) for n, a in zip("qkv", (q, k, v))]
        turned, normed = counted(3, 4, start=500), counted(3, 4, start=600)
        named.append(Call("attn.qk_norm", "L2Norm", [value(turned.reshape((1, 3, 2, 2)))],
                          [value(normed.reshape((1, 3, 2, 2)))]))
        layer = self.layer(named, self.heads(turned), self.heads(normed), self.heads(v))
        stages = layer.assemble()
        self.assertIn("q_rope", stages)
        self.assertNotIn("k_rope", stages)
        self.assertIn("a norm follows", layer.notes[0])

    def test_a_projection_of_queries_and_gates_head_by_head_is_taken_apart(self):
        whole, k, v = counted(3, 8), counted(3, 4, start=100), counted(3, 4, start=200)
        queries = whole.reshape((3, 2, 4))[..., 0:2]
        named = [Call(f"attn.{n}_proj", "Linear", [], [value(a)]) for n, a in zip("qkv", (whole, k, v))]
        named.append(Call("attn.q_norm", "RMSNorm", [value(queries.reshape((1, 3, 2, 2)))], [value(queries.reshape((1, 3, 2, 2)))]))
        turned = self.heads(counted(3, 4, start=300))
        stages = self.layer(named, turned, turned, self.heads(v)).assemble()
        self.assertEqual(stages["q_proj"].numbers[:4], [0, 1, 4, 5])
        self.assertEqual(stages["attn_gate"].numbers[:4], [2, 3, 6, 7])
        self.assertIn("attn_gated", stages)
        self.assertNotIn("attn_out", stages)

    def test_queries_that_grow_with_their_position_are_not_what_rope_gave(self):
        q, k, v = (counted(3, 4, start=100 * i) for i in range(3))
        named = [Call(f"attn.{n}_proj", "Linear", [], [value(a)]) for n, a in zip("qkv", (q, k, v))]
        layer = self.layer(named, self.heads(q), self.heads(q), self.heads(v))
        layer.scales_queries = True
        stages = layer.assemble()
        self.assertIn("q_scaled", stages)
        self.assertIn("k_rope", stages)
        self.assertNotIn("q_rope", stages)

    def test_the_output_projection_is_the_last_linear_one_whatever_its_name(self):
        q, k, v = (counted(3, 4, start=100 * i) for i in range(3))
        layer = self.layer([], self.heads(q), self.heads(k), self.heads(v))
        for call in layer.calls:
            if call.name == "wo":
                call.path = "attn.mixer"
        self.assertEqual(layer.assemble()["o_proj"].shape, (3, 4))


class Mixers(unittest.TestCase):
    """Layers that keep a state instead of keys and values."""

    def stages(self, *calls):
        return Layer([*calls, Call("", "Block", [value(Shape(3, 4), "in")], [value(Shape(3, 4), "out")])], 3).assemble()

    def call(self, path, kind, read, written):
        return Call(path, kind, [value(Shape(3, 4), read)], [value(Shape(3, len(written)), written)])

    def test_the_projections_of_a_mixer_have_names_of_their_own(self):
        stages = self.stages(self.call("norm", "RMSNorm", "in", "n"), self.call("mixer.in_proj", "Linear", "n", "p" * 9),
                             self.call("mixer.out_proj", "Linear", "g", "oo"), self.call("mixer", "Mamba2Mixer", "n", "oo"))
        self.assertEqual({name: array.shape[1] for name, array in stages.items()},
                         {"attn_input": 4, "attn_normed": 1, "ssm_in": 9, "ssm_gated": 4, "o_proj": 2, "layer_out": 4})

    def test_a_layer_that_is_only_a_feed_forward_has_no_mixer(self):
        stages = self.stages(self.call("norm", "RMSNorm", "in", "n"), self.call("mixer.up_proj", "Linear", "n", "u"),
                             self.call("mixer.down_proj", "Linear", "a", "d"), self.call("mixer", "LargeMLP", "n", "d"))
        self.assertEqual(set(stages), {"post_attn", "ffn_normed", "ffn_up", "ffn_act", "ffn_out", "layer_out"})

    def test_the_logits_are_as_many_as_the_experts(self):
        router = Call("mlp.gate", "Router", [], [Value(1, Shape(3, 2)), Value(2, Shape(3, 8)), Value(3, Shape(3, 2), True)])
        stages = self.stages(self.call("attn", "Attention", "in", "a"), router, self.call("mlp.experts", "Experts", "n", "x"),
                             self.call("mlp", "SparseMoe", "sum", "m"))
        self.assertEqual(stages["router_logits"].shape, (3, 8))
        self.assertEqual(stages["router_weights"].shape, (3, 2))


class Rows(unittest.TestCase):
    def test_heads_come_second_whichever_way_the_model_holds_them(self):
        tokens_first = counted(1, 3, 2, 4)
        heads_first = tokens_first.reshape((3, 2, 4)).transpose((1, 0, 2)).reshape((1, 2, 3, 4))
        for array in (tokens_first, heads_first):
            self.assertEqual(rows(value(array), 3).numbers, tokens_first.numbers)

    def test_as_many_tokens_as_heads_are_told_apart_by_what_the_norm_reads(self):
        flat = counted(2, 8)  # the projection: 2 tokens, 2 heads of 4
        heads_first = flat.reshape((2, 2, 4)).transpose((1, 0, 2)).reshape((1, 2, 2, 4))
        for read in (flat.reshape((1, 2, 2, 4)), heads_first):
            norm = Call("attn.q_norm", "RMSNorm", [value(read)], [value(read)])
            calls = [Call("attn.q_proj", "Linear", [], [value(flat)]), norm, Call("attn", "Attention", [], []), Call("", "Block")]
            self.assertEqual(Layer(calls, 2, equal_arrays).assemble()["q_norm"].numbers, flat.numbers)

    def test_what_is_no_row_for_each_token_is_refused(self):
        for shape in ((7,), (4, 8), (2, 3, 8), (2, 1, 3, 8), (1, 5, 6, 3)):
            with self.assertRaises(Unshaped):
                rows(value(Shape(*shape)), 3)


class Streams(unittest.TestCase):
    """Norms are told apart by what flows into what, not by their names."""

    def names(self, *calls):
        return set(Layer([*calls, Call("", "Block", [value(Shape(3, 4), "in")], [value(Shape(3, 4), "out")])], 3).assemble())

    def call(self, path, kind, read, written):
        return Call(path, kind, [value(Shape(3, 4), read)], [value(Shape(3, 4), written)])

    def test_norms_only_behind_attention_and_feed_forward(self):
        names = self.names(self.call("attn", "Attention", "in", "a"), self.call("n1", "RMSNorm", "a", "b"),
                           self.call("mlp", "MLP", "sum", "c"), self.call("n2", "RMSNorm", "c", "d"))
        self.assertEqual(names, {"attn_input", "post_attn_norm", "post_attn", "ffn_out", "post_ffn_norm", "layer_out"})

    def test_attention_and_feed_forward_side_by_side_have_no_stream_between(self):
        for reads in ("n", "in"):  # the norm that attention reads, or what enters the layer
            names = self.names(self.call("ln", "LayerNorm", "in", "n"), self.call("attn", "Attention", "n", "a"),
                               self.call("mlp", "MLP", reads, "m"))
            self.assertEqual(names, {"attn_input", "attn_normed", "ffn_out", "layer_out"}, reads)

    def test_a_shared_expert_beside_the_feed_forward_leaves_its_sum_unseen(self):
        calls = [self.call("self_attn", "Attention", "in", "a"), self.call("ln", "RMSNorm", "sum", "n"),
                 self.call("block_sparse_moe", "MoE", "n", "m"), self.call("shared_mlp", "MLP", "n", "s")]
        self.assertNotIn("ffn_out", self.names(*calls))
        self.assertIn("ffn_out", self.names(*calls[:3]))

    def test_swapped_names_do_not_mislead(self):
        calls = [self.call("post_attention_layernorm", "RMSNorm", "in", "n"), self.call("attn", "Attention", "n", "a"),
                 self.call("input_layernorm", "RMSNorm", "sum", "s"), self.call("mlp", "MLP", "s", "m")]
        for call, number in zip(calls, range(4)):
            call.outputs[0].array = Shape(3, 10 + number)
        stages = Layer([*calls, Call("", "Block", calls[0].inputs, calls[3].outputs)], 3).assemble()
        self.assertEqual((stages["attn_normed"].shape, stages["ffn_normed"].shape), ((3, 10), (3, 12)))

    def test_the_final_norm_is_the_one_that_reads_the_last_layer(self):
        calls = [self.call("model.first_norm", "RMSNorm", "x", "y"), self.call("model.norm", "RMSNorm", "out", "z"),
                 self.call("model.other_norm", "RMSNorm", "z", "w")]
        calls[1].outputs[0].array = Shape(3, 9)
        stages, notes = top_stages(calls, value(Shape(1, 3, 4)), value(Shape(1, 3, 4), "out"), 3)
        self.assertEqual(stages["final_norm"].shape, (3, 9))
        self.assertEqual((stages["embed_out"].shape, notes), ((3, 4), []))


class CommandLine(unittest.TestCase):
    def test_ids_are_whole_numbers(self):
        self.assertEqual(hf_record.parse_ids("2,5 9"), [2, 5, 9])
        for wrong in ("", "2,x", "-1", "2.5"):
            with self.assertRaises(hf_record.Refused):
                hf_record.parse_ids(wrong)


if __name__ == "__main__":
    unittest.main()
