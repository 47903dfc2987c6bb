// Plans that no family of today has: their single tokens run in the decode program too, group by group, with
// the reference's results, with continuation and with taps.
#include <algorithm>
#include <functional>
#include <vector>

#include "gpu_harness.h"
#include "harness.h"
#include "model_fixture.h"
#include "plan/fuse.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::size_t kLayers = 2;  // enough, and software adapters compile for long

// A plan that is being changed, and the model's weights, which may become more before plans are built.
class Edit {
 public:
  explicit Edit(Plan& plan) : plan_(plan) {}
  std::size_t index(Stage stage, int layer) const {
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      const Value& v = plan_.values[plan_.ops[i].outputs[0]];
      if (v.stage == stage && v.layer == layer) return i;
    }
    ADD_FAILURE() << "nothing computes " << stage_key(stage, layer);
    return 0;
  }
  Op& op(Stage stage, int layer) { return plan_.ops[index(stage, layer)]; }
  ValueId value(Stage stage, int layer) { return op(stage, layer).outputs[0]; }
  // Whoever reads `from` reads `to`.
  void redirect(ValueId from, ValueId to) {
    for (Op& op : plan_.ops) std::ranges::replace(op.inputs, from, to);
  }
  // The op's input passes by it.
  void remove(Stage stage, int layer) {
    const std::size_t at = index(stage, layer);
    const ValueId out = plan_.ops[at].outputs[0], in = plan_.ops[at].inputs[0];
    plan_.ops.erase(plan_.ops.begin() + static_cast<std::ptrdiff_t>(at));
    redirect(out, in);
  }
  // Puts an op behind the one that computes `after`, with a nameless output of that width.
  ValueId insert(ValueId after, Op op, std::uint32_t width) {
    const auto made = std::ranges::find_if(
        plan_.ops, [&](const Op& o) { return std::ranges::count(o.outputs, after) != 0; });
    Value out = plan_.values[after];
    out.width = width;
    out.stage = Stage::kNone;
    plan_.values.push_back(out);
    op.layer = out.layer;
    op.outputs = {static_cast<ValueId>(plan_.values.size() - 1)};
    plan_.ops.insert(made + 1, op);
    return op.outputs[0];
  }
  void move_before(Stage stage, Stage target, int layer) {
    const Op moved = op(stage, layer);
    plan_.ops.erase(plan_.ops.begin() + static_cast<std::ptrdiff_t>(index(stage, layer)));
    plan_.ops.insert(plan_.ops.begin() + static_cast<std::ptrdiff_t>(index(target, layer)), moved);
  }
  Plan& plan() { return plan_; }

 private:
  Plan& plan_;
};

Op make_op(OpKind kind, std::vector<ValueId> inputs, std::vector<WeightId> weights, OpParams params) {
  Op op;
  op.kind = kind;
  op.inputs = std::move(inputs);
  op.weights = std::move(weights);
  op.params = params;
  return op;
}

// Weights that a model gets besides its own.
class MoreWeights {
 public:
  explicit MoreWeights(Model& model) : model_(model) {}
  WeightId add(WeightRole role, int layer, Shape shape, float mean, float deviation) {
    const std::string name = fmt::format("extra.{}", tensors_.size());
    tensors_.push_back(std::make_unique<TinyTensor>(random_tensor(name, std::move(shape), mean, deviation)));
    return model_.weights.add(role, layer, tensors_.back()->view(name));
  }
  // Of no role that a plan would look for.
  WeightId add(Shape shape, float mean = 0, float deviation = 0.1f) {
    return add(WeightRole::kQ, static_cast<int>(1000 + tensors_.size()), std::move(shape), mean, deviation);
  }
  const Model& model() const { return model_; }

 private:
  Model& model_;
  std::vector<std::unique_ptr<TinyTensor>> tensors_;
};

using Change = std::function<void(Edit&)>;

struct Oddity {
  const char* name;
  const char* model;
  Change (*make)(MoreWeights& more);
};

void make_parallel(Edit& e) {
  for (int l = 0; l < static_cast<int>(kLayers); ++l) {
    e.op(Stage::kFfnNormed, l).inputs = {e.op(Stage::kAttnNormed, l).inputs[0]};
    e.move_before(Stage::kPostAttn, Stage::kLayerOut, l);
  }
}

// As an adapter has them: b a x, added to what a product gives.
void add_adapter(Edit& e, Stage stage, int layer, WeightId a, WeightId b, std::uint32_t rank) {
  const ValueId x = e.op(stage, layer).inputs[0], y = e.value(stage, layer);
  const std::uint32_t width = e.plan().values[y].width;
  const ValueId low = e.insert(y, make_op(OpKind::kMatmul, {x}, {a}, MatmulParams{}), rank);
  e.plan().values[low].heads = 1;
  const ValueId high = e.insert(low, make_op(OpKind::kMatmul, {low}, {b}, MatmulParams{}), width);
  const ValueId sum = e.insert(high, make_op(OpKind::kAdd, {y, high}, {}, AddParams{}), width);
  e.plan().values[sum].heads = e.plan().values[y].heads;
  e.redirect(y, sum);
  std::ranges::find_if(e.plan().ops, [&](const Op& op) { return op.outputs[0] == sum; })->inputs = {y, high};
}

const Oddity kOddities[] = {
    {"NormMissing", "models/llama",
     [](MoreWeights&) -> Change { return [](Edit& e) { e.remove(Stage::kFfnNormed, 1); }; }},
    {"NormTwice", "models/qwen2",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         const Op norm = e.op(Stage::kAttnNormed, 1);
         const ValueId first = norm.outputs[0];
         const std::uint32_t width = e.plan().values[first].width;
         Op again = norm;
         again.inputs = {first};
         const ValueId second = e.insert(first, again, width);
         e.redirect(first, second);
         std::ranges::find_if(e.plan().ops, [&](const Op& op) { return op.outputs[0] == second; })->inputs = {
             first};
       };
     }},
    {"BranchAddedTwice", "models/gemma3",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         const Op sum = e.op(Stage::kLayerOut, 0);
         const ValueId twice = e.insert(sum.outputs[0], make_op(OpKind::kAdd, {}, {}, AddParams{}),
                                        e.plan().values[sum.outputs[0]].width);
         e.redirect(sum.outputs[0], twice);
         std::ranges::find_if(e.plan().ops, [&](const Op& op) { return op.outputs[0] == twice; })->inputs = {
             sum.outputs[0], sum.inputs[1]};
       };
     }},
    {"ParallelResidual", "models/llama", [](MoreWeights&) -> Change { return make_parallel; }},
    {"ParallelResidualOfQuantisedWeights", "gguf/llama.Q4_0.gguf",
     [](MoreWeights&) -> Change { return make_parallel; }},
    {"ParallelResidualWithOneNorm", "models/qwen2",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         make_parallel(e);
         for (int l = 0; l < static_cast<int>(kLayers); ++l) {
           e.remove(Stage::kFfnNormed, l);
           for (const Stage stage : {Stage::kFfnGate, Stage::kFfnUp})
             e.op(stage, l).inputs = {e.value(Stage::kAttnNormed, l)};
         }
       };
     }},
    {"BiasedFeedForward", "models/llama",
     [](MoreWeights& more) -> Change {
       for (int l = 0; l < static_cast<int>(kLayers); ++l) {
         const ModelSpec& spec = more.model().spec;
         const std::uint64_t width = spec.layers[static_cast<std::size_t>(l)].ffn.width;
         more.add(WeightRole::kGateBias, l, {width}, 0, 0.3f);
         more.add(WeightRole::kUpBias, l, {width}, 0, 0.3f);
         more.add(WeightRole::kDownBias, l, {spec.hidden}, 0, 0.3f);
       }
       return [](Edit&) {};
     }},
    {"BiasedUngatedFeedForward", "models/llama",
     [](MoreWeights& more) -> Change {
       for (int l = 0; l < static_cast<int>(kLayers); ++l) {
         const std::uint64_t width = more.model().spec.layers[static_cast<std::size_t>(l)].ffn.width;
         more.add(WeightRole::kGateBias, l, {width}, 0, 0.3f);
         more.add(WeightRole::kDownBias, l, {more.model().spec.hidden}, 0, 0.3f);
       }
       return [](Edit& e) {
         for (int l = 0; l < static_cast<int>(kLayers); ++l) {
           e.op(Stage::kFfnAct, l).inputs.resize(1);
           e.plan().ops.erase(e.plan().ops.begin() + static_cast<std::ptrdiff_t>(e.index(Stage::kFfnUp, l)));
         }
       };
     }},
    {"UngatedFeedForwardOfQuantisedWeights", "gguf/gemma3_k288.Q4_K_M.gguf",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         e.op(Stage::kFfnAct, 1).inputs.resize(1);
         e.plan().ops.erase(e.plan().ops.begin() + static_cast<std::ptrdiff_t>(e.index(Stage::kFfnUp, 1)));
       };
     }},
    {"NormsOfDifferentEpsilons", "models/gemma3",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         std::get<NormParams>(e.op(Stage::kKNorm, 0).params).eps = 0.5;
         std::get<NormParams>(e.op(Stage::kPostAttnNorm, 1).params).eps = 0.5;
       };
     }},
    {"PostNormsHereAndThere", "models/gemma3",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         e.remove(Stage::kPostAttnNorm, 0);
         e.remove(Stage::kPostFfnNorm, 1);
       };
     }},
    {"AnAdapter", "models/llama",
     [](MoreWeights& more) -> Change {
       constexpr std::uint32_t kRank = 6;
       const ModelSpec& spec = more.model().spec;
       const std::uint64_t hidden = spec.hidden, q = spec.layers[0].attention.q_width(),
                           ffn = spec.layers[0].ffn.width;
       const WeightId q_a = more.add({kRank, hidden}), q_b = more.add({q, kRank}),
                      down_a = more.add({kRank, ffn}), down_b = more.add({hidden, kRank});
       return [=](Edit& e) {
         for (int l = 0; l < static_cast<int>(kLayers); ++l) {
           add_adapter(e, Stage::kQProj, l, q_a, q_b, kRank);
           add_adapter(e, Stage::kFfnOut, l, down_a, down_b, kRank);
         }
       };
     }},
    {"AnAdapterOfQuantisedWeights", "gguf/llama.Q4_0.gguf",
     [](MoreWeights& more) -> Change {
       constexpr std::uint32_t kRank = 8;
       const std::uint64_t hidden = more.model().spec.hidden, ffn = more.model().spec.layers[0].ffn.width;
       const WeightId a = more.add({kRank, ffn}), b = more.add({hidden, kRank});
       return [=](Edit& e) { add_adapter(e, Stage::kFfnOut, 1, a, b, kRank); };
     }},
    {"ALayerThatTurnsNothing", "models/gemma3",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         e.remove(Stage::kQRope, 1);
         e.remove(Stage::kKRope, 1);
       };
     }},
    {"ANormOfTheAttention", "models/llama",
     [](MoreWeights& more) -> Change {
       const WeightId weight = more.add({more.model().spec.layers[0].attention.q_width()}, 1, 0.1f);
       return [=](Edit& e) {
         const ValueId out = e.value(Stage::kAttnOut, 0);
         const ValueId normed = e.insert(out, make_op(OpKind::kRmsNorm, {out}, {weight}, NormParams{1e-5, 0}),
                                         e.plan().values[out].width);
         e.plan().values[normed].heads = 1;
         e.op(Stage::kOProj, 0).inputs = {normed};
       };
     }},
    {"AHeadWithABias", "models/llama",
     [](MoreWeights& more) -> Change {
       const WeightId bias = more.add({more.model().spec.vocab_size}, 0, 1);
       return [=](Edit& e) { e.op(Stage::kLogits, -1).biases = {bias}; };
     }},
    {"LearnedPositions", "models/llama",
     [](MoreWeights& more) -> Change {
       const WeightId positions = more.add({64, more.model().spec.hidden}, 0, 1);
       return [=](Edit& e) { e.op(Stage::kEmbedOut, -1).weights.push_back(positions); };
     }},
    {"AttentionInChunks", "models/llama",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         for (int l = 0; l < static_cast<int>(kLayers); ++l) {
           auto& a = std::get<AttentionParams>(e.op(Stage::kAttnOut, l).params);
           KvLayer& cache = e.plan().kv_layers[static_cast<std::size_t>(l)];
           a.window = cache.window = 5;
           a.chunked = cache.chunked = true;
         }
       };
     }},
    {"QueriesScaledByPosition", "models/qwen3",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         for (int l = 0; l < static_cast<int>(kLayers); ++l) {
           const ValueId q = e.value(Stage::kQRope, l);
           const PositionScale scale{.beta = 0.4, .every = 3, .offset = 1};
           const ValueId scaled =
               e.insert(q, make_op(OpKind::kScaleQuery, {q}, {}, scale), e.plan().values[q].width);
           e.plan().values[scaled].stage = Stage::kQScaled;
           e.op(Stage::kAttnOut, l).inputs[0] = scaled;
           // The turns stay neighbours.
           const Op moved = e.op(Stage::kQScaled, l);
           e.plan().ops.erase(e.plan().ops.begin() +
                              static_cast<std::ptrdiff_t>(e.index(Stage::kQScaled, l)));
           e.plan().ops.insert(
               e.plan().ops.begin() + static_cast<std::ptrdiff_t>(e.index(Stage::kAttnOut, l)), moved);
         }
       };
     }},
    {"XieluWithoutAGate", "models/llama",
     [](MoreWeights&) -> Change {
       return [](Edit& e) {
         for (int l = 0; l < static_cast<int>(kLayers); ++l) {
           Op& act = e.op(Stage::kFfnAct, l);
           act.inputs.resize(1);
           act.params =
               GatedParams{Activation::kXielu, {.alpha_p = 0.8, .alpha_n = 1.1, .beta = 0.5, .eps = -1e-6}};
           e.plan().ops.erase(e.plan().ops.begin() + static_cast<std::ptrdiff_t>(e.index(Stage::kFfnUp, l)));
         }
       };
     }},
    {"NoFinalNorm", "models/llama",
     [](MoreWeights&) -> Change { return [](Edit& e) { e.remove(Stage::kFinalNorm, -1); }; }},
};

BackendOptions odd_options() {
  BackendOptions options{
      .threads = 2, .context = 64, .slots = 1, .max_step_tokens = 16, .disabled_passes = {}};
  options.gpu_setup.self_check = false;  // gpu_refusals_test.cpp has it
  options.gpu_setup.tune = false;        // what is measured may differ from one backend to the next
  options.gpu.submit_tokens = 4;
  return options;
}

// Everything but scores, which are not shown of single tokens.
class KeepOdd : public KeepStages {
 public:
  bool wants(Stage stage, int) const override { return stage != Stage::kAttnScores; }
};

// Kernels of the decode program, by file.
std::vector<std::string> decode_kernels(Backend& backend) {
  std::vector<std::string> files;
  const auto rows = backend.describe();
  EXPECT_TRUE(rows.has_value());
  for (const VariantRow& row : *rows) {
    if (row.what.starts_with("decode")) files.push_back(row.variant.substr(0, row.variant.find(' ')));
  }
  return files;
}

TokenId likeliest(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

const std::vector<std::int32_t> kPrompt = {7, 38, 69, 100, 131, 162, 3};
constexpr std::size_t kTokens = 6;

// Greedy tokens, one step after the other, and their logits.
std::pair<std::vector<TokenId>, std::vector<float>> step_by_step(Backend& backend, Tap* tap) {
  backend.clear(0);
  run_in_pieces(backend, kPrompt, {kPrompt.size()});
  std::vector<TokenId> tokens = {11};
  std::vector<float> logits;
  for (std::size_t i = 0; i < kTokens; ++i) {
    const auto position = static_cast<std::int32_t>(kPrompt.size() + i);
    const auto row = backend.step(step_of({{tokens.back(), position, 0}}), tap);
    EXPECT_TRUE(row.has_value()) << (row ? "" : row.error().message);
    if (!row) break;
    logits.insert(logits.end(), row->begin(), row->end());
    tokens.push_back(likeliest(*row));
  }
  return {{tokens.begin() + 1, tokens.end()}, logits};
}

std::vector<TokenId> continued(Backend& backend, Tap* tap) {
  backend.clear(0);
  run_in_pieces(backend, kPrompt, {kPrompt.size()});
  const GenerateOptions greedy;
  std::vector<TokenId> history(kPrompt.begin(), kPrompt.end()), tokens;
  history.push_back(11);
  EXPECT_TRUE(backend.can_continue(greedy));
  Continuation continuation{.slot = 0, .id = 11, .most = kTokens, .sampling = &greedy, .history = history};
  continuation.tap = tap;
  const Status begun = backend.continuer()->continue_sequence(continuation);
  EXPECT_TRUE(begun.has_value()) << (begun ? "" : begun.error().message);
  while (begun) {
    const auto some = backend.continuer()->next_tokens();
    EXPECT_TRUE(some.has_value()) << (some ? "" : some.error().message);
    if (!some || some->empty()) break;
    tokens.insert(tokens.end(), some->begin(), some->end());
  }
  EXPECT_TRUE(backend.continuer()->stop_sequence(kPrompt.size() + kTokens).has_value());
  return tokens;
}

// The reference's tokens after those that the GPU chose: what it would say at each place.
void expect_like_reference(Backend& gpu, Backend& reference, double allowed) {
  KeepOdd got, expected;
  const auto [tokens, logits] = step_by_step(gpu, nullptr);
  ASSERT_EQ(tokens.size(), kTokens);
  EXPECT_EQ(step_by_step(gpu, &got), std::pair(tokens, logits)) << "looking changes no bit";
  std::vector<std::int32_t> fed = {11};
  fed.insert(fed.end(), tokens.begin(), tokens.end() - 1);
  run_in_pieces(reference, kPrompt, {kPrompt.size()});
  run_in_pieces(reference, fed, {1}, &expected, 0, kPrompt.size());
  EXPECT_EQ(got.stages.size(), expected.stages.size());
  for (const auto& [name, values] : expected.stages) {
    ASSERT_TRUE(got.stages.contains(name)) << name;
    EXPECT_LE(relative_error(got.stages[name], values), allowed) << name;
  }
  EXPECT_EQ(continued(gpu, nullptr), tokens);
  KeepOdd looked;
  EXPECT_EQ(continued(gpu, &looked), tokens);
  EXPECT_EQ(looked.stages, got.stages);
}

class OddPlans : public ::testing::TestWithParam<Oddity> {};

TEST_P(OddPlans, RunInTheDecodeProgram) {
  DOPPLER_NEEDS_ADAPTER();
  const Oddity& oddity = GetParam();
  ASSERT_OK_AND_ASSIGN(Model model, load_model(data_path(oddity.model)));
  model.spec.layers.resize(kLayers);
  MoreWeights more(model);
  const Change change = oddity.make(more);
  BackendOptions options = odd_options();
  std::size_t changes = 0;
  options.change_plan = [&](Plan& plan) {
    Edit edit(plan);
    change(edit);
    ++changes;
  };
  ASSERT_OK_AND_ASSIGN(const auto gpu, make_backend("gpu", model.spec, model.weights, options));
  ASSERT_OK_AND_ASSIGN(const auto reference, make_backend("reference", model.spec, model.weights, options));
  EXPECT_EQ(changes, 2u);
  const std::vector<std::string> kernels = decode_kernels(*gpu);
  EXPECT_EQ(std::ranges::count(kernels, "next_token.wgsl"), 1);
  // Attention keeps its fast kernel.
  EXPECT_EQ(std::ranges::count(kernels, "attention.wgsl"), 0);
  EXPECT_GE(std::ranges::count(kernels, "attention_decode.wgsl"), 1);
  expect_like_reference(*gpu, *reference, gpu->rounding() == Rounding::kEightBits ? 0.1 : 2e-4);
}

INSTANTIATE_TEST_SUITE_P(All, OddPlans, ::testing::ValuesIn(kOddities),
                         [](const auto& test) { return std::string(test.param.name); });

// What is switched off, or what a device does not bind, runs op by op.
class GroupsSwitchedOff : public ::testing::TestWithParam<const char*> {};

TEST_P(GroupsSwitchedOff, RunOpByOp) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(Model model, load_model(data_path(GetParam())));
  model.spec.layers.resize(kLayers);
  std::vector<std::vector<std::string>> lists;
  for (const FusionPass& pass : all_fusion_passes()) {
    if (pass.name.starts_with("decode_")) lists.push_back({std::string(pass.name)});
  }
  lists.push_back({"decode_attention", "decode_head", "decode_product", "group_matmuls"});
  ASSERT_OK_AND_ASSIGN(const auto reference,
                       make_backend("reference", model.spec, model.weights, odd_options()));
  for (const std::vector<std::string>& list : lists) {
    SCOPED_TRACE(list.front() + (list.size() > 1 ? " and all others" : ""));
    BackendOptions options = odd_options();
    options.disabled_passes = list;
    ASSERT_OK_AND_ASSIGN(const auto gpu, make_backend("gpu", model.spec, model.weights, options));
    reference->clear(0);
    expect_like_reference(*gpu, *reference, gpu->rounding() == Rounding::kEightBits ? 0.1 : 2e-4);
    if (list.size() == 1) continue;
    const std::vector<std::string> kernels = decode_kernels(*gpu);
    EXPECT_EQ(std::ranges::count(kernels, "attention_decode.wgsl"), 0);
    EXPECT_EQ(std::ranges::count(kernels, "head.wgsl"), 0);
    EXPECT_EQ(std::ranges::count(kernels, "likeliest.wgsl"), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GroupsSwitchedOff,
                         ::testing::Values("models/gemma3", "gguf/llama.Q4_0.gguf", "models/gpt_oss"),
                         named_by_param);

// The decode program without subgroups that could be used: teams of threads meet in the workgroup's memory.
class DeviceWithoutSubgroups : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceWithoutSubgroups, HasTheDecodeProgram) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(Model model, load_model(data_path(GetParam())));
  model.spec.layers.resize(std::min<std::size_t>(model.spec.layers.size(), kLayers));
  BackendOptions options = odd_options();
  options.gpu_setup.no_subgroups = true;
  ASSERT_OK_AND_ASSIGN(const auto gpu, make_backend("gpu", model.spec, model.weights, options));
  ASSERT_OK_AND_ASSIGN(const auto reference, make_backend("reference", model.spec, model.weights, options));
  expect_like_reference(*gpu, *reference, gpu->rounding() == Rounding::kEightBits ? 0.1 : 2e-4);
  const std::vector<std::string> kernels = decode_kernels(*gpu);
  EXPECT_EQ(std::ranges::count(kernels, "attention.wgsl"), 0);
  EXPECT_GE(std::ranges::count(kernels, "attention_decode.wgsl"), 1);
  EXPECT_EQ(std::ranges::count(kernels, "head.wgsl"), 1);
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceWithoutSubgroups,
                         ::testing::Values("models/gemma3", "gguf/llama.Q4_0.gguf", "models/gpt_oss"),
                         named_by_param);
INSTANTIATE_TEST_SUITE_P(More, DeviceWithoutSubgroups,
                         ::testing::Values("models/llama", "models/qwen3", "gguf/gemma3_k288.Q4_K_M.gguf"),
                         named_by_param);

}  // namespace
}  // namespace doppler
