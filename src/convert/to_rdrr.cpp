// doppler convert --format rdrr: any model as a package of hashed shards.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/convert.h"
#include "convert/partial_folder.h"
#include "convert/steps.h"
#include "convert/tensor_writer.h"
#include "formats/rdrr.h"
#include "formats/rdrr_writer.h"
#include "model/rdrr_description.h"
#include "system/files.h"
#include "tokenizer/gguf_tokenizer.h"

namespace doppler::convert {
namespace {

namespace fs = std::filesystem;

// What a GGUF file says of its model, as a GGUF file without tensors.
constexpr std::string_view kGgufMetadata = "metadata.gguf";
// Files of a model folder that are read besides the weights; config.json goes into the manifest.
constexpr std::array<std::string_view, 11> kBeside = {"tokenizer.json",
                                                      "tokenizer.model",
                                                      "tokenizer_config.json",
                                                      "special_tokens_map.json",
                                                      "added_tokens.json",
                                                      "vocab.json",
                                                      "merges.txt",
                                                      "chat_template.jinja",
                                                      "chat_template.json",
                                                      "generation_config.json",
                                                      "vocab.txt"};
// More than manifest, map and tokenizer of any model take.
constexpr std::uint64_t kRoom = std::uint64_t{128} << 20;
constexpr std::uint64_t kMaxBeside = std::uint64_t{1} << 30;

// Where a tensor stands in the package: the embedding, the layers one by one, each with its experts, the
// head, the rest.
struct PackagePlace {
  int rank = 3;
  std::uint64_t layer = 0, expert = 0;  // expert + 1; 0: none
  std::string_view role = "other";

  std::string group() const {
    if (rank == 0) return "embed";
    if (rank == 2) return "head";
    if (rank == 3) return "other";
    return expert == 0 ? fmt::format("layer.{}", layer)
                       : fmt::format("layer.{}.expert.{}", layer, expert - 1);
  }
};

std::string_view role_of(const WeightInfo& info) {
  switch (info.kind) {
    case WeightKind::kEmbedding:
      return "embedding";
    case WeightKind::kHead:
      return "lm_head";
    case WeightKind::kNorm:
      return "norm";
    case WeightKind::kRouter:
      return "router";
    case WeightKind::kExperts:
      return "expert";
    case WeightKind::kProjection:
      return info.per_expert() ? "expert" : "matmul";
    default:
      return "other";
  }
}

// The number behind "experts." of names of folders with a tensor for each expert, plus 1; 0: there is none.
std::uint64_t expert_of(std::string_view name) {
  constexpr std::string_view kWord = "experts.";
  const std::size_t at = name.find(kWord);
  if (at == std::string_view::npos) return 0;
  const std::string digits(name.substr(at + kWord.size(), 6));
  return digits.empty() || digits[0] < '0' || digits[0] > '9'
             ? 0
             : std::strtoull(digits.c_str(), nullptr, 10) + 1;
}

PackagePlace place_in_package(const SourceTensor& tensor, bool gguf) {
  const auto named =
      gguf ? find_weights(NameStyle::kGguf, tensor.name) : find_weights(NameStyle::kHuggingFace, tensor.name);
  if (named.empty()) return {};
  const WeightInfo& info = *named[0].info;
  if (named[0].layer >= 0)
    return {1, static_cast<std::uint64_t>(named[0].layer), gguf ? 0 : expert_of(tensor.name), role_of(info)};
  return {info.kind == WeightKind::kEmbedding     ? 0
          : info.kind == WeightKind::kRopeFactors ? 3
                                                  : 2,
          0, 0, role_of(info)};
}

std::string label_of(const ConvertReport& report, const Mix* mix) {
  if (mix != nullptr) return std::string(mix->name);
  std::map<DType, std::uint64_t> bytes;  // the type that most bytes have
  for (const TensorReport& tensor : report.tensors) bytes[tensor.type] += tensor.bytes;
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most == bytes.end() ? std::string("F32") : std::string(rdrr_dtype_name(most->first));
}

// "q4k" of Q4_K, "bf16" of BF16.
std::string short_type(DType type) {
  std::string out;
  for (const char c : dtype_name(type))
    if (c != '_' || type == DType::kQ8_0) out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

class Packer {
 public:
  Packer(const ConversionSource& source, const Mix* mix, const fs::path& folder, RdrrHash hash,
         std::uint64_t shard_bytes)
      : source_(source), mix_(mix), folder_(folder), package_(folder, hash, shard_bytes) {
    for (const SourceTensor& tensor : source.tensors)
      places_.push_back(place_in_package(tensor, source.files.gguf.has_value()));
    order_.resize(places_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
    std::ranges::stable_sort(order_, {}, [&](std::size_t i) {
      return std::tuple(places_[i].rank, places_[i].layer, places_[i].expert);
    });
  }

  Status write_tensors(TensorWriter& writer, ConvertReport& report) {
    const TensorWriter::Sink sink = [&](std::span<const std::byte> bytes) { return package_.write(bytes); };
    for (const std::size_t i : order_) {
      TensorReport& tensor = report.tensors[i];
      DOPPLER_TRY(
          package_.begin_tensor(tensor.name, tensor.type, tensor.shape, places_[i].role, places_[i].group()));
      DOPPLER_ASSIGN(tensor.error, writer.write(source_.tensors[i], tensor.type, sink));
    }
    std::vector<TensorReport> ordered;
    for (const std::size_t i : order_) ordered.push_back(std::move(report.tensors[i]));
    report.tensors = std::move(ordered);
    return {};
  }

  Status finish(const std::string& name, const ConvertReport& report) {
    DOPPLER_TRY(write_beside());
    Json manifest = rdrr_description(source_.spec, source_.files.tensors);
    manifest["modelId"] = name;
    manifest["modelType"] = source_.architecture;
    manifest["quantization"] = label_of(report, mix_);
    manifest["quantizationInfo"] = quantization(report);
    if (source_.files.gguf)
      manifest["ggufMetadata"] = kGgufMetadata;
    else
      manifest["config"] = *source_.files.config;
    if (!tokenizer_.empty()) manifest["tokenizer"] = tokenizer();
    manifest["metadata"] = {{"source", "doppler convert"}, {"hasTokenizer", !tokenizer_.empty()}};
    return package_.finish(std::move(manifest));
  }

 private:
  Json tokenizer() const {
    const bool json = tokenizer_ == "tokenizer.json", model = tokenizer_ == "tokenizer.model";
    Json out = {{"type", json    ? "bundled"
                         : model ? "sentencepiece"
                                 : "gguf"},
                {"file", tokenizer_},
                {"vocabSize", source_.spec.vocab_size}};
    if (source_.spec.bos_id >= 0) out["bosTokenId"] = source_.spec.bos_id;
    if (source_.spec.pad_id >= 0) out["padTokenId"] = source_.spec.pad_id;
    return out;
  }

  Json quantization(const ConvertReport& report) const {
    Json out = {{"layout", "row"}};
    std::map<DType, std::uint64_t> bytes;
    for (std::size_t at = 0; at < order_.size(); ++at) {
      const std::string_view role = places_[order_[at]].role;
      const TensorReport& tensor = report.tensors[at];
      if (role == "embedding") out["embeddings"] = short_type(tensor.type);
      if (role == "lm_head") out["lmHead"] = short_type(tensor.type);
      if (role == "matmul" || role == "expert") bytes[tensor.type] += tensor.bytes;
    }
    const auto most = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
    out["weights"] = most == bytes.end() ? std::string("f32") : short_type(most->first);
    return out;
  }

  Status write_beside() {
    if (source_.files.gguf) {
      DOPPLER_ASSIGN(GgufWriter said, GgufWriter::create(folder_ / kGgufMetadata));
      DOPPLER_TRY(write_metadata(source_, mix_, said));
      DOPPLER_TRY(said.write_header());
      DOPPLER_TRY(said.finish());
      if (tokenizer::has_gguf_tokenizer(*source_.files.gguf)) tokenizer_ = kGgufMetadata;
      return package_.add_file(std::string(kGgufMetadata));
    }
    for (const std::string_view name : kBeside) {
      const fs::path from = source_.files.folder / name;
      if (!system::is_file(from)) continue;
      DOPPLER_ASSIGN(const std::string text, read_text_file(from, kMaxBeside));
      DOPPLER_ASSIGN(OutputFile file, OutputFile::create(folder_ / name));
      DOPPLER_TRY(file.write(text));
      DOPPLER_TRY(file.commit());
      DOPPLER_TRY(package_.add_file(std::string(name)));
      if (tokenizer_.empty() && name.starts_with("tokenizer.")) tokenizer_ = name;
    }
    return {};
  }

  const ConversionSource& source_;
  const Mix* mix_;
  fs::path folder_;
  RdrrWriter package_;
  std::vector<PackagePlace> places_;  // parallel to the source's tensors
  std::vector<std::size_t> order_;    // in which they are written
  std::string tokenizer_;             // the file that has it; empty: none
};

// A folder's name may end in a slash.
fs::path without_slash(const fs::path& output) {
  return output.has_filename() ? output : output.parent_path();
}

}  // namespace

Result<ConvertReport> convert_to_rdrr(const fs::path& model, const Mix* mix, const fs::path& output_given,
                                      RdrrHash hash, const ConvertOptions& options,
                                      std::uint64_t shard_bytes) {
  const fs::path output = without_slash(output_given);
  if (system::exists(output)) {
    return fail(ErrorCode::kUsage, "The output {} exists already. Give the name of a folder that does not.",
                printable_path(output));
  }
  DOPPLER_ASSIGN(const ConversionSource source, open_package_source(model));
  DOPPLER_ASSIGN(ConvertReport report, plan_tensors(source, mix));
  DOPPLER_TRY(check_space(output, report.tensor_bytes + kRoom));
  PartialFolder folder(output);
  DOPPLER_TRY(folder.make());
  Packer packer(source, mix, folder.path(), hash, shard_bytes);
  std::uint64_t done = 0;
  TensorWriter writer(options.threads, options.search, [&](std::uint64_t bytes, std::string_view tensor) {
    done += bytes;
    if (options.on_progress)
      options.on_progress(static_cast<double>(done) / static_cast<double>(report.tensor_bytes), tensor);
    return !options.is_cancelled || !options.is_cancelled();
  });
  DOPPLER_TRY(packer.write_tensors(writer, report));
  DOPPLER_TRY(packer.finish(output.filename().string(), report));
  DOPPLER_ASSIGN(const Model written,
                 load_model(folder.path()));  // what cannot be read back is a bug of Doppler
  for (const std::string& difference : spec_differences(source.spec, written.spec)) {
    report.warnings.push_back(fmt::format(
        "The package cannot say all of this model; read back, {}. Answers may differ.", difference));
  }
  for (const fs::path& file : sorted_entries(folder.path()))
    report.file_bytes += system::file_size(file).value_or(0);
  DOPPLER_TRY(folder.commit());
  return report;
}

}  // namespace doppler::convert
