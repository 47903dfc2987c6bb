#include "convert/repaired_copy.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/metadata.h"
#include "convert/partial_folder.h"
#include "convert/source.h"
#include "formats/config_json.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/model_files.h"
#include "formats/rdrr.h"
#include "formats/safetensors.h"
#include "model/expert_files.h"
#include "model/family.h"
#include "model/gguf_rows.h"
#include "quant/encode.h"
#include "system/files.h"

namespace doppler::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenizerKeys = "tokenizer.";

std::string shown(const fs::path& path) {
  return printable(path.string(), 200);
}

// What a name with brackets stands for: a matrix of several, rows of it or of the tensor, or both.
struct Slice {
  std::string tensor;
  std::optional<std::uint64_t> matrix = {};
  std::uint64_t begin = 0, end = UINT64_MAX;
};
Slice slice_of(const std::string& name) {
  std::size_t open = name.find('[');
  Slice slice{name.substr(0, open)};
  for (; open != std::string::npos; open = name.find('[', open + 1)) {
    const std::size_t close = std::min(name.find(']', open), name.size()), colon = name.find(':', open);
    const std::uint64_t first = std::strtoull(&name[open + 1], nullptr, 10);
    if (colon < close)
      slice.begin = first, slice.end = std::strtoull(&name[colon + 1], nullptr, 10);
    else
      slice.matrix = first;
  }
  return slice;
}

// The rows of a tensor that a slice means.
struct RowRange {
  std::uint64_t begin, end;
};
RowRange rows_of(const Slice& slice, const TensorView& tensor) {
  const std::uint64_t of_matrix = tensor.shape.size() > 2 ? tensor.shape[tensor.shape.size() - 2] : 1;
  const std::uint64_t first = slice.matrix ? *slice.matrix * of_matrix : 0;
  const std::uint64_t last = slice.matrix ? first + of_matrix : tensor.rows();
  return {first + slice.begin, slice.end < last - first ? first + slice.end : last};
}

bool is_dropped(const Changes& changes, const std::string& name) {
  return std::ranges::find(changes.dropped, name) != changes.dropped.end();
}

bool changes_any(const Changes& changes, const TensorStore& store) {
  const auto has = [&](const std::string& name) { return store.find(name) != nullptr; };
  return std::ranges::any_of(changes.dropped, has) ||
         std::ranges::any_of(changes.tensors, [&](const ChangedTensor& changed) {
           return store.find(slice_of(changed.name).tensor) != nullptr;
         });
}

DType type_after(const Changes& changes, const TensorView& tensor) {
  std::uint64_t matrices = 0;  // that are of the other type
  for (const ChangedTensor& changed : changes.tensors) {
    if (!changed.type) continue;
    if (changed.name == tensor.name) return *changed.type;
    const Slice slice = slice_of(changed.name);
    matrices += slice.tensor == tensor.name && slice.matrix && slice.end == UINT64_MAX;
    if (matrices > 0 && matrices == tensor.matrices()) return *changed.type;
  }
  return tensor.dtype;
}

// The bytes of a tensor with its changes. `head_dim` above 0: the file has the rows of rotary pairs side by
// side.
Result<std::vector<std::byte>> bytes_after(const Changes& changes, const TensorView& tensor,
                                           std::uint64_t head_dim) {
  const DType type = type_after(changes, tensor);
  const auto size = byte_size(type, tensor.shape);
  if (!size)
    return fail(ErrorCode::kMismatch, "The tensor {} cannot be stored as {}.", tensor.name, dtype_name(type));
  std::vector<std::byte> bytes(tensor.data.begin(), tensor.data.end());
  bytes.resize(*size);
  const std::uint64_t rows = tensor.rows(), cols = tensor.cols(), row_bytes = *size / rows;
  std::vector<float> values(cols);
  const auto place = [&](std::uint64_t at) { return head_dim > 0 ? unpaired(at, head_dim) : at; };
  for (const ChangedTensor& changed : changes.tensors) {
    const Slice slice = slice_of(changed.name);
    if (slice.tensor != tensor.name) continue;
    if (!changed.bytes.empty()) return changed.bytes;
    if (tensor.shape.size() == 1) {  // a vector, whose values are ordered as rows are
      const std::uint64_t end = std::min(slice.end, cols);
      std::vector<float> all(end - slice.begin), whole(cols);
      DOPPLER_TRY(changed.read(0, all));
      DOPPLER_TRY(decode_f32(tensor, 0, whole));
      for (std::uint64_t i = 0; i < all.size(); ++i) whole[place(slice.begin + i)] = all[i];
      DOPPLER_TRY(encode(type, whole, bytes));
      continue;
    }
    const RowRange range = rows_of(slice, tensor);
    for (std::uint64_t r = range.begin; r < std::min(range.end, rows); ++r) {
      DOPPLER_TRY(changed.read(r - range.begin, values));
      DOPPLER_TRY(encode(type, values, std::span(bytes).subspan(place(r) * row_bytes, row_bytes)));
    }
  }
  return bytes;
}

// The bytes of a tensor that the model lacks.
Result<std::vector<std::byte>> bytes_of_new(const ChangedTensor& added) {
  const DType type = added.type.value_or(DType::kF32);
  const auto size = byte_size(type, added.shape);
  if (!size)
    return fail(ErrorCode::kMismatch, "The tensor {} cannot be stored as {}.", added.name, dtype_name(type));
  std::uint64_t rows = 1;
  for (std::size_t i = 0; i + 1 < added.shape.size(); ++i) rows *= added.shape[i];
  std::vector<std::byte> bytes(*size);
  std::vector<float> values(added.shape.back());
  for (std::uint64_t r = 0; r < rows; ++r) {
    DOPPLER_TRY(added.read(r, values));
    DOPPLER_TRY(encode(type, values, std::span(bytes).subspan(r * (*size / rows), *size / rows)));
  }
  return bytes;
}

bool is_changed(const Changes& changes, const std::string& name) {
  return std::ranges::any_of(
      changes.tensors, [&](const ChangedTensor& changed) { return slice_of(changed.name).tensor == name; });
}

// `added`: tensors that are new, behind the others.
Status write_shard(const TensorStore& store, const Changes& changes, const Changes& added,
                   const fs::path& output) {
  std::vector<const TensorView*> tensors;
  for (const auto& [name, tensor] : store.tensors()) {
    if (!is_dropped(changes, name)) tensors.push_back(&tensor);
  }
  // As they lay in the file, in which order they are aligned.
  std::ranges::sort(tensors, {}, [](const TensorView* t) { return t->data.data(); });
  std::vector<SafetensorsWriter::Entry> entries;
  for (const TensorView* tensor : tensors)
    entries.push_back({tensor->name, type_after(changes, *tensor), tensor->shape});
  for (const ChangedTensor& tensor : added.tensors)
    entries.push_back({tensor.name, tensor.type.value_or(DType::kF32), tensor.shape});
  DOPPLER_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(output, entries, {{"format", "pt"}}));
  for (const TensorView* tensor : tensors) {
    if (!is_changed(changes, tensor->name)) {
      DOPPLER_TRY(writer.write(tensor->data));
      continue;
    }
    DOPPLER_ASSIGN(const std::vector<std::byte> bytes, bytes_after(changes, *tensor, 0));
    DOPPLER_TRY(writer.write(bytes));
  }
  for (const ChangedTensor& tensor : added.tensors) {
    DOPPLER_ASSIGN(const std::vector<std::byte> bytes, bytes_of_new(tensor));
    DOPPLER_TRY(writer.write(bytes));
  }
  return writer.finish();
}

// The list of shards that names each tensor's file.
void correct_index(Json& index, const Changes& changes, const Changes& added, const std::string& shard) {
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) return;
  for (const std::string& name : changes.dropped) map->erase(name);
  for (const ChangedTensor& tensor : added.tensors) (*map)[tensor.name] = shard;
}

Status write_text(const fs::path& file, const std::string& text) {
  DOPPLER_ASSIGN(OutputFile out, OutputFile::create(file));
  DOPPLER_TRY(out.write(std::string_view(text)));
  return out.commit();
}

// Copied through OutputFile, so that a full disk is an error and not a shorter file.
Status copy_bytes(const fs::path& from, const fs::path& to) {
  DOPPLER_ASSIGN(const MappedFile file, MappedFile::open(from));
  DOPPLER_ASSIGN(OutputFile out, OutputFile::create(to));
  DOPPLER_TRY(out.write(file.bytes()));
  return out.commit();
}

Status check_room(const fs::path& output, std::uint64_t bytes) {
  const auto free = system::free_space(output.has_parent_path() ? output.parent_path() : fs::path("."));
  if (!free || *free >= bytes) return {};
  return fail(ErrorCode::kIo,
              "The copy {} needs {}, but its disk has {} free. Make room, or give a name on another disk.",
              shown(output), human_bytes(bytes), human_bytes(*free));
}

// generation_config.json is the one file that a model may lack and that holds nothing but such values.
Status write_new_files(const fs::path& model, const Changes& changes, const fs::path& folder,
                       std::size_t& changed) {
  constexpr std::string_view kGeneration = "generation_config.json";
  if (system::exists(model / kGeneration)) return {};
  Json json = Json::object();
  for (const ChangedValue& value : changes.values) {
    if (value.file != kGeneration) continue;
    ++changed;
    DOPPLER_TRY(set_value(json, value));
  }
  return json.empty() ? Status() : write_text(folder / kGeneration, json.dump(2) + "\n");
}

// Where tensors that the model lacks go: its first file with tensors.
fs::path first_shard(const fs::path& model) {
  for (const fs::path& file : sorted_entries(model)) {
    if (file.extension() == ".safetensors" && open_safetensors(file)) return file;
  }
  return {};
}

// Tensors that no file of the folder has, and that bring their shape.
Changes only_new(const fs::path& model, const Changes& changes) {
  Changes added;
  for (const ChangedTensor& tensor : changes.tensors) {
    const auto holds = [&](const fs::path& file) {
      if (file.extension() != ".safetensors") return false;
      const auto store = open_safetensors(file);
      return store && store->find(slice_of(tensor.name).tensor) != nullptr;
    };
    if (!tensor.shape.empty() && std::ranges::none_of(sorted_entries(model), holds))
      added.tensors.push_back(tensor);
  }
  return added;
}

// Experts that are packed with others, in blocks or by turns: the changes of their rows become new bytes of
// the tensors that hold them.
Result<Changes> repack(const fs::path& model, const ModelSpec& spec, const Changes& asked) {
  const FamilyRule* family = family_named(spec.family);
  if (family == nullptr || family->weight_names.expert_columns.gate_up.empty()) return asked;
  DOPPLER_ASSIGN(const ModelFiles files, open_model_files(model));
  Changes changes = asked;
  changes.tensors.clear();
  std::map<std::string, std::vector<std::byte>> packed;  // by the stored tensor's name
  const auto bytes_of = [&](const std::string& name) -> std::vector<std::byte>& {
    const auto [found, is_new] = packed.try_emplace(name);
    if (const TensorView* tensor = is_new ? files.tensors.find(name) : nullptr)
      found->second.assign(tensor->data.begin(), tensor->data.end());
    return found->second;
  };
  for (const ChangedTensor& changed : asked.tensors) {
    const auto place = find_expert(spec, family->weight_names, files.tensors, changed.name);
    if (!place) {
      changes.tensors.push_back(changed);
      continue;
    }
    std::vector<std::byte>& stored = bytes_of(place->stored);
    std::vector<std::byte> none, &scales = place->scales.empty() ? none : bytes_of(place->scales);
    const DType type = files.tensors.find(place->stored)->dtype;
    std::vector<float> values(place->cols);
    for (std::uint64_t r = 0; r < place->count; ++r) {
      DOPPLER_TRY(changed.read(r, values));
      DOPPLER_TRY(put_expert_row(*place, r, values, type, stored, scales));
    }
  }
  for (auto& [name, bytes] : packed) changes.tensors.push_back({.name = name, .bytes = std::move(bytes)});
  return changes;
}

Status copy_folder(const fs::path& model, const ModelSpec& spec, const Changes& asked,
                   const fs::path& output) {
  DOPPLER_ASSIGN(const Changes changes, repack(model, spec, asked));
  constexpr std::uint64_t kMostJson = std::uint64_t{256} << 20;
  std::vector<fs::path> files;
  std::uint64_t bytes = 0;
  for (const fs::path& file : sorted_entries(model)) {
    if (!system::is_file(file)) continue;
    files.push_back(file);
    bytes += system::file_size(file).value_or(0);
  }
  DOPPLER_TRY(check_room(output, bytes));
  PartialFolder folder(output);
  DOPPLER_TRY(folder.make());
  std::size_t changed = 0;
  const Changes added = only_new(model, changes);
  const fs::path shard = first_shard(model);
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    const fs::path to = folder.path() / file.filename();
    if (file.extension() == ".safetensors") {
      const auto store = open_safetensors(file);
      const bool takes_new = file == shard && !added.tensors.empty();
      if (store && (takes_new || changes_any(changes, *store))) {
        DOPPLER_TRY(write_shard(*store, changes, takes_new ? added : Changes{}, to));
        continue;
      }
    }
    if (std::ranges::any_of(changes.values, [&](const ChangedValue& v) { return v.file == name; })) {
      DOPPLER_ASSIGN(const std::string text, read_text_file(file, kMostJson));
      DOPPLER_ASSIGN(Json json, parse_config_json(text, name));
      for (const ChangedValue& value : changes.values) {
        if (value.file != name) continue;
        ++changed;
        DOPPLER_TRY(set_value(json, value));
      }
      DOPPLER_TRY(write_text(to, json.dump(2) + "\n"));
      continue;
    }
    if (name.ends_with(".index.json") && (!changes.dropped.empty() || !added.tensors.empty())) {
      DOPPLER_ASSIGN(const std::string text, read_text_file(file, kMostJson));
      DOPPLER_ASSIGN(Json json, parse_json(text, name));
      correct_index(json, changes, added, shard.filename().string());
      DOPPLER_TRY(write_text(to, json.dump(2) + "\n"));
      continue;
    }
    const auto better = std::ranges::find(changes.files, file.filename(), &fs::path::filename);
    DOPPLER_TRY(copy_bytes(better == changes.files.end() ? file : *better, to));
  }
  for (const fs::path& file : changes.files) {
    if (!system::exists(folder.path() / file.filename()))
      DOPPLER_TRY(copy_bytes(file, folder.path() / file.filename()));
  }
  DOPPLER_TRY(write_new_files(model, changes, folder.path(), changed));
  if (changed < changes.values.size())
    return fail(ErrorCode::kNotFound, "The folder {} has no file {} to change.", shown(model),
                changes.values[0].file);
  return folder.commit();
}

// A number in the type that the key had.
template <typename T>
Status add_number(GgufWriter& writer, std::string_view key, const Json& value) {
  return writer.add<T>(key, value.get<T>());
}
Status add_changed(GgufWriter& writer, const GgufMetadata::Entry& entry, const std::string& text) {
  DOPPLER_ASSIGN(Json value, parse_json(text, entry.key));
  if (value.is_null()) value = 0;  // GGUF's word for none
  if (value.is_string()) return writer.add<std::string_view>(entry.key, value.get<std::string>());
  if (value.is_boolean()) return writer.add<bool>(entry.key, value.get<bool>());
  if (!value.is_number())
    return fail(ErrorCode::kUnsupported, "The key {} cannot be changed to {}.", entry.key, text);
  switch (entry.type) {
    case GgufType::kF32:
      return add_number<float>(writer, entry.key, value);
    case GgufType::kF64:
      return add_number<double>(writer, entry.key, value);
    case GgufType::kU64:
      return add_number<std::uint64_t>(writer, entry.key, value);
    case GgufType::kI32:
      return add_number<std::int32_t>(writer, entry.key, value);
    case GgufType::kU32:
      return add_number<std::uint32_t>(writer, entry.key, value);
    default:
      return fail(ErrorCode::kUnsupported, "The key {} is of a type that is not changed here.", entry.key);
  }
}

// A key that the file lacks: whole numbers are 32 bits, as other programs write them.
Status add_new(GgufWriter& writer, const ChangedValue& change) {
  DOPPLER_ASSIGN(const Json value, parse_json(change.value, change.key));
  if (value.is_null()) return {};
  if (value.is_string()) return writer.add<std::string_view>(change.key, value.get<std::string>());
  if (value.is_boolean()) return writer.add<bool>(change.key, value.get<bool>());
  if (value.is_number_unsigned()) return writer.add<std::uint32_t>(change.key, value.get<std::uint32_t>());
  if (value.is_number()) return writer.add<float>(change.key, value.get<float>());
  return fail(ErrorCode::kUnsupported, "The key {} cannot be set to {}.", change.key, change.value);
}

// The tokenizer and template of another model, a folder or a GGUF file, as metadata.
Status add_tokenizer_of(GgufWriter& writer, const fs::path& source) {
  if (is_gguf(source)) {
    DOPPLER_ASSIGN(const GgufFile file, open_gguf(source));
    for (const GgufMetadata::Entry& entry : file.metadata.entries()) {
      if (entry.key.starts_with(kTokenizerKeys)) DOPPLER_TRY(writer.add_entry(entry));
    }
    return {};
  }
  DOPPLER_ASSIGN(const ConversionSource converted, open_source(source, {.with_tokenizer = true}));
  for (const MetadataEntry& entry : converted.metadata) {
    if (entry.key.starts_with(kTokenizerKeys)) DOPPLER_TRY(add_entry(writer, entry));
  }
  return {};
}

// A list of flags, one for each layer, with some turned over; `key` and a dot come before the layer.
bool is_entry_of(std::string_view key, const ChangedValue& change) {
  return change.key.starts_with(key) && change.key.size() > key.size() + 1 && change.key[key.size()] == '.' &&
         change.key.find_first_not_of("0123456789", key.size() + 1) == std::string::npos;
}
Status add_changed_flags(GgufWriter& writer, const GgufMetadata& metadata, const GgufMetadata::Entry& entry,
                         const Changes& changes) {
  const auto unfit = fail(ErrorCode::kUnsupported,
                          "The key {} is no list of flags, so that no single layer's is changed.", entry.key);
  if (entry.type != GgufType::kArray) return unfit;
  DOPPLER_ASSIGN(const auto list, metadata.get_array(entry.key));
  DOPPLER_ASSIGN(std::vector<bool> flags, list->bools());
  for (const ChangedValue& change : changes.values) {
    if (!is_entry_of(entry.key, change)) continue;
    const std::size_t at = std::strtoull(&change.key[entry.key.size() + 1], nullptr, 10);
    if (at >= flags.size()) return unfit;
    flags[at] = change.value.find("sliding") != std::string::npos;
  }
  return writer.add_bools(entry.key, flags);
}

// Dims of a head if the file has the rows of this tensor's rotary pairs side by side; else 0.
std::uint64_t paired_dims(const ModelSpec& spec, const std::string& name) {
  const FamilyRule* family = family_named(spec.family);
  if (family == nullptr || !family->gguf.paired_rows) return 0;
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    for (const WeightInfo& info : weight_table()) {
      if (rotated_heads(spec, info.role, layer) > 0 &&
          weight_name(family->gguf.weight_names, info.role, layer) == name)
        return spec.layers[static_cast<std::size_t>(layer)].attention.head_dim;
    }
  }
  return 0;
}

Status copy_gguf(const fs::path& model, const ModelSpec& spec, const Changes& changes,
                 const fs::path& output) {
  if (output.extension() != ".gguf") {
    return fail(ErrorCode::kUsage,
                "The output {} does not end in .gguf, by which GGUF files are known. Give another name.",
                shown(output));
  }
  if (!changes.files.empty())
    return fail(ErrorCode::kUsage,
                "A GGUF file has no tokenizer files to be replaced. Convert the source again.");
  DOPPLER_ASSIGN(const GgufFile file, open_gguf(model));
  std::vector<const TensorView*> tensors;
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : file.tensors.tensors()) {
    if (!is_dropped(changes, name)) tensors.push_back(&tensor);
    bytes += tensor.data.size();
  }
  DOPPLER_TRY(check_room(output, bytes));
  std::ranges::stable_sort(tensors, {}, [](const TensorView* t) { return t->data.data(); });
  DOPPLER_ASSIGN(GgufWriter writer, GgufWriter::create(output, file.alignment));
  for (const GgufMetadata::Entry& entry : file.metadata.entries()) {
    if (entry.key.starts_with("split.") || entry.key == "general.alignment") continue;
    if (!changes.tokenizer.empty() && entry.key.starts_with(kTokenizerKeys)) continue;
    const auto value = std::ranges::find(changes.values, entry.key, &ChangedValue::key);
    const bool some =
        std::ranges::any_of(changes.values, [&](const ChangedValue& v) { return is_entry_of(entry.key, v); });
    if (some) {
      DOPPLER_TRY(add_changed_flags(writer, file.metadata, entry, changes));
      continue;
    }
    if (value == changes.values.end()) {
      DOPPLER_TRY(writer.add_entry(entry));
      continue;
    }
    DOPPLER_TRY(add_changed(writer, entry, value->value));
  }
  for (const ChangedValue& value : changes.values) {
    const auto is_it = [&](const GgufMetadata::Entry& entry) {
      return entry.key == value.key || is_entry_of(entry.key, value);
    };
    if (std::ranges::none_of(file.metadata.entries(), is_it)) DOPPLER_TRY(add_new(writer, value));
  }
  if (!changes.tokenizer.empty()) DOPPLER_TRY(add_tokenizer_of(writer, changes.tokenizer));
  std::vector<const ChangedTensor*> added;
  for (const ChangedTensor& tensor : changes.tensors) {
    if (!tensor.shape.empty() && file.tensors.find(tensor.name) == nullptr) added.push_back(&tensor);
  }
  for (const TensorView* tensor : tensors)
    DOPPLER_TRY(writer.declare_tensor(tensor->name, type_after(changes, *tensor), tensor->shape));
  for (const ChangedTensor* tensor : added)
    DOPPLER_TRY(writer.declare_tensor(tensor->name, tensor->type.value_or(DType::kF32), tensor->shape));
  DOPPLER_TRY(writer.write_header());
  for (const TensorView* tensor : tensors) {
    if (!is_changed(changes, tensor->name)) {
      DOPPLER_TRY(writer.write_tensor_data(tensor->data));
      continue;
    }
    DOPPLER_ASSIGN(const std::vector<std::byte> data,
                   bytes_after(changes, *tensor, paired_dims(spec, tensor->name)));
    DOPPLER_TRY(writer.write_tensor_data(data));
  }
  for (const ChangedTensor* tensor : added) {
    DOPPLER_ASSIGN(const std::vector<std::byte> data, bytes_of_new(*tensor));
    DOPPLER_TRY(writer.write_tensor_data(data));
  }
  return writer.finish();
}

}  // namespace

bool holds(const TensorStore& store, const ModelSpec& spec, const std::string& name) {
  if (store.find(slice_of(name).tensor) != nullptr) return true;
  const FamilyRule* family = family_named(spec.family);
  return family != nullptr && find_expert(spec, family->weight_names, store, name).has_value();
}

Status set_value(Json& root, const ChangedValue& change) {
  DOPPLER_ASSIGN(Json value, parse_json(change.value, change.key));
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= change.key.size();) {
    const std::size_t dot = std::min(change.key.find('.', at), change.key.size());
    parts.push_back(change.key.substr(at, dot - at));
    at = dot + 1;
  }
  Json* at = &root;
  if (change.value == "null" && !root.contains(parts[0]) && !root.contains("text_config")) return {};
  // The language half of a multimodal model.
  if (!root.contains(parts[0]) && root.contains("text_config")) at = &root["text_config"];
  for (const std::string& part : parts) {
    if (at->is_null()) *at = Json::object();  // was not there
    if (at->is_array()) {
      const std::size_t index = std::strtoull(part.c_str(), nullptr, 10);
      if (index >= at->size())
        return fail(ErrorCode::kNotFound, "The list of {} in {} has no entry {}.", change.key, change.file,
                    index);
      at = &(*at)[index];
    } else if (at->is_object()) {
      at = &(*at)[part];
    } else {
      return fail(ErrorCode::kNotFound, "The file {} has no place for {}.", change.file, change.key);
    }
  }
  *at = std::move(value);
  return {};
}

Status write_repaired_copy(const fs::path& model, const ModelSpec& spec, const Changes& changes,
                           const fs::path& output) {
  if (system::exists(output))
    return fail(ErrorCode::kUsage, "The output {} exists already. Give a name that does not.", shown(output));
  if (system::is_folder(model)) {
    if (has_rdrr_manifest(model)) {
      return fail(
          ErrorCode::kUnsupported,
          "The model {} is an RDRR package, whose files no repair changes. Repair the model that it was "
          "made of, and convert that again.",
          shown(model));
    }
    for (const fs::path& file : sorted_entries(model)) {
      if (file.extension() == ".safetensors") return copy_folder(model, spec, changes, output);
    }
    for (const fs::path& file : sorted_entries(model)) {
      if (is_gguf(file)) return copy_gguf(file, spec, changes, output);
    }
  }
  if (is_gguf(model)) return copy_gguf(model, spec, changes, output);
  return fail(ErrorCode::kUnsupported,
              "The model {} is neither a folder of safetensors nor a GGUF file, and no other is copied.",
              shown(model));
}

}  // namespace doppler::convert
