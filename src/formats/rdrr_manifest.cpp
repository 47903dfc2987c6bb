#include "formats/rdrr_manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/checked.h"
#include "base/json.h"
#include "base/text.h"
#include "formats/file_name.h"
#include "formats/hf_config.h"
#include "formats/unique_keys.h"

namespace doppler {
namespace {

constexpr std::string_view kManifest = "manifest.json";
constexpr int kNewestVersion = 1;
constexpr std::size_t kHashDigits = 64;

std::unexpected<Error> missing(const ConfigReader& reader, std::string_view key, std::string_view wanted) {
  return fail(ErrorCode::kCorrupt, "The value of {} is missing, which is {}. Download the file again.",
              reader.where(key), wanted);
}

Result<std::string> required_string(const ConfigReader& reader, std::string_view key, std::string_view what) {
  DOPPLER_ASSIGN(std::optional<std::string> value, reader.get_string(key));
  if (!value || value->empty()) return missing(reader, key, what);
  return std::move(*value);
}

Result<std::string> optional_string(const ConfigReader& reader, std::string_view key) {
  DOPPLER_ASSIGN(const std::optional<std::string> value, reader.get_string(key));
  return value.value_or("");
}

Result<std::uint64_t> required_uint(const ConfigReader& reader, std::string_view key, std::string_view what) {
  DOPPLER_ASSIGN(const std::optional<std::uint64_t> value, reader.get_uint(key));
  if (!value) return missing(reader, key, what);
  return *value;
}

// A list or an object that is there; an empty one if it is not.
Result<const Json*> find_list(const ConfigReader& reader, std::string_view key, bool object) {
  static const Json kNone = Json::array();
  const auto found = reader.json().find(key);
  if (found == reader.json().end() || found->is_null()) return &kNone;
  if (object ? found->is_object() : found->is_array()) return &*found;
  return fail(ErrorCode::kCorrupt, "The value of {} is {} instead of {}. Download the file again.",
              reader.where(key), found->type_name(), object ? "an object" : "a list");
}

Result<std::string> file_name(const ConfigReader& reader, std::string_view key, std::string_view name) {
  if (is_plain_file_name(name)) return std::string(name);
  return fail(ErrorCode::kCorrupt,
              "The value of {} is {}, which is not the name of a file beside it. Download the file again.",
              reader.where(key), printable(name));
}

// 64 hexadecimal digits, of which some programs write upper-case ones.
Result<std::string> hash_text(const ConfigReader& reader, std::string_view key, std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  const bool digits = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (digits && text.size() == kHashDigits) return text;
  return fail(
      ErrorCode::kCorrupt,
      "The value of {} is {} ({} characters) instead of {} hexadecimal digits. Download the file again.",
      reader.where(key), printable(text, 80), text.size(), kHashDigits);
}

Result<RdrrHash> algorithm_of(const ConfigReader& reader, std::optional<RdrrHash> fallback) {
  DOPPLER_ASSIGN(const std::optional<std::string> name, reader.get_string("hashAlgorithm"));
  if (!name && fallback) return *fallback;
  if (!name) return missing(reader, "hashAlgorithm", "sha256 or blake3");
  if (const auto known = rdrr_hash_named(*name)) return *known;
  return fail(ErrorCode::kUnsupported,
              "The value of {} is {}, a hash that Doppler does not know; it knows sha256 and blake3.",
              reader.where("hashAlgorithm"), printable(*name));
}

class ManifestReader {
 public:
  ManifestReader(RdrrManifest& out) : out_(out), top_(*out.document, std::string(kManifest)) {}

  Status read(std::string_view tensors_text) {
    DOPPLER_TRY(read_version());
    DOPPLER_TRY(refuse_others());
    DOPPLER_TRY(read_names());
    DOPPLER_TRY(check_architecture());
    DOPPLER_TRY(check_eos());
    DOPPLER_TRY(read_shards());
    DOPPLER_TRY(read_tensors(tensors_text));
    DOPPLER_TRY(check_apart());
    DOPPLER_TRY(check_norms());
    DOPPLER_TRY(read_groups());
    return read_files();
  }

 private:
  bool old() const { return out_.version == 0; }

  // 1, 1.0, "1", "1.0.0"; 0 for anything that begins with "0.".
  Status read_version() {
    const auto found = out_.document->find("version");
    if (found == out_.document->end()) return missing(top_, "version", "the manifest's version");
    double version = -1;
    if (found->is_number()) {
      version = found->get<double>();
    } else if (const std::string* text = found->get_ptr<const std::string*>()) {
      std::uint32_t whole = 0;
      const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), whole);
      if (error == std::errc() && (end == text->data() + text->size() || *end == '.')) version = whole;
    }
    if (!(version >= 0)) {
      return fail(ErrorCode::kCorrupt,
                  "The value of manifest.json: version is {} instead of a number. Download the file again.",
                  printable(dump_json(*found), 60));
    }
    if (version >= kNewestVersion + 1) {
      return fail(
          ErrorCode::kUnsupported,
          "The manifest has the version {}; Doppler reads RDRR up to version {}. Take an older package "
          "of the model, or a newer Doppler.",
          printable(dump_json(*found), 60), kNewestVersion);
    }
    out_.version = version >= 1 ? 1 : 0;
    return {};
  }

  // Manifests of what is no model with shards of its own.
  Status refuse_others() const {
    const bool merged = top_.has("mergedAdapter");
    if (top_.has("adapterType") && !merged) {
      return fail(
          ErrorCode::kUnsupported,
          "The manifest describes an adapter (adapterType), and not a model. Merge it into its model, "
          "and give the result.");
    }
    if (top_.has("weightsRef")) {
      return fail(
          ErrorCode::kUnsupported,
          "The manifest borrows the shards of another package (weightsRef). Give that package's folder, "
          "or put its shards beside this manifest and remove weightsRef.");
    }
    DOPPLER_ASSIGN(const auto metadata, top_.get_object("metadata"));
    DOPPLER_ASSIGN(const auto source, metadata ? metadata->get_object("sourceRuntime")
                                               : Result<std::optional<ConfigReader>>(std::nullopt));
    if (!source) return {};
    return fail(
        ErrorCode::kUnsupported,
        "The manifest stands for the model's original files (metadata.sourceRuntime) and has no shards of "
        "its own. Give the .gguf file, or the folder with the .safetensors files.");
  }

  Status read_names() {
    DOPPLER_ASSIGN(out_.model_id, required_string(top_, "modelId", "the package's name"));
    DOPPLER_ASSIGN(out_.model_type, required_string(top_, "modelType", "the model's kind"));
    DOPPLER_ASSIGN(out_.quantization, required_string(top_, "quantization", "the weights' type"));
    DOPPLER_ASSIGN(const auto gguf, top_.get_string("ggufMetadata"));
    if (gguf) {
      DOPPLER_ASSIGN(out_.gguf_metadata, file_name(top_, "ggufMetadata", *gguf));
    }
    DOPPLER_ASSIGN(const auto inference, top_.get_object("inference"));
    if (!inference && !old()) return missing(top_, "inference", "what the model computes");
    // Old manifests name none: their shards' hashes are SHA-256, unless they are called blake3.
    DOPPLER_ASSIGN(out_.algorithm,
                   algorithm_of(top_, old() ? std::optional(RdrrHash::kSha256) : std::nullopt));
    return {};
  }

  // Old manifests name transformers' class here, and have the sizes in "config".
  Status check_architecture() const {
    const auto found = out_.document->find("architecture");
    if (old() && (found == out_.document->end() || found->is_string())) return {};
    DOPPLER_ASSIGN(const auto sizes, top_.get_object("architecture"));
    if (!sizes) return missing(top_, "architecture", "the model's sizes");
    constexpr std::array<std::string_view, 8> kSizes = {
        "numLayers",        "hiddenSize", "intermediateSize", "numAttentionHeads",
        "numKeyValueHeads", "headDim",    "vocabSize",        "maxSeqLen"};
    for (const std::string_view key : kSizes) {
      DOPPLER_ASSIGN(const std::uint64_t size, required_uint(*sizes, key, "a size of the model"));
      // Models without a feed-forward, or without attention, exist.
      const bool may_lack = key == "intermediateSize" || key.starts_with("num") || key == "headDim";
      if (size > UINT32_MAX || (size == 0 && !(may_lack && key != "numLayers"))) {
        return fail(ErrorCode::kCorrupt,
                    "The value of {} is {} instead of a size from 1 to {}. Download it again.",
                    sizes->where(key), size, UINT32_MAX);
      }
    }
    return {};
  }

  // A null says that there is none.
  Status check_eos() const {
    const auto found = out_.document->find("eos_token_id");
    if (found == out_.document->end())
      return old() ? Status() : missing(top_, "eos_token_id", "the token that ends an answer");
    if (!found->is_array()) {
      DOPPLER_TRY(top_.get_uint("eos_token_id"));
      return {};
    }
    if (found->empty()) return missing(top_, "eos_token_id", "at least one token");
    DOPPLER_TRY(top_.get_uints("eos_token_id"));
    return {};
  }

  // ---- shards

  Result<RdrrShard> read_shard(const ConfigReader& shard, std::uint64_t index, std::uint64_t begin) {
    RdrrShard out;
    DOPPLER_ASSIGN(const auto number, shard.get_uint("index"));
    if (number.value_or(index) != index) {
      return fail(ErrorCode::kCorrupt,
                  "The value of {} is {}, but it stands at place {}. Download the file again.",
                  shard.where("index"), *number, index);
    }
    const std::string_view name = shard.has("filename") ? "filename" : "fileName";
    DOPPLER_ASSIGN(std::string file, required_string(shard, name, "the shard's file"));
    DOPPLER_ASSIGN(out.filename, file_name(shard, name, file));
    DOPPLER_ASSIGN(out.size, required_uint(shard, "size", "the shard's bytes"));
    if (out.size == 0)
      return fail(ErrorCode::kCorrupt, "The value of {} is 0. Download the file again.", shard.where("size"));
    DOPPLER_ASSIGN(const auto offset, shard.get_uint("offset"));
    out.offset = begin;
    if (offset.value_or(begin) != begin) {
      return fail(ErrorCode::kCorrupt,
                  "The value of {} is {}, but the shards before it end at byte {}. Download the file again.",
                  shard.where("offset"), *offset, begin);
    }
    DOPPLER_TRY(read_hash(shard, out));
    return out;
  }

  Status read_hash(const ConfigReader& shard, RdrrShard& out) const {
    const bool named = shard.has("blake3") && !shard.has("hash");
    const RdrrHash usual = named ? RdrrHash::kBlake3 : out_.algorithm;
    DOPPLER_ASSIGN(out.algorithm, algorithm_of(shard, usual));
    const std::string_view key = named ? "blake3" : "hash";
    DOPPLER_ASSIGN(std::string text, required_string(shard, key, "the shard's hash"));
    DOPPLER_ASSIGN(out.hash, hash_text(shard, key, std::move(text)));
    return {};
  }

  Status read_shards() {
    DOPPLER_ASSIGN(const Json* const list, find_list(top_, "shards", false));
    if (list->empty()) return missing(top_, "shards", "the list of the files with the weights");
    Checked end = 0;
    std::set<std::string> names;
    for (const Json& entry : *list) {
      const std::size_t index = out_.shards.size();
      const ConfigReader shard(entry, fmt::format("{}: shards[{}]", kManifest, index));
      DOPPLER_ASSIGN(RdrrShard read, read_shard(shard, index, end.value_or(0)));
      end = end + read.size;
      if (!end.valid()) {
        return fail(ErrorCode::kCorrupt,
                    "The shards of manifest.json hold more than 2^64 bytes. Download it again.");
      }
      if (!names.insert(read.filename).second) {
        return fail(ErrorCode::kCorrupt, "The file {} is two shards of manifest.json. Download it again.",
                    printable(read.filename));
      }
      out_.shards.push_back(std::move(read));
    }
    DOPPLER_ASSIGN(const std::uint64_t total,
                   required_uint(top_, "totalSize", "the sum of the shards' sizes"));
    out_.total_size = end.value_or(0);
    if (total == out_.total_size) return {};
    return fail(ErrorCode::kCorrupt,
                "The value of manifest.json: totalSize is {}, but the sizes of its {} shards add up to {}. "
                "Download the file again.",
                total, out_.shards.size(), out_.total_size);
  }

  // ---- tensors

  Status read_tensors(std::string_view text) {
    DOPPLER_ASSIGN(const auto file, top_.get_string("tensorsFile"));
    Json parsed;
    const Json* map = nullptr;
    std::string where(kManifest);
    if (file && !file->empty()) {
      DOPPLER_ASSIGN(parsed, parse_unique_object(text, *file));
      map = &parsed;
      where = printable(*file);
    } else {
      DOPPLER_ASSIGN(map, find_list(top_, "tensors", true));
      where += ": tensors";
    }
    if (map->empty()) {
      return fail(ErrorCode::kCorrupt,
                  "The manifest says nowhere where its tensors lie: {} has none. Download the package again.",
                  where);
    }
    for (const auto& [name, entry] : map->items()) {
      const ConfigReader tensor(entry, fmt::format("{}: {}", where, printable(name)));
      DOPPLER_ASSIGN(RdrrTensor read, read_tensor(name, tensor));
      out_.tensors.push_back(std::move(read));
    }
    DOPPLER_ASSIGN(const auto count, top_.get_uint("tensorCount"));
    if (count.value_or(out_.tensors.size()) == out_.tensors.size()) return {};
    return fail(ErrorCode::kCorrupt,
                "The value of manifest.json: tensorCount is {}, but there are {} tensors. Download the "
                "package again.",
                *count, out_.tensors.size());
  }

  Result<RdrrTensor> read_tensor(const std::string& name, const ConfigReader& tensor) {
    RdrrTensor out{.name = name};
    if (name.empty())
      return fail(ErrorCode::kCorrupt, "A tensor of the package has no name. Download it again.");
    DOPPLER_ASSIGN(const std::string type, required_string(tensor, "dtype", "the tensor's type"));
    const auto dtype = rdrr_dtype_named(type);
    if (!dtype) {
      return fail(ErrorCode::kUnsupported, "The value of {} is {}, a type that Doppler does not read.",
                  tensor.where("dtype"), printable(type));
    }
    out.dtype = *dtype;
    DOPPLER_ASSIGN(auto shape, tensor.get_uints("shape"));
    if (!shape) return missing(tensor, "shape", "the tensor's shape");
    out.shape = std::move(*shape);
    DOPPLER_ASSIGN(out.size, required_uint(tensor, "size", "the tensor's bytes"));
    DOPPLER_ASSIGN(out.role, optional_string(tensor, "role"));
    if (out.role.empty() && !old()) return missing(tensor, "role", "what the tensor is for");
    DOPPLER_ASSIGN(out.group, optional_string(tensor, "group"));
    DOPPLER_TRY(read_layout(tensor, out));
    DOPPLER_TRY(read_spans(tensor, out));
    return out;
  }

  // The layout's name and the size must say the same. Old packages pack quantised values without regard to
  // rows, whatever they say.
  Status read_layout(const ConfigReader& tensor, RdrrTensor& out) const {
    DOPPLER_ASSIGN(const auto layout, tensor.get_string("layout"));
    struct Name {
      std::string_view name;
      RdrrLayout layout;
    };
    constexpr std::array kNames = {Name{"row", RdrrLayout::kRows},
                                   Name{"row_wise", RdrrLayout::kRows},
                                   Name{"col", RdrrLayout::kColumns},
                                   Name{"column", RdrrLayout::kColumns},
                                   Name{"column_wise", RdrrLayout::kColumns},
                                   Name{"flat", RdrrLayout::kPacked}};
    const auto known = std::ranges::find(kNames, layout.value_or("row"), &Name::name);
    if (known == kNames.end()) {
      return fail(
          ErrorCode::kUnsupported,
          "The value of {} is {}, a layout that Doppler does not know; it knows row, column and flat.",
          tensor.where("layout"), printable(*layout));
    }
    out.layout = known->layout;
    if (rdrr_bytes(out.dtype, out.shape, out.layout) == out.size) return {};
    if (out.layout == RdrrLayout::kRows &&
        rdrr_bytes(out.dtype, out.shape, RdrrLayout::kPacked) == out.size) {
      out.layout = RdrrLayout::kPacked;
      return {};
    }
    const auto wanted = rdrr_bytes(out.dtype, out.shape, out.layout);
    return fail(
        ErrorCode::kCorrupt,
        "The value of {} is {}, but the tensor's type {} and shape {} take {}. Download the package again.",
        tensor.where("size"), out.size, dtype_name(out.dtype), describe_shape(out.shape),
        wanted ? fmt::format("{} bytes", *wanted) : std::string("more than 2^64 bytes"));
  }

  Status add_span(const ConfigReader& span, std::string_view shard_key, RdrrTensor& out) const {
    DOPPLER_ASSIGN(const std::uint64_t shard, required_uint(span, shard_key, "the number of a shard"));
    DOPPLER_ASSIGN(const std::uint64_t offset, required_uint(span, "offset", "a place in the shard"));
    DOPPLER_ASSIGN(const std::uint64_t size, required_uint(span, "size", "a number of bytes"));
    if (shard >= out_.shards.size()) {
      return fail(ErrorCode::kCorrupt,
                  "The value of {} is {}, but there are {} shards. Download the package again.",
                  span.where(shard_key), shard, out_.shards.size());
    }
    const std::uint64_t room = out_.shards[shard].size;
    if (!(Checked(offset) + size).at_most(room)) {
      return fail(
          ErrorCode::kCorrupt,
          "The {} bytes from byte {} on of {} go beyond the {} of the shard {}. Download the package again.",
          size, offset, span.source(), room, printable(out_.shards[shard].filename));
    }
    out.spans.push_back({static_cast<std::size_t>(shard), offset, size});
    return {};
  }

  Status read_spans(const ConfigReader& tensor, RdrrTensor& out) const {
    DOPPLER_ASSIGN(const Json* const list, find_list(tensor, "spans", false));
    if (list->empty()) return add_span(tensor, tensor.has("shard") ? "shard" : "shardIndex", out);
    Checked sum = 0;
    for (const Json& entry : *list) {
      const ConfigReader span(entry, fmt::format("{}.spans[{}]", tensor.source(), out.spans.size()));
      DOPPLER_TRY(add_span(span, span.has("shardIndex") ? "shardIndex" : "shard", out));
      sum = sum + out.spans.back().size;
    }
    if (sum.get() == out.size) return {};
    return fail(ErrorCode::kCorrupt,
                "The spans of {} hold {} bytes, but the tensor takes {}. Download the package again.",
                tensor.source(), sum.value_or(0), out.size);
  }

  // No byte belongs to two tensors. Gaps are allowed: some programs align tensors.
  Status check_apart() const {
    struct Piece {
      const RdrrSpan* span;
      const RdrrTensor* tensor;
    };
    std::vector<Piece> pieces;
    for (const RdrrTensor& tensor : out_.tensors)
      for (const RdrrSpan& span : tensor.spans)
        if (span.size > 0) pieces.push_back({&span, &tensor});
    std::ranges::sort(pieces, {}, [](const Piece& p) { return std::pair(p.span->shard, p.span->offset); });
    for (std::size_t i = 1; i < pieces.size(); ++i) {
      const auto& [before, tensor] = pieces[i - 1];
      const auto& [span, next] = pieces[i];
      if (before->shard != span->shard || before->offset + before->size <= span->offset) continue;
      return fail(ErrorCode::kCorrupt,
                  "The tensors {} and {} overlap at byte {} of the shard {}. Download the package again.",
                  printable(tensor->name), printable(next->name), span->offset,
                  printable(out_.shards[span->shard].filename));
    }
    return {};
  }

  // Flags that say whether there are tensors of a name.
  Status check_norms() const {
    struct Flag {
      std::string_view key, ending;
      bool both_ways;  // the name means nothing else in any model
    };
    constexpr std::array kFlags = {
        Flag{"inference.normalization.postFeedforwardNorm", ".post_feedforward_layernorm.weight", true},
        Flag{"inference.normalization.preFeedforwardNorm", ".pre_feedforward_layernorm.weight", true},
        Flag{"inference.normalization.postAttentionNorm", ".post_attention_layernorm.weight", false}};
    if (!out_.gguf_metadata.empty()) return {};  // other names
    for (const Flag& flag : kFlags) {
      DOPPLER_ASSIGN(const auto says, top_.get_bool(flag.key));
      const bool there = std::ranges::any_of(
          out_.tensors, [&](const RdrrTensor& tensor) { return tensor.name.ends_with(flag.ending); });
      // What a config describes may have such a norm under another name.
      const bool elsewhere = there ? !flag.both_ways : top_.has("config");
      if (!says || *says == there || elsewhere) continue;
      return fail(ErrorCode::kCorrupt,
                  "The value of manifest.json: {} is {}, but {} named *{}. Download the package "
                  "again.",
                  flag.key, *says, there ? "there are tensors" : "there is no tensor", flag.ending);
    }
    return {};
  }

  // ---- groups and files

  Result<std::size_t> tensor_named(const ConfigReader& group, const std::string& name) const {
    const auto found = std::ranges::lower_bound(out_.tensors, name, {}, &RdrrTensor::name);
    if (found != out_.tensors.end() && found->name == name)
      return static_cast<std::size_t>(found - out_.tensors.begin());
    return fail(ErrorCode::kCorrupt,
                "The list of {} names {}, which is no tensor of the package. Download it again.",
                group.where("tensors"), printable(name));
  }

  Status read_group(const std::string& id, const ConfigReader& group) {
    RdrrGroup out{.id = id};
    DOPPLER_ASSIGN(out.type, optional_string(group, "type"));
    DOPPLER_ASSIGN(const auto tensors, group.get_strings("tensors"));
    DOPPLER_ASSIGN(const auto shards, group.get_uints("shards"));
    if (!tensors || !shards)
      return missing(group, tensors ? "shards" : "tensors", "what belongs to the group");
    std::set<std::uint64_t> used;  // as wide as what the list may say
    for (const std::string& name : *tensors) {
      DOPPLER_ASSIGN(const std::size_t tensor, tensor_named(group, name));
      out.tensors.push_back(tensor);
      for (const RdrrSpan& span : out_.tensors[tensor].spans) used.insert(span.shard);
      const std::string& own = out_.tensors[tensor].group;
      if (!own.empty() && own != id) {
        return fail(
            ErrorCode::kCorrupt,
            "The tensor {} is in the group {}, but says that it is in {}. Download the package again.",
            printable(name), printable(id), printable(own));
      }
      if (!grouped_.insert(tensor).second) {
        return fail(ErrorCode::kCorrupt,
                    "The tensor {} is in two groups, one of them {}. Download the package again.",
                    printable(name), printable(id));
      }
    }
    if (std::set<std::uint64_t>(shards->begin(), shards->end()) != used) {
      return fail(
          ErrorCode::kCorrupt,
          "The list {} is not that of the shards in which the group's tensors lie. Download the package "
          "again.",
          group.where("shards"));
    }
    out.shards.assign(used.begin(), used.end());
    DOPPLER_ASSIGN(const auto hash, group.get_string("hash"));
    if (hash && !hash->empty()) {
      DOPPLER_ASSIGN(out.hash, hash_text(group, "hash", *hash));
    }
    out_.groups.push_back(std::move(out));
    return {};
  }

  Status read_groups() {
    DOPPLER_ASSIGN(const Json* const groups, find_list(top_, "groups", true));
    for (const auto& [id, entry] : groups->items())
      DOPPLER_TRY(
          read_group(id, ConfigReader(entry, fmt::format("{}: groups.{}", kManifest, printable(id)))));
    if (groups->empty()) return {};
    for (std::size_t i = 0; i < out_.tensors.size(); ++i) {
      if (grouped_.contains(i) || out_.tensors[i].group.empty()) continue;
      return fail(ErrorCode::kCorrupt,
                  "The tensor {} says that it is in the group {}, which does not name it. Download the "
                  "package again.",
                  printable(out_.tensors[i].name), printable(out_.tensors[i].group));
    }
    return {};
  }

  Status read_files() {
    DOPPLER_ASSIGN(const auto tokenizer, top_.get_object("tokenizer"));
    if (tokenizer) {
      for (const std::string_view key : {"file", "sentencepieceModel"}) {
        DOPPLER_ASSIGN(const auto name, tokenizer->get_string(key));
        if (!name || name->empty() || !out_.tokenizer_file.empty()) continue;
        DOPPLER_ASSIGN(out_.tokenizer_file, file_name(*tokenizer, key, *name));
      }
    }
    DOPPLER_ASSIGN(const Json* const files, find_list(top_, "files", false));
    for (const Json& entry : *files) {
      const ConfigReader file(entry, fmt::format("{}: files[{}]", kManifest, out_.files.size()));
      RdrrFile out;
      DOPPLER_ASSIGN(const std::string name, required_string(file, "filename", "the file's name"));
      DOPPLER_ASSIGN(out.filename, file_name(file, "filename", name));
      DOPPLER_ASSIGN(out.size, required_uint(file, "size", "the file's bytes"));
      DOPPLER_ASSIGN(const std::string hash, required_string(file, "hash", "the file's hash"));
      DOPPLER_ASSIGN(out.hash, hash_text(file, "hash", hash));
      out_.files.push_back(std::move(out));
    }
    return {};
  }

  RdrrManifest& out_;
  ConfigReader top_;
  std::set<std::size_t> grouped_;
};

}  // namespace

Result<std::string> rdrr_tensors_file(std::string_view manifest) {
  DOPPLER_ASSIGN(const Json document, parse_unique_object(manifest, kManifest));
  const ConfigReader top(document, std::string(kManifest));
  DOPPLER_ASSIGN(const auto file, top.get_string("tensorsFile"));
  if (!file || file->empty()) return std::string();
  return file_name(top, "tensorsFile", *file);
}

Result<RdrrManifest> parse_rdrr_manifest(std::string_view manifest, std::string_view tensors) {
  RdrrManifest out;
  DOPPLER_ASSIGN(out.document, parse_unique_object(manifest, kManifest));
  DOPPLER_TRY(ManifestReader(out).read(tensors));
  return out;
}

}  // namespace doppler
