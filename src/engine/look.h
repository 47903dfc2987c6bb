// Looking inside: a LookRequest checked against a plan, and the tap that answers it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "backend/tap_list.h"
#include "base/result.h"
#include "doppler/look.h"
#include "plan/plan.h"

namespace doppler {

// Every stage that a plan computes, in that order.
std::vector<StageDescription> describe_stages_of(const Plan& plan);

// A request resolved against a plan: the stages and layers that it asks for.
class Looked {
 public:
  // Errors: kUsage for stages, layers and dims that do not exist, listing those that do.
  static Result<Looked> create(const LookRequest& request, const Plan& plan);

  const LookRequest& request() const { return request_; }
  bool wants(Stage stage, int layer) const { return places_.contains({stage, layer}); }
  bool wants_logit_rows() const;  // whether a stage of it has rows only for wanted logits
  // The positions asked for in a prompt of `prompt_tokens` tokens; empty: all. Errors: kUsage for a position
  // outside the prompt.
  Result<std::set<std::int64_t>> tokens(std::size_t prompt_tokens) const;
  // Bytes of the values of `rows` tokens, the last of which sees `positions`; UINT64_MAX if they overflow.
  std::uint64_t bytes(std::uint64_t rows, std::uint64_t positions) const;

 private:
  struct Place {
    std::uint32_t width = 0;  // 0: a score for each position, of each head
    std::uint32_t heads = 1;
  };
  LookRequest request_;
  std::map<std::pair<Stage, int>, Place> places_;
};

// Passes on the requested values of each step. `looked` must outlive it.
class LookTap final : public Tap {
 public:
  using OnValues = std::function<void(StageValues values)>;
  // `tokens`: positions to show; empty: all.
  LookTap(const Looked& looked, std::set<std::int64_t> tokens, OnValues on_values)
      : looked_(looked), tokens_(std::move(tokens)), on_values_(std::move(on_values)) {}

  bool wants(Stage stage, int layer) const override { return looked_.wants(stage, layer); }
  Columns columns(Stage stage, int layer) const override;
  void on_stage(const TapEvent& event) override;

 private:
  const Looked& looked_;
  const std::set<std::int64_t> tokens_;
  const OnValues on_values_;
};

// Joins the steps of a run: one StageValues for each stage and layer.
class LookCollector {
 public:
  void add(StageValues values);
  std::vector<StageValues> take() { return std::move(all_); }

 private:
  std::map<std::pair<std::string, int>, std::size_t> index_;
  std::vector<StageValues> all_;
};

// The taps of a generation's watches, and of `besides` (may be null), as one.
class WatchTaps {
 public:
  // Errors: those of Looked::create and Looked::tokens, but not for positions after the prompt, which may
  // still come.
  static Result<std::unique_ptr<WatchTaps>> create(std::span<const Watch> watches, const Plan& plan,
                                                   std::size_t prompt_tokens, Tap* besides);
  // The tap to give to a session; null if there is nothing to look at.
  Tap* get() { return list_.get(); }

 private:
  WatchTaps() = default;
  std::vector<Looked> looked_;
  std::vector<std::unique_ptr<LookTap>> taps_;
  TapList list_;
};

}  // namespace doppler
