#include "convert/convert.h"

#include <algorithm>

#include "base/text.h"
#include "convert/mix.h"
#include "convert/source.h"
#include "convert/steps.h"
#include "convert/tensor_writer.h"
#include "formats/gguf.h"
#include "system/files.h"

namespace doppler::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kBlockLayouts = 2;  // general.quantization_version: ggml's present ones
// More than any header: keys, and names of tensors; a large vocabulary is counted apart.
constexpr std::uint64_t kHeaderBytes = std::uint64_t{16} << 20;

Status check_output(const fs::path& output, const TensorStore& store) {
  if (output.extension() != ".gguf") {
    return fail(ErrorCode::kUsage,
                "The output {} does not end in .gguf, by which GGUF files are known. Give another name.",
                printable(output.string(), 200));
  }
  for (const MappedFile& file : store.files()) {
    if (!system::same_file(file.path(), output)) continue;
    return fail(ErrorCode::kUsage, "The output {} is a file of the model itself. Give another name.",
                printable(output.string(), 200));
  }
  return {};
}

bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

MixChoice choose(const Mix* mix, const MixModel& model, const SourceTensor& tensor) {
  const DType own = tensor.source_type();
  if (mix == nullptr) return {own, "the source's own"};
  if (!tensor.keep_type.empty()) return {own, tensor.keep_type};
  const std::string& name = tensor.chosen_as.empty() ? tensor.name : tensor.chosen_as;
  const MixChoice choice = choose_type(*mix, model, name, tensor.shape);
  if (!tensor.keep_float || choice.type == DType::kF32 || !is_quantised(mix->base)) return choice;
  return {is_float(own) ? own : DType::kBF16, "config.json says not to convert this module"};
}

// The tensors as a reader will find them. Those that its description is made of have values: what is
// computed, and vectors that are copied as they are.
Result<TensorStore> as_written(const ConversionSource& source, const ConvertReport& report) {
  TensorStore store;
  for (std::size_t i = 0; i < source.tensors.size(); ++i) {
    const SourceTensor& from = source.tensors[i];
    TensorView tensor{.name = from.name, .dtype = report.tensors[i].type, .shape = from.shape, .data = {}};
    const bool copied =
        from.parts.size() == 1 && from.parts[0].dtype == tensor.dtype && from.shape.size() == 1;
    if (!from.values.empty() && tensor.dtype == DType::kF32)
      tensor.data = std::as_bytes(std::span(from.values));
    else if (copied)
      tensor.data = from.parts[0].data;
    DOPPLER_TRY(store.add(std::move(tensor)));
  }
  return store;
}

// Before anything is written: whether a reader of the file would run the same model.
Status check_expressible(const GgufWriter& file, const ConversionSource& source,
                         const ConvertReport& report) {
  DOPPLER_ASSIGN(const GgufMetadata metadata, file.metadata());
  DOPPLER_ASSIGN(const TensorStore tensors, as_written(source, report));
  const Result<ModelSpec> spec = read_gguf_spec(metadata, tensors);
  const std::vector<std::string> differences =
      spec ? spec_differences(source.spec, *spec) : std::vector<std::string>{spec.error().message};
  if (differences.empty()) return {};
  return fail(ErrorCode::kUnsupported,
              "GGUF cannot hold this model; read back, {}. Run the folder itself, or convert it with "
              "--format rdrr.",
              join(differences, "; "));
}

// What a GGUF file cannot say may leave its tensors without a place: then it would be refused when it is
// loaded, so it is not left behind. Binding as the file lies costs nothing; only where that fails rows are
// put back first, as loading does.
Status check_bound(const fs::path& output, const ModelSpec& spec, const TensorStore& tensors) {
  const FamilyRule* rule = family_named(spec.family);
  if (rule != nullptr && bind_weights(spec, rule->gguf.weight_names, tensors)) return {};
  const Result<Model> loaded = load_model(output);
  if (loaded) return {};
  (void)system::remove_file(output);
  return fail(
      ErrorCode::kUnsupported,
      "GGUF cannot hold this model; read back from the file that was written: {} Run the folder itself, "
      "or convert it with --format rdrr.",
      loaded.error().message);
}

// Reads the written file back, which check_expressible() has foreseen: a difference is a bug of Doppler.
Status check_written(const fs::path& output, const ConversionSource& source, ConvertReport& report) {
  DOPPLER_ASSIGN(const GgufFile written, open_gguf(output));
  DOPPLER_ASSIGN(const ModelSpec spec, read_gguf_spec(written.metadata, written.tensors));
  if (const auto differences = spec_differences(source.spec, spec); !differences.empty()) {
    (void)system::remove_file(output);
    return fail(ErrorCode::kInternal, "The file reads back as another model: {}. Report this.",
                join(differences, "; "));
  }
  DOPPLER_TRY(check_bound(output, spec, written.tensors));
  report.file_bytes = system::file_size(output).value_or(0);
  return {};
}

}  // namespace

Status check_space(const fs::path& output, std::uint64_t bytes) {
  const auto free = system::free_space(output.has_parent_path() ? output.parent_path() : fs::path("."));
  if (!free || *free >= bytes) return {};
  return fail(ErrorCode::kIo,
              "The output {} needs {}, but its disk has {} free. Make room, or give a name on another disk.",
              printable(output.string(), 200), human_bytes(bytes), human_bytes(*free));
}

Status write_metadata(const ConversionSource& source, const Mix* mix, GgufWriter& file) {
  for (const GgufMetadata::Entry& entry : source.copied) DOPPLER_TRY(file.add_entry(entry));
  for (const MetadataEntry& entry : source.metadata) DOPPLER_TRY(add_entry(file, entry));
  DOPPLER_TRY(file.add<std::uint32_t>("general.quantization_version", kBlockLayouts));
  if (mix == nullptr) return {};  // the tensors' types are the source's, and say so themselves
  return file.add<std::uint32_t>("general.file_type", mix->file_type);
}

Result<ConvertReport> plan_tensors(const ConversionSource& source, const Mix* mix) {
  ConvertReport report{.architecture = source.architecture, .warnings = source.warnings};
  const MixModel model = mix_model(source.spec);
  bool again = false;
  for (const SourceTensor& tensor : source.tensors) {
    const MixChoice choice = choose(mix, model, tensor);
    const auto bytes = stored_bytes(tensor, choice.type);
    if (!can_encode(choice.type) && choice.type != tensor.source_type()) {
      return fail(ErrorCode::kUnsupported,
                  "The mix {} wants {} for the tensor {}, which Doppler reads but does not write. Choose "
                  "another type; doppler convert --list shows them.",
                  mix->name, dtype_name(choice.type), printable(tensor.name));
    }
    if (!bytes) {
      return fail(ErrorCode::kMismatch, "The tensor {} ({}) cannot be stored as {}. Choose another type.",
                  printable(tensor.name), describe_shape(tensor.shape), dtype_name(choice.type));
    }
    again = again || (is_quantised(tensor.source_type()) && choice.type != tensor.source_type());
    report.tensors.push_back({.name = tensor.name,
                              .shape = tensor.shape,
                              .from = tensor.source_type(),
                              .type = choice.type,
                              .reason = choice.reason,
                              .bytes = *bytes});
    report.parameters += tensor.rows() * tensor.columns();
    report.tensor_bytes += *bytes;
  }
  if (again) {
    report.warnings.push_back(
        "The source is quantised already: what it lost stays lost, and quantising again loses more. Convert "
        "from the original weights where you can.");
  }
  return report;
}

Result<ConvertReport> convert_model(const fs::path& model, const Mix& mix, const fs::path& output,
                                    const ConvertOptions& options) {
  DOPPLER_ASSIGN(const ConversionSource source, open_source(model, {options.with_tokenizer}));
  DOPPLER_TRY(check_output(output, source.files.tensors));
  DOPPLER_ASSIGN(ConvertReport report, plan_tensors(source, &mix));
  DOPPLER_TRY(check_space(output, report.tensor_bytes + kHeaderBytes));

  DOPPLER_ASSIGN(GgufWriter file, GgufWriter::create(output));
  DOPPLER_TRY(write_metadata(source, &mix, file));
  for (const TensorReport& tensor : report.tensors)
    DOPPLER_TRY(file.declare_tensor(tensor.name, tensor.type, tensor.shape));
  DOPPLER_TRY(check_expressible(file, source, report));
  DOPPLER_TRY(file.write_header());

  std::uint64_t done = 0;
  TensorWriter writer(options.threads, options.search, [&](std::uint64_t bytes, std::string_view tensor) {
    done += bytes;
    if (options.on_progress)
      options.on_progress(static_cast<double>(done) / static_cast<double>(report.tensor_bytes), tensor);
    return !options.is_cancelled || !options.is_cancelled();
  });
  const TensorWriter::Sink sink = [&](std::span<const std::byte> bytes) {
    return file.write_tensor_data(bytes);
  };
  for (std::size_t i = 0; i < source.tensors.size(); ++i) {
    TensorReport& tensor = report.tensors[i];
    DOPPLER_ASSIGN(tensor.error, writer.write(source.tensors[i], tensor.type, sink));
  }
  DOPPLER_TRY(file.finish());
  DOPPLER_TRY(check_written(output, source, report));
  return report;
}

}  // namespace doppler::convert
