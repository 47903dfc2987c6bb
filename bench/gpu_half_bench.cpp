// Times of prompts' products on tensor cores, each alone, with every cut of half_shapes(): what the figures
// in src/backend/gpu/half_shape.cpp come from. Each result is compared with the first cut's.
//   gpu_half_bench [part of an adapter's name]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/gpu/half_shape.h"
#include "backend/gpu/kernel.h"
#include "backend/gpu/timing.h"
#include "base/screen.h"

namespace doppler::gpu {
namespace {

struct Product {
  std::string_view model;
  DType type;
  std::uint32_t rows, cols;
};
constexpr Product kProducts[] = {
    {"Gemma 3 1B gate, up", DType::kQ4_0, 13824, 1152}, {"Gemma 3 1B down", DType::kQ4_0, 1152, 6912},
    {"Gemma 3 1B q, k, v", DType::kQ4_0, 1536, 1152},   {"Gemma 3 1B output", DType::kQ4_0, 1152, 1024},
    {"Llama 1B gate, up", DType::kQ4_0, 16384, 2048},   {"Llama 1B down", DType::kQ4_0, 2048, 8192},
    {"Llama 1B q, k, v", DType::kQ4_0, 3072, 2048},     {"Llama 1B output", DType::kQ4_0, 2048, 2048},
    {"Llama 1B gate, up", DType::kBF16, 16384, 2048},   {"Llama 1B down", DType::kBF16, 2048, 8192},
    {"Llama 8B gate, up", DType::kQ4_K, 28672, 4096},   {"Llama 8B down", DType::kQ6_K, 4096, 14336},
    {"Llama 1B down", DType::kQ8_0, 2048, 8192},
};
constexpr std::uint32_t kTokenCounts[] = {512, 128};
constexpr std::uint32_t kBenchRoom = 512;
constexpr double kSecondsEach = 0.03, kSecondsToKeepWarm = 0.3,
                 kSecondsToWarmUp = 2;  // an idle GPU runs at a fifth of its clock

class HalfBench {
 public:
  explicit HalfBench(std::shared_ptr<Device> device) : device_(std::move(device)), pool_(0) {}

  Status run() {
    fmt::print("{} ({}), tensor cores {}\n", device_->adapter().name, device_->adapter().driver,
               device_->features().tiles == Tiles::kDevice ? "yes" : "no: loops stand for them");
    for (const Product& product : kProducts) DOPPLER_TRY(measure(product));
    return {};
  }

 private:
  Result<Buffer> random(std::size_t words, std::uint32_t mask) {
    return device_->make_filled("bench", words * 4, [&](std::span<std::byte> out) {
      for (std::size_t i = 0; i + 4 <= out.size(); i += 4) {
        const std::uint32_t word = random_() & mask;
        std::memcpy(&out[i], &word, 4);
      }
    });
  }

  Status measure(const Product& p) {
    const std::uint32_t units = (p.cols + kUnitValues - 1) / kUnitValues;
    const WeightFormat format = format_of(p.type);
    // Halves, and floats of 16 bits, of magnitudes from 2^-14 to 2.
    DOPPLER_ASSIGN(const Buffer codes, random(std::size_t{p.rows} * units * format.pieces() * 4, 0xbfffbfff));
    DOPPLER_ASSIGN(const Buffer scales,
                   random(std::size_t{p.rows} * units * std::max(format.scale_words(), 1u), 0x2fff2fff));
    DOPPLER_ASSIGN(const Buffer x16, random(std::size_t{kBenchRoom} * units * kUnitValues / 2, 0xaaffaaff));
    DOPPLER_ASSIGN(const Buffer out, device_->make_buffer("out", std::uint64_t{kBenchRoom} * p.rows * 4));
    DOPPLER_ASSIGN(const Buffer parts,
                   device_->make_buffer("parts", 4 * std::uint64_t{kBenchRoom} * p.rows * 4));
    for (const std::uint32_t tokens : kTokenCounts) {
      DOPPLER_ASSIGN(const Buffer step, device_->make_filled("step", 16, [&](std::span<std::byte> to) {
        std::memcpy(to.data(), &tokens, 4);
      }));
      const auto chosen = choose_half_shape(device_->limits(), tokens, p.rows, units);
      std::vector<float> first;
      for (HalfShape shape : half_shapes()) {
        for (shape.splits = 1; shape.splits <= 4; ++shape.splits) {
          if (!half_fits(device_->limits(), shape) || (shape.splits > 1 && p.rows > 4096)) continue;
          const bool split = shape.splits > 1;
          ShaderValues values = half_values(*device_, shape, format, p.rows, units, kBenchRoom);
          values.merge(ShaderValues{{"BIAS", 0}, {"COUNT", 0}, {"OUT_STRIDE", p.rows}, {"OUT_OFFSET", 0}});
          if (split) values["SPLIT_STRIDE"] = std::int64_t{kBenchRoom} * p.rows;
          std::vector<Bound> buffers = {
              {"step", step}, {"codes", codes}, {"x16", x16}, {"out", split ? parts : out}};
          if (format.quantised()) buffers.push_back({"scales", scales});
          DOPPLER_ASSIGN(auto kernel, Kernel::create(*device_, "gemm_half.wgsl", values));
          DOPPLER_ASSIGN(const BoundKernel product, BoundKernel::create(*device_, kernel, buffers));
          BoundKernel sum;
          if (split) {
            values = {{"THREADS", 128},
                      {"ROWS", p.rows},
                      {"BIAS", 0},
                      {"SPLITS", shape.splits},
                      {"OUT_STRIDE", p.rows},
                      {"OUT_OFFSET", 0},
                      {"SPLIT_STRIDE", std::int64_t{kBenchRoom} * p.rows}};
            DOPPLER_ASSIGN(auto adds, Kernel::create(*device_, "gemm_sum.wgsl", values));
            DOPPLER_ASSIGN(sum, BoundKernel::create(*device_, adds, {{"parts", parts}, {"out", out}}));
          }
          const auto record = [&](Recorder& recorder) {
            recorder.dispatch(product, {(p.rows + shape.tile_rows - 1) / shape.tile_rows,
                                        (tokens + shape.tile_tokens - 1) / shape.tile_tokens, shape.splits});
            if (split) recorder.dispatch(sum, {(p.rows + 127) / 128, tokens, 1});
          };
          // Compiling a cut lets the clock sink.
          DOPPLER_TRY(time_on_device(*device_, 1, record, warm_ ? kSecondsToKeepWarm : kSecondsToWarmUp));
          warm_ = true;
          DOPPLER_ASSIGN(const double seconds, time_on_device(*device_, split ? 2 : 1, record, kSecondsEach));
          DOPPLER_ASSIGN(const std::string wrong, compare(out, std::size_t{tokens} * p.rows, first));
          fmt::print("{:20} {:5} {:5} x {:5}, {:3} tokens  {:18} {:8.1f} us {:6.1f} TFLOPS {}{}\n", p.model,
                     dtype_name(p.type), p.rows, p.cols, tokens, shape.name(), seconds * 1e6,
                     2.0 * tokens * p.rows * p.cols / seconds * 1e-12,
                     chosen && chosen->name() == shape.name() ? "<- chosen " : "", wrong);
          std::fflush(stdout);
        }
      }
    }
    return {};
  }

  // By how much results differ from those of the first cut, against their largest.
  Result<std::string> compare(const Buffer& out, std::size_t floats, std::vector<float>& first) {
    DOPPLER_ASSIGN(const std::vector<std::byte> bytes, device_->download(out));
    std::vector<float> now(floats);
    std::memcpy(now.data(), bytes.data(), floats * 4);
    if (first.empty()) first = now;
    double most = 0, error = 0;
    bool finite = true;
    for (std::size_t i = 0; i < floats; ++i) {
      finite = finite && std::isfinite(now[i]);
      most = std::max<double>(most, std::abs(first[i]));
      error = std::max<double>(error, std::abs(now[i] - first[i]));
    }
    if (!finite || most == 0) return std::string(finite ? "ONLY ZEROS" : "NOT FINITE");
    return error / most < 1e-3 ? std::string() : fmt::format("DIFFERS by {:.1e}", error / most);
  }

  std::shared_ptr<Device> device_;
  ThreadPool pool_;
  std::mt19937 random_{7};
  bool warm_ = false;
};

}  // namespace
}  // namespace doppler::gpu

int main(int count, char** arguments) {
  using namespace doppler::gpu;
  doppler::GpuOptions options;
  if (count > 1) options.adapter = arguments[1];
  auto device = Device::open(options, {.plain_tiles = false});
  const doppler::Status status = device ? HalfBench(*device).run() : std::unexpected(device.error());
  if (status) return 0;
  doppler::say(doppler::Said::kError, status.error().message);
  return 1;
}
