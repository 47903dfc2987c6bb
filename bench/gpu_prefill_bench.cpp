// Times of the kernels that prompts run through on a GPU, each alone, with every cut of gemm_shapes() and
// attention_shapes(), for the shapes of Gemma 3 1B and Llama 3.2 1B in Q4_0. The fastest belong into
// kMeasured of src/backend/gpu/gemm_shape.cpp and to the front of the lists in attention_shape.cpp.
// Or where the milliseconds of a model's prompt go: gpu_prompt_parts.h.
//   gpu_prefill_bench [part of an adapter's name]
//   gpu_prefill_bench MODEL [--tokens N] [--rounds N] [--shaders FOLDER ...]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/attention_shape.h"
#include "backend/gpu/context.h"
#include "backend/gpu/gemm_shape.h"
#include "backend/gpu/half_attention.h"
#include "backend/gpu/recorder.h"
#include "base/float16.h"
#include "base/screen.h"
#include "gpu_prompt_parts.h"

namespace doppler::gpu {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr double kMostSeconds = 60;   // of the whole program
constexpr double kWarmUpSeconds = 2;  // an idle GPU runs at a fifth of its clock
constexpr std::uint32_t kTokens[] = {512, 128};
constexpr std::uint32_t kRoom = 512;

struct Model {
  std::string_view name;
  std::uint32_t layers, hidden, feed_forward, heads, kv_heads, head_dim, window;
  bool sandwich;  // norms behind attention and feed-forward, and of q and k
};
constexpr Model kModels[] = {{"Gemma 3 1B", 26, 1152, 6912, 4, 1, 256, 512, true},
                             {"Llama 3.2 1B", 16, 2048, 8192, 32, 8, 64, 0, false}};

struct Launch {
  BoundKernel kernel;
  Workgroups groups;
};

class Bench {
 public:
  explicit Bench(std::shared_ptr<Device> device) : device_(std::move(device)), kernels_(*device_), pool_(0) {}

  Status run() {
    fmt::print("{} ({}, {})\n", device_->adapter().name, device_->adapter().kind, device_->adapter().driver);
    DOPPLER_ASSIGN(step_, upload(step_words(kRoom)));
    DOPPLER_ASSIGN(out_, upload(std::vector<float>(kRoom * 16384)));
    for (const Model& model : kModels) {
      double total[std::size(kTokens)] = {};
      const std::uint32_t q = model.heads * model.head_dim, kv = 2 * model.kv_heads * model.head_dim;
      DOPPLER_TRY(product(model, "gate, up", 2 * model.feed_forward, model.hidden, total));
      DOPPLER_TRY(product(model, "down", model.hidden, model.feed_forward, total));
      DOPPLER_TRY(product(model, "q, k, v", q + kv, model.hidden, total));
      DOPPLER_TRY(product(model, "output", model.hidden, q, total));
      if (!model.sandwich) {
        DOPPLER_TRY(float_product(model, "gate, up", 2 * model.feed_forward, model.hidden));
        DOPPLER_TRY(float_product(model, "down", model.hidden, model.feed_forward));
        DOPPLER_TRY(float_product(model, "q, k, v", q + kv, model.hidden));
        DOPPLER_TRY(float_product(model, "output", model.hidden, q));
      }
      DOPPLER_TRY(attention(model, total));
      DOPPLER_TRY(elements(model, total));
      for (std::size_t m = 0; m < std::size(kTokens); ++m) {
        fmt::print("{}, {} tokens: {:.1f} us a layer, {:.2f} ms in {} layers, {:.0f} tok/s at most\n\n",
                   model.name, kTokens[m], total[m] * 1e6, total[m] * 1e3 * model.layers, model.layers,
                   kTokens[m] / (total[m] * model.layers));
      }
    }
    return {};
  }

 private:
  bool late() const { return since(begin_) > kMostSeconds; }

  static std::vector<std::uint32_t> step_words(std::uint32_t tokens) {
    // tokens, wanted, longest, -, positions, slots
    std::vector<std::uint32_t> words = {tokens, 0, tokens, 0};
    for (std::uint32_t i = 0; i < kRoom; ++i) words.push_back(i);
    words.resize(4 + 2 * kRoom);
    return words;
  }

  template <typename T>
  Result<Buffer> upload(const std::vector<T>& values) {
    return device_->make_filled("bench", values.size() * sizeof(T), [&](std::span<std::byte> out) {
      std::memcpy(out.data(), values.data(), values.size() * sizeof(T));
    });
  }
  Result<Buffer> random_floats(std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random_() % 2001) / 1000.0f - 1;
    return upload(values);
  }

  Result<Launch> launch(std::string_view file, const ShaderValues& values, const std::vector<Bound>& buffers,
                        Workgroups groups) {
    DOPPLER_ASSIGN(auto kernel, kernels_.get(file, values));
    DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(*device_, std::move(kernel), buffers));
    return Launch{std::move(bound), groups};
  }

  // Seconds of one pass over the launches, in a chain: the least of three submissions.
  Result<double> time(const std::vector<Launch>& launches) {
    const auto submit = [&](std::uint32_t times) -> Result<double> {
      Recorder recorder(*device_);
      for (std::uint32_t i = 0; i < times; ++i) {
        for (const Launch& l : launches) recorder.dispatch(l.kernel, l.groups);
      }
      const auto begin = Clock::now();
      DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
      DOPPLER_TRY(device_->wait(submission));
      return since(begin);
    };
    while (!warm_) {
      DOPPLER_ASSIGN(const double seconds, submit(20));
      warmed_ += seconds;
      warm_ = warmed_ > kWarmUpSeconds;
    }
    DOPPLER_ASSIGN(const double once, submit(1));
    // Long enough that the submission's own cost (60 us) does not show, short enough for software adapters.
    const auto times = static_cast<std::uint32_t>(std::clamp(10e-3 / once, 1.0, 100.0));
    double least = 1e9;
    for (int i = 0; i < 3 && (i == 0 || least * times < 0.5); ++i) {
      DOPPLER_ASSIGN(const double seconds, submit(times));
      least = std::min(least, seconds / times);
    }
    return least;
  }

  // The largest difference of the results to those of the first cut, against their largest.
  Result<std::string> compare(std::vector<float>& first, std::size_t floats) {
    DOPPLER_ASSIGN(const std::vector<std::byte> bytes, device_->download(out_));
    std::vector<float> now(floats);
    std::memcpy(now.data(), bytes.data(), floats * 4);
    if (first.empty()) first = now;
    double most = 0, error = 0;
    for (std::size_t i = 0; i < floats; ++i) {
      most = std::max<double>(most, std::abs(first[i]));
      error = std::max<double>(error, std::abs(now[i] - first[i]));
    }
    if (most == 0) return std::string("ONLY ZEROS");
    return error / most < 1e-4 ? std::string("") : fmt::format("DIFFERS by {:.1e}", error / most);
  }

  Result<GpuMatrix> random_matrix(std::uint32_t rows, std::uint32_t cols) {
    std::vector<std::byte> file(std::size_t{rows} * cols / 32 * 18);
    for (std::size_t i = 0; i < file.size(); ++i) file[i] = static_cast<std::byte>(random_());
    const std::uint16_t scale = f32_to_f16(0.01f);
    for (std::size_t i = 0; i < file.size(); i += 18) std::memcpy(&file[i], &scale, 2);
    const TensorView view{"w", DType::kQ4_0, {rows, cols}, file};
    const TensorView* const views[] = {&view};
    return upload_matrix(*device_, pool_, views, device_->limits().binding_bytes);
  }

  Status product(const Model& model, std::string_view what, std::uint32_t rows, std::uint32_t cols,
                 double* total) {
    DOPPLER_ASSIGN(const GpuMatrix matrix, random_matrix(rows, cols));
    std::vector<std::uint32_t> codes(std::size_t{kRoom} * matrix.units * 16);
    for (std::uint32_t& word : codes) word = random_();
    std::vector<float> scales(std::size_t{kRoom} * matrix.units * 4, 0.01f);
    DOPPLER_ASSIGN(const Buffer x8, upload(codes));
    DOPPLER_ASSIGN(const Buffer xs, upload(scales));
    DOPPLER_ASSIGN(const Buffer parts, device_->make_buffer("parts", std::uint64_t{4} * kRoom * rows * 4));
    for (std::size_t m = 0; m < std::size(kTokens); ++m) {
      const std::uint32_t tokens = kTokens[m];
      const auto chosen = choose_gemm_shape(device_->limits(), matrix.format, tokens, rows, matrix.units);
      std::vector<float> first;
      double best = 1e9;
      for (GemmShape shape : gemm_shapes()) {
        for (shape.splits = 1; shape.splits <= 4; ++shape.splits) {
          if (shape.splits > 1 && (shape.splits * shape.units * 4 > matrix.units || rows > 4096)) break;
          if (late() || !gemm_fits(device_->limits(), shape, matrix.format)) continue;
          DOPPLER_TRY(device_->write(step_, 0, std::as_bytes(std::span(&tokens, 1))));
          std::vector<Bound> buffers = {
              {"codes", matrix.shards[0].codes}, {"scales", matrix.shards[0].scales}, {"x8", x8}, {"xs", xs}};
          DOPPLER_ASSIGN(
              const std::vector<Launch> launches,
              tiled("gemm.wgsl", shape, tokens, rows, gemm_values(shape, matrix.format, rows, matrix.units),
                    std::move(buffers), parts));
          DOPPLER_ASSIGN(const double seconds, time(launches));
          DOPPLER_ASSIGN(const std::string wrong, compare(first, std::size_t{tokens} * rows));
          best = std::min(best, seconds);
          fmt::print("{} {:8} {:5} x {:4}, {:3} tokens  {:22} {:8.1f} us {:6.1f} TOPS {}{}\n", model.name,
                     what, rows, cols, tokens, shape.name(), seconds * 1e6,
                     2.0 * tokens * rows * cols / seconds * 1e-12, chosen == shape ? "<- chosen " : "",
                     wrong);
          std::fflush(stdout);
        }
      }
      total[m] += best;
    }
    return {};
  }

  // Weights of BF16 and float activations, which are no part of the totals.
  Status float_product(const Model& model, std::string_view what, std::uint32_t rows, std::uint32_t cols) {
    std::vector<std::byte> file(std::size_t{rows} * cols * 2);
    for (std::size_t i = 0; i < file.size(); i += 2) {
      const std::uint16_t value = f32_to_bf16(static_cast<float>(random_() % 2001) / 1000.0f - 1);
      std::memcpy(&file[i], &value, 2);
    }
    const TensorView view{"w", DType::kBF16, {rows, cols}, file};
    const TensorView* const views[] = {&view};
    DOPPLER_ASSIGN(const GpuMatrix matrix,
                   upload_matrix(*device_, pool_, views, device_->limits().binding_bytes));
    DOPPLER_ASSIGN(const Buffer x, random_floats(std::size_t{kRoom} * cols));
    DOPPLER_ASSIGN(const Buffer parts, device_->make_buffer("parts", std::uint64_t{4} * kRoom * rows * 4));
    const std::uint32_t tokens = kTokens[0];
    DOPPLER_TRY(device_->write(step_, 0, std::as_bytes(std::span(&tokens, 1))));
    const auto chosen =
        choose_float_shape(device_->limits(), matrix.format, tokens, rows, matrix.units, false);
    std::vector<float> first;
    for (GemmShape shape : float_shapes()) {
      for (shape.splits = 1; shape.splits <= 4; ++shape.splits) {
        if ((shape.splits > 1 && rows > 4096) || late()) break;
        if (float_gemm_bytes(shape, matrix.format) > device_->limits().workgroup_bytes) break;
        ShaderValues values = float_gemm_values(shape, matrix.format, rows, matrix.units);
        values["X_STRIDE"] = values["WIDTH"] = cols;
        values["X_OFFSET"] = 0;
        values["X_VEC"] = 1;
        std::vector<Bound> buffers = {{"codes", matrix.shards[0].codes}, {"x", x}};
        DOPPLER_ASSIGN(
            const std::vector<Launch> launches,
            tiled("gemm_float.wgsl", shape, tokens, rows, std::move(values), std::move(buffers), parts));
        DOPPLER_ASSIGN(const double seconds, time(launches));
        DOPPLER_ASSIGN(const std::string wrong, compare(first, std::size_t{tokens} * rows));
        fmt::print("{} {:8} {:5} x {:4}, BF16  {:22} {:8.1f} us {:6.1f} Tflop/s {}{}\n", model.name, what,
                   rows, cols, shape.name(), seconds * 1e6, 2.0 * tokens * rows * cols / seconds * 1e-12,
                   chosen == shape ? "<- chosen " : "", wrong);
        std::fflush(stdout);
      }
    }
    return {};
  }

  // A product, and the sum of its parts where it is split.
  Result<std::vector<Launch>> tiled(std::string_view file, const GemmShape& shape, std::uint32_t tokens,
                                    std::uint32_t rows, ShaderValues values, std::vector<Bound> buffers,
                                    const Buffer& parts) {
    const bool split = shape.splits > 1;
    values["BIAS"] = 0;
    values["COUNT"] = 0;
    values["OUT_STRIDE"] = rows;
    values["OUT_OFFSET"] = 0;
    if (split) values["SPLIT_STRIDE"] = kRoom * rows;
    buffers.push_back({"step", step_});
    buffers.push_back({"out", split ? parts : out_});
    const auto groups = [](std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; };
    std::vector<Launch> launches;
    DOPPLER_ASSIGN(Launch made,
                   launch(file, values, buffers,
                          {groups(rows, shape.tile_rows), groups(tokens, shape.tile_tokens), shape.splits}));
    launches.push_back(std::move(made));
    if (!split) return launches;
    values = {{"THREADS", 128},     {"ROWS", rows}, {"SPLITS", shape.splits}, {"SPLIT_STRIDE", kRoom * rows},
              {"OUT_STRIDE", rows}, {"BIAS", 0},    {"OUT_OFFSET", 0}};
    DOPPLER_ASSIGN(Launch sum, launch("gemm_sum.wgsl", values, {{"parts", parts}, {"out", out_}},
                                      {groups(rows, 128), tokens, 1}));
    launches.push_back(std::move(sum));
    return launches;
  }

  Status attention(const Model& model, double* total) {
    const std::uint32_t capacity = kRoom + (model.window == 0 ? 0 : model.window - 1);
    const std::uint32_t q_width = model.heads * model.head_dim;
    DOPPLER_ASSIGN(const Buffer q, random_floats(std::size_t{kRoom} * q_width));
    std::vector<std::uint16_t> halves(std::size_t{model.kv_heads} * capacity * model.head_dim);
    for (std::uint16_t& half : halves) half = f32_to_f16(static_cast<float>(random_() % 2001) / 1000.0f - 1);
    DOPPLER_ASSIGN(const Buffer keys, upload(halves));
    DOPPLER_ASSIGN(const Buffer values_buffer, upload(halves));
    const std::vector<Bound> buffers = {
        {"step", step_}, {"q", q}, {"keys", keys}, {"values", values_buffer}, {"out", out_}};
    ShaderValues common = {{"KV_HALF", 1},
                           {"DIM", model.head_dim},
                           {"HEADS", model.heads},
                           {"KV_HEADS", model.kv_heads},
                           {"CAPACITY", capacity},
                           {"WINDOW", model.window},
                           {"CHUNKED", 0},
                           {"ALIBI", 0},
                           {"SINKS", 0},
                           {"SCALE_BITS", float_bits(1 / std::sqrt(model.head_dim))},
                           {"SOFTCAP", 0},
                           {"EMIT_SCORES", 0},
                           {"Q_STRIDE", q_width},
                           {"Q_OFFSET", 0},
                           {"OUT_STRIDE", q_width},
                           {"OUT_OFFSET", 0},
                           {"POSITIONS", 4},
                           {"SLOTS", 4 + kRoom}};
    const auto chosen = choose_attention_shape(device_->limits(), model.head_dim);
    for (std::size_t m = 0; m < std::size(kTokens); ++m) {
      const std::uint32_t tokens = kTokens[m];
      // Counts only the products that the mask leaves.
      const double products = 2.0 * tokens * (tokens + 1) / 2 * q_width * 2;
      double best = 1e9;
      std::vector<float> first;
      DOPPLER_TRY(device_->write(step_, 0, std::as_bytes(std::span(&tokens, 1))));
      // Compared with the first of the same rounding.
      const auto time_tiles = [&](const char* file, const std::string& name, std::uint32_t tile,
                                  bool is_chosen, ShaderValues values,
                                  std::vector<float>& expected) -> Status {
        values["COUNT"] = 0;
        DOPPLER_ASSIGN(Launch made,
                       launch(file, values, buffers, {model.heads, (tokens + tile - 1) / tile, 1}));
        DOPPLER_ASSIGN(const double seconds, time({made}));
        DOPPLER_ASSIGN(const std::string wrong, compare(expected, std::size_t{tokens} * q_width));
        best = std::min(best, seconds);
        fmt::print("{} attention, {:3} tokens  {:22} {:8.1f} us {:6.2f} TFLOPS {}{}\n", model.name, tokens,
                   name, seconds * 1e6, products / seconds * 1e-12, is_chosen ? "<- chosen " : "", wrong);
        return {};
      };
      for (const AttentionShape& shape : attention_shapes()) {
        const auto cut = cut_attention(device_->limits(), shape, model.head_dim);
        if (!cut || late()) continue;
        ShaderValues values = common;
        add_attention_cut(values, shape, *cut);
        const bool is_chosen = chosen && chosen->name() == shape.name();
        DOPPLER_TRY(time_tiles("attention_tiled.wgsl", shape.name(), shape.tokens, is_chosen, values, first));
      }
      if (device_->features().tiles == Tiles::kDevice) {
        const AttentionParams params{.heads = model.heads,
                                     .kv_heads = model.kv_heads,
                                     .head_dim = model.head_dim,
                                     .window = model.window};
        const auto chosen_half = choose_half_attention(device_->limits(), params, tokens);
        std::vector<float> first_half;
        for (const HalfAttention& shape : half_attentions()) {
          if (!half_attention_fits(device_->limits(), shape, params) || late()) continue;
          ShaderValues values = common;
          add_half_attention(*device_, values, shape);
          const bool is_chosen = chosen_half && chosen_half->name() == shape.name();
          DOPPLER_TRY(
              time_tiles("attention_half.wgsl", shape.name(), shape.tokens(), is_chosen, values, first_half));
        }
      }
      ShaderValues values = common;
      values["THREADS"] = 64;
      values["VALUE_DIM"] = model.head_dim;
      if (!late()) {
        DOPPLER_ASSIGN(Launch plain, launch("attention.wgsl", values, buffers, {model.heads, tokens, 1}));
        DOPPLER_ASSIGN(const double seconds, time({plain}));
        DOPPLER_ASSIGN(const std::string wrong, compare(first, std::size_t{tokens} * q_width));
        fmt::print("{} attention, {:3} tokens  {:22} {:8.1f} us {}\n", model.name, tokens, "token by token",
                   seconds * 1e6, wrong);
      }
      total[m] += best;
    }
    return {};
  }

  Status elements(const Model& model, double* total) {
    const std::uint32_t units = model.hidden / 64, ffn_units = model.feed_forward / 64;
    DOPPLER_ASSIGN(const Buffer a, random_floats(std::size_t{kRoom} * 2 * model.feed_forward));
    DOPPLER_ASSIGN(const Buffer b, random_floats(std::size_t{kRoom} * model.hidden));
    DOPPLER_ASSIGN(const Buffer weight, random_floats(model.feed_forward));
    DOPPLER_ASSIGN(const Buffer x8, device_->make_buffer("x8", std::uint64_t{kRoom} * model.feed_forward));
    DOPPLER_ASSIGN(const Buffer xs,
                   device_->make_buffer("xs", std::uint64_t{kRoom} * model.feed_forward / 4));
    DOPPLER_ASSIGN(const Buffer keys, device_->make_buffer("keys", std::uint64_t{1} << 23));
    DOPPLER_ASSIGN(const Buffer values_buffer, device_->make_buffer("values", std::uint64_t{1} << 23));
    DOPPLER_ASSIGN(const Buffer angles, random_floats((2 + 256) * model.head_dim));
    const std::int64_t hidden = model.hidden, eps = float_bits(1e-6);
    for (std::size_t m = 0; m < std::size(kTokens); ++m) {
      const std::uint32_t tokens = kTokens[m];
      const auto report = [&](std::string_view what, std::uint32_t times,
                              const Result<Launch>& made) -> Status {
        if (!made) return std::unexpected(made.error());
        if (late()) return {};
        DOPPLER_ASSIGN(const double seconds, time({*made}));
        total[m] += times * seconds;
        fmt::print("{} {:3} tokens  {:28} {:8.1f} us, {} a layer\n", model.name, tokens, what, seconds * 1e6,
                   times);
        return {};
      };
      for (const std::int64_t threads : {128, 256}) {
        ShaderValues values = {{"THREADS", threads},
                               {"WIDTH", hidden},
                               {"ADD", 1},
                               {"POST", model.sandwich},
                               {"NORM", 1},
                               {"RESIDUAL_STRIDE", hidden},
                               {"RESIDUAL_OFFSET", 0},
                               {"BRANCH_STRIDE", hidden},
                               {"BRANCH_OFFSET", 0},
                               {"H_STRIDE", hidden},
                               {"H_OFFSET", 0},
                               {"EPS_BITS", eps},
                               {"FLOATS", 0},
                               {"QUANT", 1},
                               {"UNITS_K", units}};
        std::vector<Bound> buffers = {{"residual", a},    {"branch", b}, {"h_out", out_},
                                      {"weight", weight}, {"x8", x8},    {"xs", xs}};
        if (model.sandwich) {
          values["POST_EPS_BITS"] = eps;
          values["EMIT"] = 0;
          buffers.push_back({"post_weight", weight});
        }
        DOPPLER_TRY(report(fmt::format("add, norms, blocks / {}", threads), threads == 128 ? 2 : 0,
                           launch("batch_norm.wgsl", values, buffers, {1, tokens, 1})));
      }
      ShaderValues values = {{"THREADS", 128},
                             {"WIDTH", model.feed_forward},
                             {"UNITS_K", ffn_units},
                             {"GATED", 1},
                             {"EMIT", 0},
                             {"ACTIVATION", model.sandwich ? 1 : 0},
                             {"A_STRIDE", 2 * model.feed_forward},
                             {"A_OFFSET", 0},
                             {"B_STRIDE", 2 * model.feed_forward},
                             {"B_OFFSET", model.feed_forward}};
      DOPPLER_TRY(report("gate, up, blocks", 1,
                         launch("batch_quantise.wgsl", values, {{"a", a}, {"b", a}, {"x8", x8}, {"xs", xs}},
                                {(ffn_units * 16 + 127) / 128, tokens, 1})));
      const std::uint32_t q_width = model.heads * model.head_dim;
      values = {{"THREADS", 128}, {"WIDTH", q_width}, {"UNITS_K", q_width / 64},
                {"GATED", 0},     {"EMIT", 0},        {"A_STRIDE", q_width},
                {"A_OFFSET", 0}};
      DOPPLER_TRY(report("attention's blocks", 1,
                         launch("batch_quantise.wgsl", values, {{"a", a}, {"x8", x8}, {"xs", xs}},
                                {(q_width / 4 + 127) / 128, tokens, 1})));
      const std::uint32_t head_threads = std::clamp<std::uint32_t>(model.head_dim / 2, 32, 128);
      const std::uint32_t heads_each = model.sandwich ? 1 : 128 / head_threads;
      values = {{"KV_HALF", 1},
                {"DIM", model.head_dim},
                {"HEADS", model.heads},
                {"KV_HEADS", model.kv_heads},
                {"CAPACITY", kRoom},
                {"TPH", head_threads},
                {"HPW", heads_each},
                {"NORM", model.sandwich ? 1 : 0},
                {"EMIT", 0},
                {"PAIRS", model.head_dim / 2},
                {"HIGH_ROWS", 2},
                {"INTERLEAVED", 0},
                {"POSITIONS", 4},
                {"SLOTS", 4 + kRoom},
                {"QKV_STRIDE", q_width + 2 * model.kv_heads * model.head_dim},
                {"Q_OFFSET", 0},
                {"K_OFFSET", q_width},
                {"V_OFFSET", q_width + model.kv_heads * model.head_dim},
                {"Q_OUT_STRIDE", q_width},
                {"Q_OUT_OFFSET", 0}};
      std::vector<Bound> buffers = {{"step", step_}, {"qkv", a},     {"angles", angles},
                                    {"q_out", out_}, {"keys", keys}, {"values", values_buffer}};
      if (model.sandwich) {
        values["EPS_BITS"] = eps;
        buffers.push_back({"q_weight", weight});
        buffers.push_back({"k_weight", weight});
      }
      DOPPLER_TRY(
          report("norms, turns, cache", 1,
                 launch("rope_append.wgsl", values, buffers,
                        {(model.heads + 2 * model.kv_heads + heads_each - 1) / heads_each, tokens, 1})));
    }
    return {};
  }

  std::shared_ptr<Device> device_;
  KernelCache kernels_;
  ThreadPool pool_;
  std::mt19937 random_{1};
  Buffer step_, out_;
  Clock::time_point begin_ = Clock::now();
  bool warm_ = false;
  double warmed_ = 0;
};

Status run(const std::string& adapter) {
  DOPPLER_ASSIGN(auto device, Device::open({.adapter = adapter}));
  return Bench(std::move(device)).run();
}

}  // namespace
}  // namespace doppler::gpu

namespace {

doppler::Result<doppler::gpu::PromptOptions> prompt_options(int argc, char** argv) {
  doppler::gpu::PromptOptions options{.model = argv[1], .shaders = {}};
  for (int i = 2; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--tokens" && name != "--rounds" && name != "--shaders"))
      return doppler::fail(doppler::ErrorCode::kUsage, "There is no option {}, or it needs a value.", name);
    if (name == "--tokens") options.tokens = static_cast<std::uint32_t>(std::max(std::atoi(argv[i + 1]), 1));
    if (name == "--rounds") options.rounds = std::max(std::atoi(argv[i + 1]), 1);
    if (name == "--shaders") options.shaders.emplace_back(argv[i + 1]);
  }
  return options;
}

doppler::Status run_program(int argc, char** argv) {
  if (argc < 2 || !std::filesystem::exists(argv[1])) return doppler::gpu::run(argc > 1 ? argv[1] : "");
  DOPPLER_ASSIGN(const doppler::gpu::PromptOptions options, prompt_options(argc, argv));
  return doppler::gpu::print_prompt_parts(options);
}

}  // namespace

int main(int argc, char** argv) {
  const doppler::Status status = run_program(argc, argv);
  if (!status) doppler::say(doppler::Said::kError, status.error().message);
  return status ? 0 : 1;
}
