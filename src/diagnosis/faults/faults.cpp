#include "diagnosis/faults/faults.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/text.h"
#include "diagnosis/faults/faults_table.h"

namespace doppler::diagnosis {
namespace faults {

void AlteredWeights::alter(Weights& weights, WeightRole role, int layer, const Change& change) {
  TensorView tensor = weights[weights.find(role, layer)];
  bytes_.emplace_back(tensor.data.begin(), tensor.data.end());
  change(tensor, bytes_.back());
  tensor.data = bytes_.back();
  tensor.mapped = false;
  weights.add(role, layer, std::move(tensor));
}

void AlteredWeights::permute_rows(Weights& weights, WeightRole role, int layer,
                                  const std::function<std::size_t(std::size_t)>& source) {
  alter(weights, role, layer, [&](TensorView& tensor, std::vector<std::byte>& bytes) {
    const std::size_t row = bytes.size() / tensor.rows();
    for (std::size_t r = 0; r < tensor.rows(); ++r) {
      std::copy_n(tensor.data.begin() + static_cast<std::ptrdiff_t>(source(r) * row), row,
                  bytes.begin() + static_cast<std::ptrdiff_t>(r * row));
    }
  });
}

const StepInput& HookFault::seen_by(const Op& op, Moment moment, const StepInput& step) {
  if (!tokens) return step;
  seen_ = step;
  return tokens(op, moment, seen_) ? seen_ : step;
}

bool HookFault::wants(const Plan& plan, ValueId value) const {
  return watches && watches(plan.values[value].stage, plan.values[value].layer);
}

bool HookFault::after(const Computed& computed) {
  const Value& v = computed.plan.values[computed.value];
  return change(computed, v.stage, v.layer);
}

Site::Site(Subject& subject) : subject_(subject), kept_(std::make_shared<Kept>()) {
  // An earlier fault's function keeps the weights that it altered.
  subject_.backend = [kept = kept_, earlier = subject_.backend](
                         const Subject& examined,
                         const BackendOptions& options) -> Result<std::unique_ptr<Backend>> {
    BackendOptions with = options;
    with.change_plan = examined.alter_plan;
    with.gpu_setup.shader_edits = kept->edits;
    if (!kept->edits.empty()) with.gpu_setup.self_check = false;  // it would refuse the edited kernels
    if (kept->make) {
      kept->faults.push_back(kept->make(options));
      with.fault = kept->faults.back().get();
    }
    return make_backend(examined.backend_name, examined.spec, examined.weights, with);
  };
}

void Site::change_plan(std::function<void(Plan&)> change) {
  subject_.alter_plan = [before = std::move(subject_.alter_plan), change = std::move(change)](Plan& plan) {
    if (before) before(plan);
    change(plan);
  };
}

void Site::run_with(std::function<std::unique_ptr<Fault>(const BackendOptions&)> make) {
  kept_->make = std::move(make);
}

void Site::edit_shader(std::string file, std::string from, std::string to) {
  kept_->edits.push_back({std::move(file), std::move(from), std::move(to)});
}

void Site::alter(WeightRole role, int layer, const AlteredWeights::Change& change) {
  kept_->altered.alter(weights(), role, layer, change);
}

void Site::permute_rows(WeightRole role, int layer, const std::function<std::size_t(std::size_t)>& source) {
  kept_->altered.permute_rows(weights(), role, layer, source);
}

void Site::swap(WeightRole a, WeightRole b, int layer) {
  const WeightId first = weights().find(a, layer), second = weights().find(b, layer);
  weights().alias(a, layer, second);
  weights().alias(b, layer, first);
}

std::vector<TensorView> Site::experts(WeightRole role, int layer) {
  const WeightId first = weights().find(role, layer);
  if (first == kNoWeight) return {};
  const auto of_role = weights().tensors().subspan(first, weights().count(first));
  return {of_role.begin(), of_role.end()};
}

void Site::set_experts(WeightRole role, int layer, std::vector<TensorView> tensors) {
  for (std::size_t e = 0; e < tensors.size(); ++e) {
    if (e == 0)
      weights().add(role, layer, std::move(tensors[e]));
    else
      weights().add_expert(role, layer, std::move(tensors[e]));
  }
}

std::span<const std::byte> Site::keep(std::vector<std::byte> bytes) {
  return kept_->bytes.emplace_back(std::move(bytes));
}

int first_layer(const ModelSpec& spec, AttentionKind kind) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].attention.kind == kind) return static_cast<int>(i);
  }
  return -1;
}

bool has_layers(const Subject& subject, int count) {
  return static_cast<int>(subject.spec.layers.size()) >= count;
}

bool is_gemma(const Subject& subject) {
  return subject.spec.family.starts_with("gemma");
}

ValueId value_of(const Plan& plan, Stage stage, int layer) {
  for (ValueId id = 0; id < plan.values.size(); ++id) {
    if (plan.values[id].stage == stage && plan.values[id].layer == layer) return id;
  }
  return 0;
}

Op* op_of(Plan& plan, Stage stage, int layer) {
  for (Op& op : plan.ops) {
    for (const ValueId id : op.outputs) {
      if (plan.values[id].stage == stage && plan.values[id].layer == layer) return &op;
    }
  }
  return nullptr;
}

namespace {

const std::vector<FaultRow>& table() {
  static const std::vector<FaultRow> kTable = [] {
    std::vector<FaultRow> rows;
    for (auto& part : {description_faults(), data_faults(), port_faults(), expert_faults(), latent_faults(),
                       recurrent_weight_faults(), text_faults(), execution_faults(),
                       recurrent_execution_faults(), shader_faults()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return kTable;
}

const FaultRow* find_row(std::string_view name) {
  const auto found = std::ranges::find(table(), name, [](const FaultRow& row) { return row.info.name; });
  return found == table().end() ? nullptr : &*found;
}

}  // namespace
}  // namespace faults

std::string_view name_of(FaultKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"description", "data", "text", "execution"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::span<const FaultInfo> all_faults() {
  static const std::vector<FaultInfo> kInfos = [] {
    std::vector<FaultInfo> infos;
    for (const auto& row : faults::table()) infos.push_back(row.info);
    return infos;
  }();
  return kInfos;
}

bool applies(std::string_view name, const Subject& subject) {
  const faults::FaultRow* row = faults::find_row(name);
  return row != nullptr && (!row->applies || row->applies(subject));
}

Result<FaultPlace> inject(std::string_view name, Subject& subject) {
  const faults::FaultRow* row = faults::find_row(name);
  if (row == nullptr) {
    return fail(ErrorCode::kUsage, "There is no fault {}. doctor --list-faults lists them.", printable(name));
  }
  if (!applies(name, subject)) {
    return fail(ErrorCode::kUsage,
                "The fault {} does not apply to this {} model on the backend {}, but to {}.", name,
                subject.spec.family, subject.backend_name, row->info.models);
  }
  const FaultPlace place = row->place(subject);
  faults::Site site(subject);
  row->put(site);
  return place;
}

}  // namespace doppler::diagnosis
