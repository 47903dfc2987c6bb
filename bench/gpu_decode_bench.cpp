// gpu_decode_bench MODEL [--tune SECONDS] [--candidates N] [--depth N] [--tokens N] [--no-looks 1]
// [--no-subgroups 1] [--slots N] [--shaders FOLDER]: the times of the parts of a decode step on the GPU, or
// of one that has no subgroups, also op by op. Tunes the matrix-vector kernels and prints every candidate,
// then the time of each kind of kernel of a step at that depth, alone in a row, and of whole steps there and
// at 0, 512 and 2,000, 1 to 16 to a submission, and, unless they are left out, of steps with taps. Layers
// without a window lie in pages where there are several slots. --shaders: .wgsl files that take the place of
// the program's.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>

#include "backend/gpu/batch_program.h"
#include "backend/gpu/decode_grouping.h"
#include "backend/gpu/decode_join.h"
#include "backend/gpu/decode_program.h"
#include "backend/gpu/timing.h"
#include "backend/gpu/tune.h"
#include "base/screen.h"
#include "model/family.h"
#include "plan/fuse.h"
#include "shader_folder.h"

using namespace doppler;
using namespace doppler::gpu;

namespace {

Status write_step(Context& context, std::uint32_t position) {
  std::vector<std::uint32_t> words(context.layout.bytes() / 4, 0);
  words[context.layout.ids()] = 7;
  words[context.layout.positions()] = position;
  return context.device->write(context.step, 0, std::as_bytes(std::span(words)));
}

constexpr std::uint32_t kMostSubmitted = 16;  // tokens

// How a product is cut: rows x lanes x units, and what of it a thread has under way.
std::string name_of(const GemvShape& shape) {
  return fmt::format("{:>2} x {:>3} x {:>2} ({})", shape.rows, shape.lanes, shape.units,
                     shape.stream != 0 ? fmt::format("a stream of {} pieces", shape.stream)
                                       : fmt::format("{} at once", shape.loaded()));
}

// The stages that the last part taps, in each layer.
class SomeStages final : public Tap {
 public:
  explicit SomeStages(std::vector<Stage> stages) : stages_(std::move(stages)) {}
  bool wants(Stage stage, int) const override { return std::ranges::count(stages_, stage) > 0; }
  void on_stage(const TapEvent& event) override { seen_ += event.data[0]; }

 private:
  std::vector<Stage> stages_;
  double seen_ = 0;
};

// Stages that lie in memory anyway, that kernels store for a tap only, and a mixture.
const std::vector<std::pair<std::string_view, std::vector<Stage>>> kLooks = {
    {"post_attn ffn_out layer_out", {Stage::kPostAttn, Stage::kFfnOut, Stage::kLayerOut}},
    {"q_rope", {Stage::kQRope}},
    {"attn_normed attn_out ffn_act", {Stage::kAttnNormed, Stage::kAttnOut, Stage::kFfnAct}},
    {"q_rope post_attn ffn_out", {Stage::kQRope, Stage::kPostAttn, Stage::kFfnOut}},
};

Result<double> time_steps(Context& context, const DecodeProgram& program, std::uint32_t per_submit,
                          std::uint32_t depth, std::uint32_t tokens, Tap* tap = nullptr) {
  DOPPLER_TRY(write_step(context, depth));
  const TapRing* taps = tap != nullptr ? program.taps() : nullptr;
  const std::uint64_t bytes = taps != nullptr ? per_submit * taps->token_bytes() : 0;
  Buffer back[2];
  for (Buffer& buffer : back) {
    if (taps == nullptr) break;
    DOPPLER_ASSIGN(buffer, context.device->make_read_back("taps", bytes));
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::uint64_t> submissions;
  const auto finish = [&](std::size_t index) -> Status {
    if (taps == nullptr) return context.device->wait(submissions[index]);
    return context.device->read(
        back[index % 2], bytes, submissions[index], [&](std::span<const std::byte> from) {
          const StepInput input;
          for (std::uint32_t i = 0; i < per_submit; ++i)
            taps->show(from.subspan(i * taps->token_bytes(), taps->token_bytes()), input, *tap);
        });
  };
  for (std::uint32_t done = 0; done < tokens; done += per_submit) {
    Recorder recorder(*context.device);
    for (std::uint32_t i = 0; i < per_submit; ++i) {
      program.record_greedy(recorder, depth + done + i,
                            done + i == 0 ? TokenFrom::kHost : TokenFrom::kBefore);
    }
    if (taps != nullptr) taps->record_copy(recorder, done, per_submit, back[submissions.size() % 2]);
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
    submissions.push_back(submission);
    // Two in flight, as the backend has them.
    if (submissions.size() >= 2) DOPPLER_TRY(finish(submissions.size() - 2));
  }
  DOPPLER_TRY(finish(submissions.size() - 1));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / tokens;
}

Status print_kernels(Context& context, const DecodeProgram& program, std::uint32_t depth) {
  std::map<std::string, std::pair<std::vector<FixedDispatch>, std::uint64_t>> kinds;
  std::map<std::size_t, const GemvSite*> sites;
  for (const GemvSite& site : program.sites()) {
    if (site.where == GemvSite::Where::kBody) sites[site.index] = &site;
  }
  for (const std::size_t i : program.body_at(depth)) {
    const auto site = sites.find(i);
    const std::string& label = program.body()[i].kernel.kernel().label();
    auto& kind = kinds[site != sites.end() ? site->second->key() : label.substr(0, label.find(' '))];
    kind.first.push_back(program.body()[i]);
    if (site != sites.end()) kind.second += site->second->bytes;
  }
  for (const GemvSite& site : program.sites()) {
    if (site.where != GemvSite::Where::kGreedyHead) continue;
    kinds["head"].first = program.head();
    kinds["head"].second += site.bytes;
  }
  double sum = 0;
  for (auto& [name, kind] : kinds) {
    // An idle GPU lowers its clocks and takes a while to raise them.
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(200))
      DOPPLER_TRY(time_each(*context.device, kind.first));
    DOPPLER_ASSIGN(const double seconds, time_each(*context.device, kind.first));
    sum += seconds * static_cast<double>(kind.first.size());
    fmt::print("{:<44} {:>4} x {:>7.2f} us  {:>8.1f} us  {:>6.0f} GB/s\n", name, kind.first.size(),
               seconds * 1e6, seconds * 1e6 * static_cast<double>(kind.first.size()),
               static_cast<double>(kind.second) / static_cast<double>(kind.first.size()) / seconds * 1e-9);
  }
  fmt::print("{:<44} {:>26.1f} us\n", "sum", sum * 1e6);
  return {};
}

Status run(int argc, char** argv) {
  double budget = 0;
  std::uint32_t depth = 0, tokens = 256, slots = 1;
  std::size_t candidates = 64;
  bool looks = true, subgroups = true;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--tune") == 0) budget = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--tokens") == 0) tokens = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--no-looks") == 0) looks = false;
    if (std::strcmp(argv[i], "--no-subgroups") == 0) subgroups = false;
    if (std::strcmp(argv[i], "--candidates") == 0)
      candidates = static_cast<std::size_t>(std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--slots") == 0) slots = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--shaders") == 0) DOPPLER_TRY(replace_shaders(argv[i + 1]));
    if (std::strcmp(argv[i], "--depth") == 0) depth = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
  }
  DOPPLER_ASSIGN(const Model model, load_model(argv[1]));
  DOPPLER_ASSIGN(const auto device, Device::open({}, {.no_subgroups = !subgroups}));
  fmt::print("{} ({}), subgroups of {}\n", device->adapter().name, device->adapter().driver,
             device->features().subgroup_size);
  std::vector<std::uint32_t> depths = {0, 512, 2000};
  if (std::ranges::find(depths, depth) == depths.end()) depths.push_back(depth);
  BackendOptions options{
      .context = std::max<std::uint64_t>(4096, std::uint64_t{depth} + tokens + kMostSubmitted),
      .slots = slots};
  DOPPLER_ASSIGN(Plan plan, build_plan(model.spec, model.weights, options.context));
  DOPPLER_TRY(fuse_plan(plan, model.weights, kGpuPasses, {}));
  options.kv_type = choose_kv_type(options, plan, model.weights);
  Context context(device, std::move(plan), model.weights, options);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  DOPPLER_TRY(context.allocate());
  DOPPLER_ASSIGN(DecodeProgram program, DecodeProgram::create(context));
  fmt::print("ready in {:.2f} s, {} kernels, {} dispatches a token\n", elapsed(), context.kernels.size(),
             program.dispatches(depth));
  DOPPLER_TRY(write_step(context, depth));
  while (elapsed() < 2)
    DOPPLER_TRY(time_steps(context, program, 8, depth, 8));  // an idle GPU lowers its clocks
  const auto steps_of = [&](const DecodeProgram& timed, std::string_view when) -> Status {
    for (const std::uint32_t at : depths) {
      for (const std::uint32_t per_submit : {1u, 4u, 8u, kMostSubmitted}) {
        DOPPLER_ASSIGN(const double seconds, time_steps(context, timed, per_submit, at, tokens));
        fmt::print("{} depth {:>4}, {:>2} tokens a submission: {:>7.1f} us, {:>6.0f} tok/s\n", when, at,
                   per_submit, seconds * 1e6, 1 / seconds);
      }
    }
    return {};
  };
  const auto steps = [&](std::string_view when) { return steps_of(program, when); };
  if (!subgroups) {
    DOPPLER_ASSIGN(const DecodeProgram alone, ungrouped(context));
    DOPPLER_TRY(steps_of(alone, "op by op"));
  }
  DOPPLER_TRY(steps("before"));
  DOPPLER_TRY(write_step(context, depth));
  DOPPLER_TRY(print_kernels(context, program, depth));
  if (budget > 0) {
    const double before = elapsed();
    DOPPLER_ASSIGN(const std::vector<TuneRow> rows, tune(context, program, budget, candidates));
    fmt::print("tuned in {:.2f} s\n", elapsed() - before);
    for (const TuneRow& row : rows) {
      fmt::print("{:<30} {} groups {:>4}: {:>7.2f} us {:>6.0f} GB/s{}\n", row.key, name_of(row.shape),
                 row.head_groups, row.seconds * 1e6, static_cast<double>(row.bytes) / row.seconds * 1e-9,
                 row.chosen ? " *" : "");
    }
    DOPPLER_TRY(steps("after"));
    DOPPLER_TRY(write_step(context, depth));
    DOPPLER_TRY(print_kernels(context, program, depth));
    DOPPLER_TRY(write_step(context, depth));
    DOPPLER_ASSIGN(const std::vector<TuneRow> pairs, join_kernels(context, program, true));
    for (const TuneRow& row : pairs) {
      fmt::print(
          "{:<60} {}: {:>7.1f} us with the head{}\n", row.key,
          row.shape.rows == 0 ? "apart" : fmt::format("{}, {}", name_of(row.shape), name_of(row.second)),
          row.seconds * 1e6, row.chosen ? " *" : "");
    }
    fmt::print("{} dispatches a token\n", program.dispatches(depth));
    DOPPLER_TRY(steps("joined"));
  }
  for (const auto& [names, stages] : kLooks) {
    if (!looks) break;
    SomeStages tap(stages);
    DOPPLER_ASSIGN(DecodeProgram looking, DecodeProgram::create(context, looks_of(context.plan, tap)));
    DOPPLER_TRY(join_kernels(context, looking, false));
    std::vector<double> looked, gathered;
    for (int round = 0; round < 7; ++round) {
      DOPPLER_ASSIGN(const double plain, time_steps(context, program, 8, 512, tokens));
      DOPPLER_ASSIGN(const double with, time_steps(context, looking, 8, 512, tokens, &tap));
      DOPPLER_ASSIGN(const double without, time_steps(context, looking, 8, 512, tokens));
      looked.push_back(with / plain);
      gathered.push_back(without / plain);
    }
    std::ranges::sort(looked);
    std::ranges::sort(gathered);
    fmt::print(
        "looking at {} of every layer: {:.4f} ({:.4f} to {:.4f}) x a step's time; not read back: {:.4f} x\n",
        names, looked[3], looked.front(), looked.back(), gathered[3]);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    say(Said::kError,
        "gpu_decode_bench MODEL [--tune SECONDS] [--candidates N] [--depth N] [--tokens N] [--no-looks 1] "
        "[--no-subgroups 1] [--slots N] [--shaders FOLDER]");
    return 2;
  }
  const Status status = run(argc, argv);
  if (!status) say(Said::kError, "gpu_decode_bench: {}", status.error().message);
  return status ? 0 : 3;
}
