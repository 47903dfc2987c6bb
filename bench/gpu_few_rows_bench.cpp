// Times of the products of a few rows on a GPU, each alone, in the shapes that look best by the model of
// src/backend/gpu/few_rows_shape.cpp, for Gemma 3 1B and Llama 3.2 1B in Q4_0, and Llama's head in BF16 in
// both of its forms: the first of each list is taken. Weights are read from memory: so many copies of a
// matrix take turns that no cache holds them.
//   gpu_few_rows_bench [part of an adapter's name] [part of a product's name] [shapes of each product]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/kernel.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/timing.h"
#include "base/screen.h"

namespace doppler::gpu {
namespace {

constexpr double kMostSeconds = 100;                  // of the whole program
constexpr std::uint64_t kCopiesBytes = 160ull << 20;  // three times the largest cache
constexpr double kWarmUpSeconds = 0.1;                // of a product
constexpr std::uint32_t kRoom = 64;

struct Product {
  std::string_view name;
  DType dtype;
  std::uint32_t rows, width;
  bool gated;
  bool head = false;  // in the form that heads have
};
constexpr Product kProducts[] = {{"Gemma 3 1B q, k, v", DType::kQ4_0, 1536, 1152, false},
                                 {"Gemma 3 1B output", DType::kQ4_0, 1152, 1024, false},
                                 {"Gemma 3 1B gate, up", DType::kQ4_0, 13824, 1152, true},
                                 {"Gemma 3 1B down", DType::kQ4_0, 1152, 6912, false},
                                 {"Gemma 3 1B head", DType::kQ8_0, 262144, 1152, false},
                                 {"Llama 3.2 1B q, k, v", DType::kQ4_0, 3072, 2048, false},
                                 {"Llama 3.2 1B output", DType::kQ4_0, 2048, 2048, false},
                                 {"Llama 3.2 1B gate, up", DType::kQ4_0, 16384, 2048, true},
                                 {"Llama 3.2 1B down", DType::kQ4_0, 2048, 8192, false},
                                 {"Llama 3.2 1B head", DType::kQ6_K, 128256, 2048, false},
                                 {"Llama BF16 head, 16 bits", DType::kBF16, 128256, 2048, false},
                                 {"Llama BF16 head, 13 bits", DType::kBF16, 128256, 2048, false, true}};

class FewRowsBench {
 public:
  FewRowsBench(std::shared_ptr<Device> device, std::size_t shapes)
      : device_(std::move(device)), kernels_(*device_), shapes_(shapes) {}

  Status run(std::string_view part_of_name) {
    fmt::print("{} ({}, {}); us of a product, for 8 columns and for tiles\n", device_->adapter().name,
               device_->adapter().kind, device_->adapter().driver);
    for (const Product& product : kProducts) {
      if (product.name.find(part_of_name) == std::string_view::npos) continue;
      DOPPLER_TRY(prepare(product));
      DOPPLER_TRY(columns(product));
      for (const std::uint32_t tile : {16u, 32u, 64u}) DOPPLER_TRY(tiles(product, tile));
    }
    return {};
  }

 private:
  bool late() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count() > kMostSeconds;
  }

  Result<Buffer> random_words(std::uint64_t count) {
    return device_->make_filled("bench", count * 4, [&](std::span<std::byte> out) {
      for (std::size_t i = 0; i + 4 <= out.size(); i += 4) {
        const std::uint32_t word = random_() & 0x3c3f3c3f;  // as halves, finite numbers
        std::memcpy(&out[i], &word, 4);
      }
    });
  }

  Status prepare(const Product& p) {
    format_ = p.head ? head_format_of(p.dtype) : format_of(p.dtype);
    units_ = (p.width + kUnitValues - 1) / kUnitValues;
    const std::uint64_t all_rows = (p.rows + kTileRows - 1) / kTileRows * kTileRows;
    const std::uint64_t code_words = all_rows * units_ * format_.pieces() * 4,
                        scale_words = all_rows * (units_ * format_.scale_words() + format_.row_words());
    copies_.clear();
    const std::uint64_t copies = std::max<std::uint64_t>(1, kCopiesBytes / ((code_words + scale_words) * 4));
    for (std::uint64_t i = 0; i < copies; ++i) {
      DOPPLER_ASSIGN(Buffer codes, random_words(code_words));
      Buffer scales;
      if (format_.has_scales()) {
        DOPPLER_ASSIGN(scales, random_words(scale_words));
      }
      copies_.emplace_back(std::move(codes), std::move(scales));
    }
    const std::uint64_t x_units = std::uint64_t{kRoom} * units_, out_units = (p.rows / 2 + 63) / 64;
    DOPPLER_ASSIGN(x8_, random_words(x_units * 16));
    DOPPLER_ASSIGN(xs_, random_words(x_units * 4));
    DOPPLER_ASSIGN(x_, random_words(x_units * kUnitValues));
    DOPPLER_ASSIGN(out8_, random_words(kRoom * out_units * 16));
    DOPPLER_ASSIGN(outs_, random_words(kRoom * out_units * 4));
    DOPPLER_ASSIGN(out_, device_->make_buffer("out", std::uint64_t{kRoom} * p.rows * 4));
    return {};
  }

  Status columns(const Product& p) {
    const std::uint32_t rows = p.gated ? p.rows / 2 : p.rows;
    const std::vector<std::uint32_t> words = {kMostColumns};
    DOPPLER_ASSIGN(step_, device_->make_filled("step", 16, [&](std::span<std::byte> out) {
      std::memcpy(out.data(), words.data(), 4);
    }));
    for (const ColumnsShape& shape :
         best_columns_shapes(device_->limits(), format_, rows, units_, p.gated, shapes_)) {
      ShaderValues values = {{"R", shape.rows},
                             {"LANES", shape.lanes},
                             {"UNITS", shape.units},
                             {"SETS", shape.sets},
                             {"COLUMNS", kMostColumns},
                             {"ROWS", rows},
                             {"EPI", p.gated ? 1 : 0},
                             {"EMIT_ACT", 0},
                             {"ACT", format_.quantised() ? 1 : 0},
                             {"BIAS", 0},
                             {"COUNT", 0}};
      add_format(values);
      std::vector<Bound> buffers = {{"step", step_}};
      add_activations(p, values, buffers);
      if (p.gated) {
        values["OUT_UNITS"] = (rows + 63) / 64;
        values["ACTIVATION"] = 0;
        buffers.push_back({"out8", out8_});
        buffers.push_back({"outs", outs_});
      } else {
        values["OUT_STRIDE"] = p.rows;
        values["OUT_OFFSET"] = 0;
        buffers.push_back({"out", out_});
      }
      const std::uint32_t here = shape.results(p.gated);
      DOPPLER_ASSIGN(const double seconds,
                     time("gemv_columns.wgsl", values, buffers, {(rows + here - 1) / here, 1, 1}));
      fmt::print("{:24} 8 columns  {:2} x {:2} x {} sets {}: {:7.2f}\n", p.name, shape.rows, shape.lanes,
                 shape.units, shape.sets, seconds * 1e6);
    }
    return {};
  }

  Status tiles(const Product& p, std::uint32_t tile) {
    const std::vector<std::uint32_t> words = {tile};
    DOPPLER_ASSIGN(step_, device_->make_filled("step", 16, [&](std::span<std::byte> out) {
      std::memcpy(out.data(), words.data(), 4);
    }));
    std::vector<GemmShape> shapes =
        best_few_rows_shapes(device_->limits(), format_, tile, p.rows, units_, shapes_);
    if (!format_.quantised()) {
      shapes.clear();
      for (GemmShape shape : float_shapes(true)) {
        shape.tree = true;
        if (shape.tile_tokens == tile) shapes.push_back(shape);
      }
    }
    for (std::size_t i = 0; i < shapes.size(); i += 2) {  // and what the order of sums costs
      shapes.insert(shapes.begin() + static_cast<std::ptrdiff_t>(i) + 1, shapes[i]);
      shapes[i + 1].tree = false;
    }
    for (const GemmShape& shape : shapes) {
      ShaderValues values = format_.quantised() ? gemm_values(shape, format_, p.rows, units_)
                                                : float_gemm_values(shape, format_, p.rows, units_);
      const std::uint64_t stride = std::uint64_t{tile} * p.rows;
      values["BIAS"] = 0;
      values["COUNT"] = 0;
      values["OUT_STRIDE"] = p.rows;
      values["OUT_OFFSET"] = 0;
      Buffer out = out_;
      if (shape.splits > 1) {
        values["SPLIT_STRIDE"] = static_cast<std::int64_t>(stride);
        DOPPLER_ASSIGN(out, device_->make_buffer("parts", stride * shape.splits * 4));
      }
      std::vector<Bound> buffers = {{"step", step_}, {"out", out}};
      add_activations(p, values, buffers);
      DOPPLER_ASSIGN(const double seconds,
                     time(format_.quantised() ? "gemm.wgsl" : "gemm_float.wgsl", values, buffers,
                          {(p.rows + shape.tile_rows - 1) / shape.tile_rows, 1, shape.splits}));
      fmt::print("{:24} {:2} tokens  {:25}: {:7.2f}{}\n", p.name, tile, shape.name(), seconds * 1e6,
                 shape.splits > 1 ? " and their sum" : "");
    }
    return {};
  }

  void add_activations(const Product& p, ShaderValues& values, std::vector<Bound>& buffers) const {
    if (format_.quantised()) {
      buffers.push_back({"x8", x8_});
      buffers.push_back({"xs", xs_});
      return;
    }
    values.merge(ShaderValues{{"X_VEC", 1}, {"WIDTH", p.width}, {"X_STRIDE", p.width}, {"X_OFFSET", 0}});
    buffers.push_back({"x", x_});
  }

  void add_format(ShaderValues& values) const {
    values["FORM"] = static_cast<std::int64_t>(format_.codes);
    values["SCALES"] = static_cast<std::int64_t>(format_.scales);
    values["UNITS_K"] = units_;
  }

  // Seconds of one product, over all copies of the matrix.
  Result<double> time(std::string_view file, const ShaderValues& values, const std::vector<Bound>& buffers,
                      Workgroups groups) {
    if (late()) return fail(ErrorCode::kLimit, "The program has run for {} seconds.", kMostSeconds);
    DOPPLER_ASSIGN(const auto kernel, kernels_.get(file, values));
    std::vector<FixedDispatch> dispatches;
    for (const auto& [codes, scales] : copies_) {
      std::vector<Bound> all = buffers;
      all.push_back({"codes", codes});
      if (format_.has_scales()) all.push_back({"scales", scales});
      DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(*device_, kernel, all));
      dispatches.push_back({std::move(bound), groups});
    }
    // While kernels are compiled the device has no work, and its clock sinks.
    const auto begin = std::chrono::steady_clock::now();
    const auto passed = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin);
    };
    while (passed().count() < kWarmUpSeconds) {
      if (auto early = time_each(*device_, dispatches); !early) return early;
    }
    return time_each(*device_, dispatches);
  }

  std::shared_ptr<Device> device_;
  KernelCache kernels_;
  std::size_t shapes_;  // of each product
  WeightFormat format_;
  std::uint32_t units_ = 0;
  std::vector<std::pair<Buffer, Buffer>> copies_;
  Buffer x_, x8_, xs_, out8_, outs_, out_, step_;
  std::mt19937 random_{7};
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Status run(int argc, char** argv) {
  DOPPLER_ASSIGN(auto device, Device::open({.adapter = argc > 1 ? argv[1] : ""}));
  constexpr std::size_t kShapes = 6;
  const std::size_t shapes = argc > 3 ? static_cast<std::size_t>(std::atoi(argv[3])) : kShapes;
  return FewRowsBench(std::move(device), shapes).run(argc > 2 ? argv[2] : "");
}

}  // namespace
}  // namespace doppler::gpu

int main(int argc, char** argv) {
  const doppler::Status status = doppler::gpu::run(argc, argv);
  if (status) return 0;
  doppler::say(doppler::Said::kError, "{}", status.error().message);
  return 1;
}
