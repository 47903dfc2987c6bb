// Execution faults: spec, plan and weights are right, but their execution is not.
#include <algorithm>
#include <cmath>
#include <limits>

#include "diagnosis/faults/faults_table.h"
#include "diagnosis/faults/faulty_attention.h"
#include "model/activation.h"

namespace doppler::diagnosis::faults {

std::function<void(Site&)> hook(std::function<void(HookFault&, const BackendOptions&)> fill) {
  return [fill = std::move(fill)](Site& site) {
    site.run_with([fill](const BackendOptions& options) {
      auto fault = std::make_unique<HookFault>();
      fill(*fault, options);
      return fault;
    });
  };
}

// Applies `change` to the value of one stage of one layer (-2: of every layer).
std::function<void(Site&)> spoil(Stage stage, int layer, std::function<bool(const Fault::Computed&)> change) {
  return hook([=](HookFault& fault, const BackendOptions&) {
    fault.watches = [=](Stage s, int l) { return s == stage && (layer == -2 || l == layer); };
    fault.change = [=](const Fault::Computed& computed, Stage, int) { return change(computed); };
  });
}

// Changes the step as every op of that kind sees it, at that moment.
std::function<void(Site&)> see(OpKind kind, Fault::Moment moment,
                               std::function<bool(StepInput&, const BackendOptions&)> change) {
  return hook([=](HookFault& fault, const BackendOptions& options) {
    fault.tokens = [=](const Op& op, Fault::Moment now, StepInput& seen) {
      return op.kind == kind && now == moment && change(seen, options);
    };
  });
}

namespace {

using When = FaultPlace::When;
using Moment = Fault::Moment;
using Computed = Fault::Computed;

constexpr int kLayer = 1;  // where faults of one layer are

bool has_two_layers(const Subject& s) {
  return has_layers(s, 2);
}

std::size_t width_of(const Computed& computed) {
  return computed.plan.values[computed.value].width;
}

// Positions never leave the context.
void move_to(std::int32_t& position, std::int64_t to, const BackendOptions& options) {
  position = static_cast<std::int32_t>(to % static_cast<std::int64_t>(options.context));
}

// ---- products, norms, activations ----

// The largest block size of kernels of which the columns are no multiple.
std::size_t ragged_block(std::size_t cols) {
  for (const std::size_t block : {256, 128, 64, 48, 32, 20}) {
    if (block < cols && cols % block != 0) return block;
  }
  return 0;
}

// The last columns beyond a whole block of the down projection are left out.
void drop_tail(Site& site) {
  const Weights weights = site.weights();
  site.run_with([weights](const BackendOptions&) {
    auto fault = std::make_unique<HookFault>();
    fault->watches = [](Stage stage, int) { return stage == Stage::kFfnAct || stage == Stage::kFfnOut; };
    fault->change = [weights, act = std::vector<float>()](const Computed& computed, Stage stage,
                                                          int layer) mutable {
      if (stage == Stage::kFfnAct) {
        act.assign(computed.data.begin(), computed.data.end());
        return false;
      }
      const TensorView& down = weights[weights.find(WeightRole::kDown, layer)];
      const std::size_t rows = down.rows(), cols = down.cols(), begin = cols - cols % ragged_block(cols);
      std::vector<float> row(cols);
      for (std::size_t r = 0; r < rows; ++r) {
        if (!decode_f32(down, r * cols, row)) return false;
        for (std::size_t t = 0; t < computed.rows; ++t) {
          double tail = 0;
          for (std::size_t c = begin; c < cols; ++c) tail += double{row[c]} * act[t * cols + c];
          computed.data[t * rows + r] -= static_cast<float>(tail);
        }
      }
      return true;
    };
    return fault;
  });
}

// Rows from a power of two on, as 65536 is for a dispatch, are never computed.
bool drop_rows(const Computed& computed) {
  const std::size_t width = width_of(computed);
  std::size_t limit = 1;
  while (limit * 2 < width) limit *= 2;
  for (std::size_t t = 0; t < computed.rows; ++t)
    std::ranges::fill(computed.data.subspan(t * width + limit, width - limit), 0.0f);
  return true;
}

// Halves hold no more than a limit; here that is 3/4 of the largest value of the first prompt, because small
// models never reach 65504.
void overflow(Site& site) {
  hook([](HookFault& fault, const BackendOptions&) {
    fault.watches = [](Stage stage, int layer) { return stage == Stage::kFfnAct && layer == kLayer; };
    fault.change = [limit = 0.0f](const Computed& computed, Stage, int) mutable {
      for (const float x : computed.data) {
        if (limit == 0 || computed.rows > 1) limit = std::max(limit, std::abs(x) * 0.75f);
      }
      bool any = false;
      for (float& x : computed.data) {
        if (std::abs(x) <= limit) continue;
        x = std::copysign(std::numeric_limits<float>::infinity(), x);
        any = true;
      }
      return any;
    };
  })(site);
}

void activate_both(Site& site) {
  const Activation activation = site.spec().layers.front().ffn.activation;
  hook([activation](HookFault& fault, const BackendOptions&) {
    fault.watches = [](Stage stage, int) {
      return stage == Stage::kFfnGate || stage == Stage::kFfnUp || stage == Stage::kFfnAct;
    };
    fault.change = [activation, gate = std::vector<float>(), up = std::vector<float>()](
                       const Computed& computed, Stage stage, int) mutable {
      if (stage == Stage::kFfnGate) gate.assign(computed.data.begin(), computed.data.end());
      if (stage == Stage::kFfnUp) up.assign(computed.data.begin(), computed.data.end());
      if (stage != Stage::kFfnAct) return false;
      for (std::size_t i = 0; i < computed.data.size(); ++i)
        computed.data[i] = static_cast<float>(activate(activation, gate[i]) * activate(activation, up[i]));
      return true;
    };
  })(site);
}

// ---- buffers ----

// The second half of a prompt's tokens still holds what the layer before left in the buffer.
void keep_stale(Site& site) {
  hook([](HookFault& fault, const BackendOptions&) {
    fault.watches = [](Stage stage, int layer) { return stage == Stage::kOProj && layer <= kLayer; };
    fault.change = [before = std::vector<float>()](const Computed& computed, Stage, int layer) mutable {
      if (layer < kLayer) {
        before.assign(computed.data.begin(), computed.data.end());
        return false;
      }
      const std::size_t begin = computed.rows / 2 * width_of(computed);
      if (computed.rows < 2) return false;
      std::copy(before.begin() + static_cast<std::ptrdiff_t>(begin), before.end(),
                computed.data.begin() + static_cast<std::ptrdiff_t>(begin));
      return true;
    };
  })(site);
}

// A small generator, so that every call leaves other bits, as a race does.
struct Noise {
  std::uint64_t state = 0x9e3779b97f4a7c15;
  std::uint32_t next() {
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<std::uint32_t>(state >> 33);
  }
};

// Some values are read before they are complete, different ones in each run.
void race(Site& site) {
  hook([](HookFault& fault, const BackendOptions&) {
    fault.watches = [](Stage stage, int layer) { return stage == Stage::kAttnOut && layer == 0; };
    fault.change = [noise = Noise()](const Computed& computed, Stage, int) mutable {
      for (float& x : computed.data) {
        if (noise.next() % 16 == 0) x *= 0.5f;
      }
      return true;
    };
  })(site);
}

// Sums in another order at each run: right within rounding.
void shuffle_sums(Site& site) {
  hook([](HookFault& fault, const BackendOptions&) {
    fault.watches = [](Stage stage, int layer) { return stage == Stage::kFfnOut && layer == 0; };
    fault.change = [noise = Noise()](const Computed& computed, Stage, int) mutable {
      for (float& x : computed.data) {
        if (noise.next() % 4 == 0) x = std::nextafter(x, noise.next() % 2 == 0 ? 1e30f : -1e30f);
      }
      return true;
    };
  })(site);
}

// [tokens][heads] written as [heads][tokens]: two fields of the parameter block have changed places.
bool swap_fields(const Computed& computed) {
  const std::size_t heads = computed.plan.values[computed.value].heads, dim = width_of(computed) / heads;
  const std::vector<float> right(computed.data.begin(), computed.data.end());
  for (std::size_t t = 0; t < computed.rows; ++t) {
    for (std::size_t h = 0; h < heads; ++h)
      std::copy_n(&right[(t * heads + h) * dim], dim, &computed.data[(h * computed.rows + t) * dim]);
  }
  return computed.rows > 1;
}

std::vector<FaultRow> value_faults() {
  const auto zero = [](const Computed& computed) {
    std::ranges::fill(computed.data, 0.0f);
    return true;
  };
  return {
      {{"kernel_writes_nothing", FaultKind::kExecution, "kernel_writes_nothing", "",
        "an output projection leaves zeros"},
       has_two_layers,
       at(Stage::kOProj, kLayer),
       spoil(Stage::kOProj, kLayer, zero)},
      {{"stale_buffer", FaultKind::kExecution, "stale_buffer", "",
        "half of an output projection's tokens hold what the layer before left"},
       has_two_layers,
       at(Stage::kOProj, kLayer),
       keep_stale},
      {{"tail_missing", FaultKind::kExecution, "tail_missing", "",
        "down projections leave out the columns beyond a whole block"},
       [](const Subject& s) { return ragged_block(s.spec.layers.front().ffn.width) != 0; },
       at(Stage::kFfnOut, 0),
       drop_tail},
      {{"rows_beyond_limit", FaultKind::kExecution, "rows_beyond_limit", "",
        "logits beyond a limit of the dispatch stay zero"},
       {},
       at(Stage::kLogits, -1),
       spoil(Stage::kLogits, -1, drop_rows)},
      {{"f16_overflow", FaultKind::kExecution, "f16_overflow", "", "the largest activations become infinite"},
       has_two_layers,
       at(Stage::kFfnAct, kLayer),
       overflow},
      {{"activation_on_both", FaultKind::kExecution, "activation", "",
        "the activation is applied to gate and up"},
       {},
       at(Stage::kFfnAct, 0),
       activate_both},
      {{"uniform_fields_swapped", FaultKind::kExecution, "uniform_fields_swapped", "",
        "attention writes [heads][tokens] instead of [tokens][heads]"},
       [](const Subject& s) { return s.spec.layers.front().attention.heads > 1; },
       at(Stage::kAttnOut, 0),
       spoil(Stage::kAttnOut, -2, swap_fields)},
      {{"missing_barrier", FaultKind::kExecution, "missing_barrier", "",
        "some values are read before they are complete, others at each run"},
       {},
       at(Stage::kAttnOut, 0),
       race},
      {{"not_deterministic", FaultKind::kExecution, "not_deterministic", "",
        "last bits differ from run to run"},
       {},
       at(Stage::kFfnOut, 0, When::kRepeated),
       shuffle_sums},
      {{"logits_of_wrong_row", FaultKind::kExecution, "stale_buffer", "",
        "the head reads the row of another token"},
       {},
       at(Stage::kPreFinalNorm, -1),
       spoil(Stage::kPreFinalNorm, -1,
             [](const Computed& computed) {
               std::ranges::rotate(computed.data,
                                   computed.data.begin() + static_cast<std::ptrdiff_t>(width_of(computed)));
               return computed.rows > 1;
             })},
      {{"decode_breaks_odd_layers", FaultKind::kExecution, "decode_unlike_prefill", "",
        "single tokens get the other half of a pair of buffers on odd layers"},
       has_two_layers,
       at(Stage::kLayerOut, 1, When::kDecode),
       hook([](HookFault& fault, const BackendOptions&) {
         fault.watches = [](Stage stage, int layer) { return stage == Stage::kLayerOut && layer % 2 == 1; };
         fault.change = [](const Computed& computed, Stage, int) {
           if (computed.rows != 1) return false;
           std::ranges::rotate(computed.data,
                               computed.data.begin() + static_cast<std::ptrdiff_t>(width_of(computed) / 2));
           return true;
         };
       })},
  };
}

// ---- positions, cache, attention ----

std::function<void(Site&)> attend(std::function<void(FaultyAttention&)> fill) {
  return hook([fill = std::move(fill)](HookFault& fault, const BackendOptions&) {
    auto attention = std::make_shared<FaultyAttention>();
    fill(*attention);
    fault.watches = [](Stage stage, int) {
      return stage == Stage::kQRope || stage == Stage::kKRope || stage == Stage::kVProj ||
             stage == Stage::kAttnOut;
    };
    fault.change = [attention](const Computed& computed, Stage stage, int layer) {
      return attention->compute(computed, stage, layer);
    };
  });
}

// Counts of a slot that go wrong from step to step.
struct Counts {
  std::int64_t end = 0;    // number of positions that the slot holds
  std::int64_t shift = 0;  // how far the counter is too high
  std::int64_t start = 0;  // the step's first position by the counter
};

// `counts` is asked once for each slot of a step, then what it leaves moves the slot's tokens.
std::function<void(Site&)> count(std::function<bool(const Op&, Moment)> acts,
                                 std::function<void(Counts&, std::int64_t first, std::int64_t tokens)> next) {
  return hook([=](HookFault& fault, const BackendOptions& options) {
    fault.tokens = [=, counts = std::map<std::int32_t, Counts>()](const Op& op, Moment moment,
                                                                  StepInput& seen) mutable {
      std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> slots;  // first position and tokens
      for (std::size_t t = 0; t < seen.size(); ++t) {
        ++slots.try_emplace(seen.slots[t], seen.positions[t], 0).first->second.second;
      }
      if (op.kind == OpKind::kEmbed) {
        for (const auto& [slot, step] : slots) next(counts[slot], step.first, step.second);
      }
      if (!acts(op, moment)) return false;
      for (std::size_t t = 0; t < seen.size(); ++t) {
        const std::int64_t offset = seen.positions[t] - slots[seen.slots[t]].first;
        move_to(seen.positions[t], counts[seen.slots[t]].start + offset, options);
      }
      return true;
    };
  });
}

std::vector<FaultRow> cache_faults() {
  const auto is_append = [](const Op& op, Moment moment) {
    return op.kind == OpKind::kAttention && moment == Moment::kAppend;
  };
  const auto knows_position = [](const Op& op, Moment) {
    return op.kind == OpKind::kAttention || op.kind == OpKind::kRope;
  };
  return {
      {{"rope_position_off_by_one", FaultKind::kExecution, "rope_position", "",
        "positions begin at 1 for the rotation"},
       {},
       at(Stage::kQRope, 0),
       see(OpKind::kRope, Moment::kOp,
           [](StepInput& seen, const BackendOptions& options) {
             for (std::int32_t& p : seen.positions) move_to(p, p + 1, options);
             return true;
           })},
      {{"rope_constant_position", FaultKind::kExecution, "rope_position", "",
        "all tokens of a step turn by the position of the last"},
       {},
       at(Stage::kQRope, 0),
       see(OpKind::kRope, Moment::kOp,
           [](StepInput& seen, const BackendOptions&) {
             std::ranges::fill(seen.positions, seen.positions.back());
             return seen.size() > 1;
           })},
      {{"head_grouping", FaultKind::kExecution, "head_grouping", "models with more than one kv head",
        "heads take their keys in turn instead of in groups"},
       [](const Subject& s) {
         const AttentionSpec& a = s.spec.layers.front().attention;
         return a.kv_heads > 1 && a.kv_heads < a.heads;
       },
       at(Stage::kAttnOut, 0),
       attend([](FaultyAttention& attention) {
         attention.kv_head = [](std::uint32_t head, const AttentionParams& a) { return head % a.kv_heads; };
       })},
      {{"causal_mask_missing", FaultKind::kExecution, "causal_mask_missing", "",
        "tokens attend to later ones of the prompt"},
       {},
       at(Stage::kAttnOut, 0),
       attend([](FaultyAttention& attention) {
         attention.sees = [](std::uint64_t, std::uint64_t) { return true; };
       })},
      {{"kv_append_off_by_one", FaultKind::kExecution, "kv_append_offset", "",
        "keys and values go one position too far"},
       {},
       at(Stage::kAttnOut, 0),
       see(OpKind::kAttention, Moment::kAppend,
           [](StepInput& seen, const BackendOptions& options) {
             for (std::int32_t& p : seen.positions) move_to(p, p + 1, options);
             return true;
           })},
      {{"whole_cache_attended", FaultKind::kExecution, "whole_cache_attended",
        "models with layers of full attention",
        "attention reads every position of the cache, written or not"},
       [](const Subject& s) { return first_layer(s.spec, AttentionKind::kFull) >= 0; },
       [](const Subject& s) {
         return FaultPlace{Stage::kAttnOut, first_layer(s.spec, AttentionKind::kFull)};
       },
       hook([](HookFault& fault, const BackendOptions& options) {
         fault.tokens = [last = static_cast<std::int32_t>(options.context - 1)](const Op& op, Moment moment,
                                                                                StepInput& seen) {
           if (moment != Moment::kAttend || std::get<AttentionParams>(op.params).window != 0) return false;
           std::ranges::fill(seen.positions, last);
           return true;
         };
       })},
      {{"kv_counter_adds_one", FaultKind::kExecution, "kv_counter", "",
        "the cache's counter grows by one a step, whatever the step's tokens: decoding overwrites the "
        "prompt"},
       {},
       at(Stage::kAttnOut, 0, When::kDecode),
       count(is_append,
             [](Counts& c, std::int64_t first, std::int64_t) { c.start = first == 0 ? 0 : c.start + 1; })},
      {{"kv_counter_stuck", FaultKind::kExecution, "kv_counter", "",
        "the cache's counter stays at the prompt's end: each new token overwrites the one before"},
       {},
       at(Stage::kAttnOut, 0, When::kDecode),
       count(is_append,
             [](Counts& c, std::int64_t first, std::int64_t tokens) {
               c.start = first == 0 || tokens > 1 ? first : c.end;
               if (first == 0 || tokens > 1) c.end = first + tokens;
             })},
      {{"cache_survives_clear", FaultKind::kExecution, "kv_counter", "",
        "after clear() positions go on where the sequence before ended"},
       {},
       at(Stage::kQRope, 0, When::kAgain),
       count(knows_position,
             [](Counts& c, std::int64_t first, std::int64_t tokens) {
               if (first == 0) c.shift = c.end;
               c.start = first + c.shift;
               c.end = c.start + tokens;
             })},
      {{"slots_mixed", FaultKind::kExecution, "batch_unlike_single", "",
        "in a step of several sequences all attend to the first one's cache"},
       {},
       at(Stage::kAttnOut, 0, When::kBeside),
       see(OpKind::kAttention, Moment::kAttend,
           [](StepInput& seen, const BackendOptions&) {
             const bool several =
                 std::ranges::any_of(seen.slots, [&](std::int32_t s) { return s != seen.slots[0]; });
             std::ranges::fill(seen.slots, std::int32_t{seen.slots[0]});
             return several;
           })},
  };
}

// ---- the choice of a token ----

using Sample = decltype(Subject::sample);

std::function<void(Site&)> choose(std::function<Sample(Sample)> wrap) {
  return [wrap = std::move(wrap)](Site& site) { site.subject().sample = wrap(site.subject().sample); };
}

std::vector<FaultRow> choice_faults() {
  const auto choice = at(Stage::kLogitsFinal, -1, When::kChoice);
  const auto samples = [](const Subject& s) { return static_cast<bool>(s.sample); };
  return {
      {{"pad_wins", FaultKind::kExecution, "pad_wins", "", "the padding token may be chosen"},
       samples,
       choice,
       choose([](Sample right) -> Sample {
         return [right](const GenerateOptions& options, TokenId, std::span<const float> logits,
                        std::span<const TokenId> history,
                        std::uint64_t draw) { return right(options, -1, logits, history, draw); };
       })},
      {{"top_k_stripe", FaultKind::kExecution, "top_k_stripe", "",
        "top-k takes the best of each stripe of 64 tokens instead of the best of all"},
       samples,
       choice,
       choose([](Sample right) -> Sample {
         return [right](const GenerateOptions& options, TokenId pad, std::span<const float> logits,
                        std::span<const TokenId> history, std::uint64_t draw) {
           if (options.top_k == 0 || options.temperature == 0)
             return right(options, pad, logits, history, draw);
           std::vector<float> kept(logits.size(), -std::numeric_limits<float>::infinity());
           for (std::size_t begin = 0; begin < logits.size(); begin += 64) {
             const auto stripe = logits.subspan(begin, std::min<std::size_t>(64, logits.size() - begin));
             const auto best = std::ranges::max_element(stripe);
             kept[begin + static_cast<std::size_t>(best - stripe.begin())] = *best;
           }
           return right(options, pad, kept, history, draw);
         };
       })},
      {{"penalty_skipped", FaultKind::kExecution, "penalty_skipped", "", "the repeat penalty is not applied"},
       samples,
       choice,
       choose([](Sample right) -> Sample {
         return [right](const GenerateOptions& options, TokenId pad, std::span<const float> logits,
                        std::span<const TokenId> history, std::uint64_t draw) {
           GenerateOptions without = options;
           without.repeat_penalty = 1;
           return right(without, pad, logits, history, draw);
         };
       })},
  };
}

}  // namespace

std::vector<FaultRow> execution_faults() {
  std::vector<FaultRow> rows;
  for (const auto& part : {value_faults(), cache_faults(), choice_faults()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace doppler::diagnosis::faults
