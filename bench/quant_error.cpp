// quant_error [--ggml LIBDIR] [TYPE...]: the error of each encoder's blocks, and its speed.
//
// Rows of 4096 values: Gaussian, and heavy-tailed (Student's t with 3 degrees of freedom), scaled like
// weights. Two figures each: the relative root mean square error, and the same weighted as ggml weights the
// type when it has no importance matrix (blocks of 32: all alike, IQ4_NL and the types with scales alone:
// x^2; Q2_K: |x|; Q4_K and Q5_K: |x| plus the root mean square of the 32 values). With --ggml, the figures of
// the libggml-base in that folder beside Doppler's, and the ratio Doppler / ggml; and those of the types that
// Doppler does not write. The table of storage_error() (src/quant/error.cpp) was made with it.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "base/screen.h"
#include "quant/encode.h"
#include "quant/tensor.h"

namespace {

using namespace doppler;

constexpr std::size_t kRow = 4096, kRows = 128;

enum class Weighting { kAlike, kMagnitude, kMagnitudeAndRms, kSquare };

struct BenchType {
  DType dtype;
  Weighting weighting;
  int ggml_type;                  // of enum ggml_type
  bool needs_importance = false;  // ggml refuses to encode it without a weight for each column
};

constexpr BenchType kTypes[] = {
    {DType::kF16, Weighting::kAlike, 1},
    {DType::kBF16, Weighting::kAlike, 30},
    {DType::kQ4_0, Weighting::kAlike, 2},
    {DType::kQ4_1, Weighting::kAlike, 3},
    {DType::kQ5_0, Weighting::kAlike, 6},
    {DType::kQ5_1, Weighting::kAlike, 7},
    {DType::kQ8_0, Weighting::kAlike, 8},
    {DType::kQ2_K, Weighting::kMagnitude, 10},
    {DType::kQ3_K, Weighting::kSquare, 11},
    {DType::kQ4_K, Weighting::kMagnitudeAndRms, 12},
    {DType::kQ5_K, Weighting::kMagnitudeAndRms, 13},
    {DType::kQ6_K, Weighting::kSquare, 14},
    {DType::kIQ4_NL, Weighting::kSquare, 20},
    {DType::kIQ4_XS, Weighting::kSquare, 23},
    {DType::kMXFP4, Weighting::kAlike, 39},
    {DType::kIQ3_S, Weighting::kAlike, 21},
    {DType::kIQ3_XXS, Weighting::kAlike, 18},
    {DType::kIQ2_S, Weighting::kAlike, 22},
    {DType::kIQ2_XS, Weighting::kAlike, 17, true},
    {DType::kIQ2_XXS, Weighting::kAlike, 16, true},
    {DType::kIQ1_M, Weighting::kAlike, 29, true},
    {DType::kIQ1_S, Weighting::kAlike, 19, true},
    {DType::kTQ2_0, Weighting::kAlike, 35},
    {DType::kTQ1_0, Weighting::kAlike, 34},
};

// The entry points of ggml that are needed, by their C declarations.
struct Ggml {
  std::size_t (*quantize_chunk)(int type, const float* src, void* dst, std::int64_t start, std::int64_t rows,
                                std::int64_t per_row, const float* importance) = nullptr;
};

// The same numbers on every machine: only the generator's own output is used, no library distribution.
std::vector<float> make_rows(bool heavy) {
  std::mt19937_64 random(heavy ? 2 : 1);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  const auto gaussian = [&] {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * 3.14159265358979323846 * uniform());
  };
  std::vector<float> values(kRow * kRows);
  for (float& value : values) {
    double x = gaussian();
    if (heavy) {
      const double a = gaussian(), b = gaussian(), c = gaussian();
      x /= std::sqrt((a * a + b * b + c * c) / 3);
    }
    value = static_cast<float>(0.02 * x);
  }
  return values;
}

double weight_of(Weighting weighting, const float* block32, std::size_t i) {
  const double x = block32[i];
  double squares = 0;
  switch (weighting) {
    case Weighting::kAlike:
      return 1;
    case Weighting::kMagnitude:
      return std::fabs(x);
    case Weighting::kSquare:
      return x * x;
    case Weighting::kMagnitudeAndRms:
      for (int k = 0; k < 32; ++k) squares += double{block32[k]} * double{block32[k]};
      return std::fabs(x) + std::sqrt(squares / 32);
  }
  return 1;
}

struct Figures {
  double rms = 0, weighted = 0, speed = 0;  // MB of floats a second of one core
};

Result<Figures> judge(const BenchType& type, const std::vector<float>& values,
                      const std::vector<std::byte>& blocks, double seconds) {
  std::vector<float> decoded(values.size());
  DOPPLER_TRY(decode_f32({"rows", type.dtype, {kRows, kRow}, blocks}, 0, decoded));
  double squares = 0, errors = 0, weighted_squares = 0, weighted_errors = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i], error = x - decoded[i];
    const double weight = weight_of(type.weighting, values.data() + i / 32 * 32, i % 32);
    squares += x * x;
    errors += error * error;
    weighted_squares += weight * x * x;
    weighted_errors += weight * error * error;
  }
  return Figures{std::sqrt(errors / squares), std::sqrt(weighted_errors / weighted_squares),
                 static_cast<double>(values.size() * sizeof(float)) / 1e6 / seconds};
}

// Processor time: other load on the machine disturbs it less than wall-clock time.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
template <typename Work>
Result<double> seconds_of(Work work) {
  const double start = cpu_seconds();
  DOPPLER_TRY(work());
  return cpu_seconds() - start;
}

Status measure(const BenchType& type, const char* name, const std::vector<float>& values, const Ggml& ggml) {
  std::vector<std::byte> blocks(*byte_size(type.dtype, {kRows, kRow}));
  Figures figures[2];
  const bool ours = can_encode(type.dtype);
  if (!ours && ggml.quantize_chunk == nullptr) return {};
  for (const EncodeSearch search : {EncodeSearch::kBest, EncodeSearch::kNearest}) {
    if (!ours) break;
    DOPPLER_ASSIGN(const double seconds,
                   seconds_of([&] { return encode(type.dtype, values, blocks, search); }));
    DOPPLER_ASSIGN(figures[search == EncodeSearch::kNearest], judge(type, values, blocks, seconds));
  }
  const auto [best, nearest] = figures;
  fmt::print("{:<8}{:<9}", dtype_name(type.dtype), name);
  if (ours)
    fmt::print("{:>9.5f}{:>9.5f}{:>8.1f} |{:>9.5f}{:>9.5f}{:>8.1f}", best.rms, best.weighted, best.speed,
               nearest.rms, nearest.weighted, nearest.speed);
  else
    fmt::print("{:>26} |{:>26}", "not written", "");
  if (ggml.quantize_chunk != nullptr) {
    const std::vector<float> alike(kRow, 1);
    DOPPLER_ASSIGN(const double seconds, seconds_of([&]() -> Status {
                     ggml.quantize_chunk(type.ggml_type, values.data(), blocks.data(), 0,
                                         static_cast<std::int64_t>(kRows), static_cast<std::int64_t>(kRow),
                                         type.needs_importance ? alike.data() : nullptr);
                     return {};
                   }));
    DOPPLER_ASSIGN(const Figures other, judge(type, values, blocks, seconds));
    fmt::print(" |{:>9.5f}{:>9.5f}{:>8.1f}", other.rms, other.weighted, other.speed);
    if (ours) fmt::print(" |{:>7.4f}{:>8.4f}", best.rms / other.rms, best.weighted / other.weighted);
  }
  fmt::print("\n");
  return {};
}

// Loads the one library that holds ggml's encoders; it needs nothing but the system's.
Ggml load_ggml(const std::string& folder) {
  const std::string path = folder + "/libggml-base.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  Ggml ggml;
  if (library != nullptr) {
    void* symbol = dlsym(library, "ggml_quantize_chunk");
    std::memcpy(&ggml.quantize_chunk, &symbol, sizeof(symbol));
  }
  if (ggml.quantize_chunk == nullptr)
    say(Said::kError, "The library {} cannot be used: {}. Give the folder that holds it.", path, dlerror());
  return ggml;
}

}  // namespace

int main(int argc, char** argv) {
  Ggml ggml;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--ggml" && i + 1 < argc) {
      ggml = load_ggml(argv[++i]);
      if (ggml.quantize_chunk == nullptr) return 3;
    } else {
      wanted.emplace_back(argv[i]);
    }
  }
  fmt::print("{:<17}{:>26} |{:>26}{}\n", "", "best: rms  weighted  MB/s", "nearest: rms  wghtd  MB/s",
             ggml.quantize_chunk == nullptr ? "" : " |   ggml: rms  wghtd  MB/s |    ours / ggml");
  const std::vector<float> gaussian = make_rows(false), heavy = make_rows(true);
  for (const BenchType& type : kTypes) {
    if (!wanted.empty() && std::ranges::find(wanted, dtype_name(type.dtype)) == wanted.end()) continue;
    for (const bool tails : {false, true}) {
      const Status done = measure(type, tails ? "t(3)" : "Gaussian", tails ? heavy : gaussian, ggml);
      if (!done) {
        say(Said::kError, done.error().message);
        return 3;
      }
    }
  }
  return 0;
}
