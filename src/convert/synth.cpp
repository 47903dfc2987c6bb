#include "convert/synth.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "convert/hf_metadata.h"
#include "formats/gguf_writer.h"
#include "model/rope.h"
#include "quant/encode.h"
#include "system/threads.h"

namespace doppler::convert {
namespace {

// Encoded bytes that are made before they are written: enough rows that both cores work most of the time.
constexpr std::uint64_t kPieceBytes = std::uint64_t{8} << 20;
// Norms lie near 1, as trained ones do; a spread shows code that leaves them out.
constexpr float kNormMean = 1, kNormDeviation = 0.1f;

// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
constexpr std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;  // SplitMix64's step

constexpr std::uint64_t hash_name(std::string_view name) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

struct Stored {
  WeightTensor tensor;
  DType type;
  std::uint64_t columns() const { return tensor.shape.back(); }
  std::uint64_t rows() const { return row_count(tensor.shape); }
  std::uint64_t row_bytes() const {
    const DTypeInfo& info = dtype_info(type);
    return columns() / info.block_values * info.block_bits / 8;
  }
  std::uint64_t bytes() const { return rows() * row_bytes(); }
};

Result<std::vector<Stored>> stored_tensors(const ModelShape& shape, const Mix& mix) {
  std::vector<Stored> out;
  DOPPLER_ASSIGN(const ModelSpec spec, shape_spec(shape));
  DOPPLER_ASSIGN(std::vector<WeightTensor> tensors, shape_tensors(shape));
  const MixModel model = mix_model(spec);
  for (WeightTensor& tensor : tensors) {
    const DType type = choose_type(mix, model, tensor.name, tensor.shape).type;
    out.push_back({std::move(tensor), type});
  }
  return out;
}

SynthReport report_of(const ModelShape& shape, std::span<const Stored> tensors) {
  SynthReport report;
  for (const Stored& stored : tensors) {
    report.parameters += stored.rows() * stored.columns();
    report.tensor_bytes += stored.bytes();
    // Of an embedding that is not the head, a token reads one row.
    const bool is_head = stored.tensor.info->role == WeightRole::kTokenEmbedding && shape.tied_head;
    const bool looked_up = stored.tensor.info->kind == WeightKind::kEmbedding && !is_head;
    std::uint64_t read = looked_up ? stored.row_bytes() : stored.bytes();
    if (stored.tensor.info->per_expert()) read = read / shape.experts.count * shape.experts.chosen;
    report.token_bytes += read;
  }
  return report;
}

void fill_row(const ModelSpec& spec, const Stored& stored, std::uint64_t seed, std::uint64_t row,
              std::span<float> out) {
  const WeightTensor& tensor = stored.tensor;
  if (tensor.info->kind == WeightKind::kRopeFactors) {
    const std::vector<float> factors = rope_divisors(rope_with_factors(spec));
    std::copy(factors.begin(), factors.end(), out.begin());
  } else if (tensor.info->kind == WeightKind::kNorm) {
    random_row(seed, tensor.name, row, kNormMean, kNormDeviation, out);
  } else if (tensor.info->kind == WeightKind::kRecurrence) {
    random_row(seed, tensor.name, row, -kNormMean, kNormDeviation, out);  // a state decays, and never grows
  } else {
    // Products with inputs of variance 1 have variance 1; a bias is as small as a row's values.
    const double deviation = 1 / std::sqrt(static_cast<double>(stored.columns()));
    random_row(seed, tensor.name, row, 0, static_cast<float>(deviation), out);
  }
}

// Makes and writes tensors piece by piece.
class Producer {
 public:
  Producer(const ModelSpec& spec, const SynthOptions& options, std::uint64_t total)
      : spec_(spec), options_(options), total_(total), pool_(options.threads) {}

  Status write(const Stored& stored, GgufWriter& writer) {
    const std::uint64_t piece_rows =
        std::clamp<std::uint64_t>(kPieceBytes / stored.row_bytes(), 1, stored.rows());
    for (std::uint64_t begin = 0; begin < stored.rows(); begin += piece_rows) {
      const std::uint64_t count = std::min(piece_rows, stored.rows() - begin);
      bytes_.resize(count * stored.row_bytes());
      DOPPLER_TRY(make_rows(stored, begin, count));
      DOPPLER_TRY(writer.write_tensor_data(bytes_));
      done_ += bytes_.size();
      if (options_.on_progress)
        options_.on_progress(static_cast<double>(done_) / static_cast<double>(total_), stored.tensor.name);
    }
    return {};
  }

 private:
  Status make_rows(const Stored& stored, std::uint64_t first, std::uint64_t count) {
    system::Mutex mutex;
    std::optional<Error> error;
    pool_.parallel_for(count, 16, [&](std::size_t begin, std::size_t end) {
      std::vector<float> values(stored.columns());
      for (std::size_t i = begin; i < end; ++i) {
        fill_row(spec_, stored, options_.seed, first + i, values);
        const std::span<std::byte> out(bytes_.data() + i * stored.row_bytes(), stored.row_bytes());
        const Status status = encode(stored.type, values, out, EncodeSearch::kNearest);
        if (status) continue;
        const system::Lock lock(mutex);
        error = status.error();
      }
    });
    if (error) return std::unexpected(*error);
    return {};
  }

  const ModelSpec& spec_;
  const SynthOptions& options_;
  const std::uint64_t total_;
  ThreadPool pool_;
  std::vector<std::byte> bytes_;
  std::uint64_t done_ = 0;
};

}  // namespace

void random_row(std::uint64_t seed, std::string_view name, std::uint64_t row, float mean, float deviation,
                std::span<float> out) {
  const std::uint64_t start = scramble(scramble(seed ^ hash_name(name)) + row * kGolden);
  // Four uniform 16-bit numbers: their sum has this mean and deviation.
  constexpr int kSumMean = 2 * 65535;
  const float scale =
      static_cast<float>(static_cast<double>(deviation) / std::sqrt(4 * (65536.0 * 65536.0 - 1) / 12));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t bits = scramble(start + (i + 1) * kGolden);
    const int sum =
        static_cast<int>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
    out[i] = mean + static_cast<float>(sum - kSumMean) * scale;
  }
}

Result<SynthReport> write_synthetic(const ModelShape& shape, const Mix& mix,
                                    const std::filesystem::path& path, const SynthOptions& options) {
  DOPPLER_ASSIGN(const std::vector<Stored> tensors, stored_tensors(shape, mix));
  for (const Stored& stored : tensors) {
    if (!can_encode(stored.type))
      return fail(ErrorCode::kUnsupported, "Doppler does not write {} yet. Choose another type.",
                  dtype_name(stored.type));
  }
  const SynthReport report = report_of(shape, tensors);
  DOPPLER_ASSIGN(GgufWriter writer, GgufWriter::create(path));
  DOPPLER_ASSIGN(const std::vector<MetadataEntry> metadata, shape_metadata(shape, mix));
  for (const MetadataEntry& entry : metadata) DOPPLER_TRY(add_entry(writer, entry));
  for (const Stored& stored : tensors)
    DOPPLER_TRY(writer.declare_tensor(stored.tensor.name, stored.type, stored.tensor.shape));
  DOPPLER_TRY(writer.write_header());
  DOPPLER_ASSIGN(const ModelSpec spec, shape_spec(shape));
  Producer producer(spec, options, report.tensor_bytes);
  for (const Stored& stored : tensors) DOPPLER_TRY(producer.write(stored, writer));
  DOPPLER_TRY(writer.finish());
  return report;
}

}  // namespace doppler::convert
