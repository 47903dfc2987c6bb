// Copies of model folders with one thing made wrong, as a converter, a download or a person makes it wrong.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/json.h"
#include "diagnosis/doctor/doctor.h"
#include "formats/safetensors.h"
#include "tensors.h"
#include "testing.h"

namespace doppler::testing {

// A tensor as it lies in a file, to be changed.
struct RawTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
  std::size_t rows() const { return shape.size() < 2 ? 1 : shape[0]; }
  std::size_t row_bytes() const { return bytes.size() / rows(); }

  // Row r becomes what row source(r) was.
  void permute(const std::function<std::size_t(std::size_t)>& source) {
    const std::vector<std::byte> was = bytes;
    for (std::size_t r = 0; r < rows(); ++r)
      std::memcpy(&bytes[r * row_bytes()], &was[source(r) * row_bytes()], row_bytes());
  }
  // [rows, cols] read as [cols, rows]; 16-bit types.
  void transpose() {
    const std::vector<std::byte> was = bytes;
    const std::size_t n = rows(), m = shape[1];
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t c = 0; c < m; ++c) std::memcpy(&bytes[(r * m + c) * 2], &was[(c * n + r) * 2], 2);
    }
  }
  void zero_from(double share) {
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(bytes.size()) * share),
              bytes.end(), std::byte{0});
  }
  // Every value; BF16.
  void each(const std::function<float(float)>& change) {
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
      std::uint16_t bits;
      std::memcpy(&bits, &bytes[i], 2);
      bits = f32_to_bf16(change(bf16_to_f32(bits)));
      std::memcpy(&bytes[i], &bits, 2);
    }
  }
};
using RawTensors = std::map<std::string, RawTensor>;

inline std::filesystem::path patient_source(const std::string& name) {
  return name == "demo" ? source_path("demo") : data_path("models") / name;
}

// With the backend that always loads, which the doctor does not examine.
inline Result<Loaded> load_patient(const std::filesystem::path& model,
                                   std::uint64_t context = LoadOptions().context) {
  LoadOptions options;
  options.backend = "reference";
  options.context = context;
  return load_all(model, options);
}

// The folder of a patient, in a place of its own.
class PatientFolder {
 public:
  explicit PatientFolder(const std::string& model) : source_(patient_source(model)) {
    for (const auto& entry : std::filesystem::directory_iterator(source_)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && name != "reference.safetensors")
        std::filesystem::copy_file(entry.path(), folder_ / name);
    }
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path recording() const { return source_ / "reference.safetensors"; }

  void change_json(const std::string& file, const std::function<void(Json&)>& change) {
    auto json = parse_json(read_file(folder_ / file), file);
    ASSERT_OK(json);
    change(*json);
    write_file(folder_ / file, json->dump());
  }
  void change_tensors(const std::function<void(RawTensors&)>& change) {
    RawTensors tensors;
    {
      auto store = open_safetensors(source_ / "model.safetensors");
      ASSERT_OK(store);
      for (const auto& [name, tensor] : store->tensors())
        tensors[name] = {tensor.dtype, tensor.shape, {tensor.data.begin(), tensor.data.end()}};
    }
    change(tensors);
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : tensors)
      views.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
    ASSERT_OK(testing::write_tensors(folder_ / "model.safetensors", views));
  }
  void truncate(const std::string& file, double share) {
    const std::string bytes = read_file(folder_ / file);
    write_file(folder_ / file,
               bytes.substr(0, static_cast<std::size_t>(static_cast<double>(bytes.size()) * share)));
  }

 private:
  std::filesystem::path source_;
  TempDir folder_;
};

// As the program does it: load, or say why not, then examine.
inline Result<diagnosis::Diagnosis> examine(const std::filesystem::path& model,
                                            const std::filesystem::path& recording,
                                            const std::string& backend = "cpu") {
  LoadOptions load;
  load.backend = "reference";
  const auto loaded = load_all(model, load);
  if (!loaded) return diagnosis::diagnose_refusal(model, loaded.error());
  diagnosis::DoctorOptions options;
  std::optional<diagnosis::Recording> reference;
  if (!recording.empty()) {
    DOPPLER_ASSIGN(reference, diagnosis::open_recording(recording));
    options.reference = &*reference, options.seconds = 600;
  }
  diagnosis::Subject subject = diagnosis::subject_of(*loaded, backend);
  subject.options.threads = 1;
  return diagnosis::diagnose(subject, options);
}

inline std::string all_findings(const diagnosis::Diagnosis& diagnosis) {
  std::string text;
  for (const diagnosis::Finding& finding : diagnosis.findings)
    text += finding.stage + " " + std::to_string(finding.layer) + " " + describe(finding) + "\n";
  return text;
}

}  // namespace doppler::testing
