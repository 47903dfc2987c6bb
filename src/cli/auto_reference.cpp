#include "cli/auto_reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/files.h"
#include "base/screen.h"
#include "base/sha256.h"
#include "base/text.h"
#include "model/fingerprint.h"
#include "system/files.h"
#include "system/process.h"

namespace doppler::cli {
namespace {

namespace fs = std::filesystem;

std::string python() {
  return system::environment_variable("DOPPLER_PYTHON").value_or("python3");
}

// How a person makes the recording, on this machine or on another.
std::string by_hand(const std::string& model, const fs::path& tool, const RecordedPrompt& prompt) {
  return fmt::format(
      "Where python3 has torch, transformers, numpy and safetensors, run: python3 {} {} {} --decode {} -o "
      "FILE, and give "
      "--reference FILE.",
      tool.string(), printable(model, 200),
      prompt.text.empty() ? fmt::format("--prompt-ids {}", fmt::join(prompt.ids, ","))
                          : fmt::format("--prompt \"{}\"", printable(prompt.text)),
      prompt.steps);
}

// The tools as files, which python3 needs. Written anew only where they differ from those of this Doppler.
Result<fs::path> place_tools(const fs::path& cache) {
  const fs::path folder = cache / "tools";
  if (const auto error = system::create_folders(folder); error)
    return fail(ErrorCode::kIo, "The folder {} cannot be made: {}.", printable_path(folder), error.message());
  for (const ToolFile& tool : tool_files()) {
    const fs::path path = folder / tool.name;
    const auto old = read_text_file(path, std::uint64_t{1} << 20);
    if (old && *old == tool.text) continue;
    DOPPLER_ASSIGN(OutputFile file, OutputFile::create(path));
    DOPPLER_TRY(file.write(tool.text));
    DOPPLER_TRY(file.commit());
  }
  return folder / "hf_record.py";
}

// Differs when the weights, the configuration, the prompt or the tool differ.
std::string key_of(const fs::path& folder, const Model& model, const RecordedPrompt& prompt) {
  std::string all = fmt::format("{:016x} {} {} {}", fingerprint_of(model.weights).value(), prompt.text,
                                fmt::join(prompt.ids, ","), prompt.steps);
  all += read_text_file(folder / "config.json", std::uint64_t{16} << 20).value_or("");
  for (const ToolFile& tool : tool_files()) all += tool.text;
  return sha256_hex(std::as_bytes(std::span(all.data(), all.size()))).substr(0, 32);
}

Status record_with_transformers(const fs::path& folder, const fs::path& tool, const RecordedPrompt& prompt,
                                const fs::path& output) {
  fs::path partial = output;
  partial += fmt::format(".partial-{}", system::process_id());
  std::vector<std::string> words = {python(), tool.string(), folder.string()};
  if (prompt.text.empty())
    words.insert(words.end(), {"--prompt-ids", fmt::format("{}", fmt::join(prompt.ids, ","))});
  else
    words.insert(words.end(), {"--prompt", prompt.text});
  words.insert(words.end(), {"--decode", std::to_string(prompt.steps), "-o", partial.string()});
  const auto status = system::run_program(words, /*silent=*/false);
  if (!status || *status != 0) {
    static_cast<void>(system::remove_file(partial));
    return fail(
        ErrorCode::kIo, "transformers did not record the model: {}. What it says stands above.",
        status ? fmt::format("{} ended with status {}", python(), *status) : status.error().message());
  }
  if (const auto error = system::replace_file(partial, output); error)
    return fail(ErrorCode::kIo, "The recording {} cannot be kept: {}.", printable_path(output),
                error.message());
  return {};
}

}  // namespace

RecordedPrompt usual_prompt(const Model& model, bool has_tokenizer) {
  // Doppler's shortest benchmark prompt, whose values people know.
  if (has_tokenizer) return {.text = "The color of the sky is", .ids = {}};
  RecordedPrompt prompt;
  const ModelSpec& spec = model.spec;
  // BOS, then some that lie far apart.
  if (spec.bos_id >= 0) prompt.ids.push_back(spec.bos_id);
  for (std::uint32_t i = 1; i <= 12; ++i)
    prompt.ids.push_back(static_cast<TokenId>(std::uint64_t{spec.vocab_size} * ((i * 5) % 13) / 13));
  return prompt;
}

Result<std::string> find_reference(const std::string& named, const std::string& model_path,
                                   const Model& model, const RecordedPrompt& prompt) {
  if (named != "auto") return named;
  const fs::path folder = model.files.folder;
  if (model.files.gguf || !system::is_file(folder / "config.json")) {
    return fail(ErrorCode::kUnsupported,
                "The model {} is no Hugging Face folder, and transformers records nothing else. Record the "
                "folder that it "
                "was made from, and give --reference FILE.",
                printable(model_path, 200));
  }
  const fs::path cache = system::cache_folder();
  if (cache.empty())
    return fail(ErrorCode::kNotFound,
                "There is no folder for caches to keep the recording in. Set XDG_CACHE_HOME.");
  const fs::path recordings = cache / "doppler" / "recordings";
  const fs::path output = recordings / (key_of(folder, model, prompt) + ".safetensors");
  if (system::is_file(output)) return output.string();
  DOPPLER_ASSIGN(const fs::path tool, place_tools(cache / "doppler"));
  const auto able =
      system::run_program({python(), "-c", "import numpy, safetensors, torch, transformers"}, true);
  if (!able || *able != 0) {
    return fail(ErrorCode::kNotFound, "The recording cannot be made here, because {}. {}",
                !able ? fmt::format("there is no {}: {}", python(), able.error().message())
                      : fmt::format("{} lacks torch, transformers, numpy or safetensors", python()),
                by_hand(folder.string(), tool, prompt));
  }
  if (const auto error = system::create_folders(recordings); error)
    return fail(ErrorCode::kIo, "The folder {} cannot be made: {}.", printable_path(recordings),
                error.message());
  say(Said::kNote, "transformers records {}, once; this takes as long as it takes to load it in float32",
      printable(model_path, 200));
  DOPPLER_TRY(record_with_transformers(folder, tool, prompt, output));
  say(Said::kNote, "the recording is kept: {}", output.string());
  return output.string();
}

}  // namespace doppler::cli
