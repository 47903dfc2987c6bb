// Probes: single values of a run, asked for by stage, layer, token and dim, and printed as the run computes
// them.
//
//   --probe stage=layer_out,layers=0,12,25,tokens=-1,dims=334
//   PROBE stage=layer_out layer=12 token=6 values=[334=81.2500]
//
// A flag is KEY=LIST, KEY=LIST, ...: id, stage, layers, tokens and dims, where a list holds numbers and
// ranges a:b, both ends included, and `all`. The configuration says the same as an object
// (runtime.shared.debug.probes).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/tap.h"
#include "base/json_fwd.h"
#include "base/log.h"
#include "base/result.h"
#include "plan/plan.h"

namespace doppler::diagnosis {

// Both ends included. Where tokens are meant, -1 is the prompt's last one.
struct ProbeRange {
  std::int64_t first = 0, last = 0;
};

struct Probe {
  std::string id;                  // printed in the line; may be empty
  std::string stage;               // as given: aliases are fine
  std::vector<ProbeRange> layers;  // empty: all
  // Positions in the sequence, so that the first decode step after a prompt of n tokens is token n. Negative:
  // from the end of the prompt. Empty, without all_tokens: the first token, or the prompt's last where only
  // it has a row (logits).
  std::vector<ProbeRange> tokens;
  bool all_tokens = false;
  // Of attn_scores: positions that are attended to, each head in a line of its own.
  std::vector<ProbeRange> dims;
};

// "stage=q_rope,layers=0:5,tokens=0:-1,dims=0:7". Errors: kUsage, naming the piece and what is expected.
Result<Probe> parse_probe(std::string_view text);
// {"id", "stage", "layers": [..] | null, "tokens": [..] | null, "dims": [..]}; numbers, or ranges as texts.
// `where` names the probe in errors (kUsage).
Result<Probe> read_probe(const Json& object, std::string_view where);
// The text that parse_probe reads.
std::string probe_text(const Probe& probe);

struct ProbeValue {
  std::int64_t dim = 0;
  float value = 0;
};
struct ProbeHit {
  const Probe* probe = nullptr;
  Stage stage = Stage::kNone;
  int layer = -1;          // -1: outside the layers
  std::int64_t token = 0;  // position in the sequence
  int head = -1;           // of attn_scores
  std::int64_t step = 0;   // 0: the prompt; decode steps from 1
  std::vector<ProbeValue> values;
};
// "PROBE dim334 stage=layer_out layer=12 token=6 values=[334=81.2500]"
std::string probe_line(const ProbeHit& hit);
// The same for programs; NaN and infinities, which JSON does not have, as texts.
Json probe_json(const ProbeHit& hit);
// Which trace category a stage belongs to.
Category category_of(Stage stage);

// The stages that a plan computes, with the widths and the layers, as errors list them: "embed_out, layer_out
// (layers 0 to 6), ...".
std::string describe_stages(const Plan& plan);

// The tap that fires the probes. Wants a stage of a layer only as long as a probe can still fire there.
class ProbeTap final : public Tap {
 public:
  using OnHit = std::function<void(const ProbeHit& hit)>;
  // Errors: kUsage for a probe that can never fire on this plan (unknown stage, layer or dim, a token beyond
  // the context), listing the possible values. Sees sequences in slot 0 only.
  static Result<ProbeTap> create(std::vector<Probe> probes, const Plan& plan, std::uint64_t context,
                                 OnHit on_hit);

  // Before a prompt runs: its length, and whether every token's logits are computed or only the last one's.
  // May be called again for the next prompt. Errors: kUsage for a probe none of whose tokens will occur.
  Status begin(std::size_t prompt_tokens, bool all_logits);

  bool wants(Stage stage, int layer) const override;
  // The smallest range of dims that holds those of all probes there.
  Columns columns(Stage stage, int layer) const override;
  void on_stage(const TapEvent& event) override;

  // A sentence for each probe that has not fired since it was created, with the reason.
  std::vector<std::string> silent() const;
  bool empty() const { return watches_.empty(); }

 private:
  struct Watch {  // a probe on its plan
    Probe probe;
    Stage stage = Stage::kNone;
    std::vector<bool> layers;        // by layer; one entry for stages outside the layers
    std::vector<ProbeRange> tokens;  // of this prompt, none negative
    std::vector<std::int64_t> left;  // by layer: the last requested token that has not run yet; -1: none
    std::uint64_t hits = 0;
  };
  static std::size_t place(int layer) { return layer < 0 ? 0 : static_cast<std::size_t>(layer); }
  static Result<Watch> watch(const Probe& probe, const Plan& plan, std::uint64_t context);
  void refresh();
  void fire(Watch& watch, const TapEvent& event, std::size_t row, std::int64_t token);

  std::vector<Watch> watches_;
  std::vector<std::vector<bool>> wanted_;  // [stage][layer]
  OnHit on_hit_;
  std::size_t prompt_tokens_ = 0;
  std::uint64_t context_ = 0;
  std::int64_t seen_ = -1;  // the furthest token that any stage has shown
};

}  // namespace doppler::diagnosis
