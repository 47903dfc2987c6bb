#include "model/quantized_folder.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/text.h"
#include "formats/hf_config.h"

namespace doppler {
namespace {

// quantization_config.quant_method, as transformers' quantisers call themselves.
struct Packing {
  std::string_view method;
  std::string_view is;
  bool readable = false;
};
constexpr std::array kPackings = {
    Packing{"mxfp4", "MXFP4 blocks", true},
    Packing{"fp8", "8-bit floats with a scale for each block (FP8)"},
    Packing{"fbgemm_fp8", "8-bit floats with a scale for each row (FBGEMM FP8)"},
    Packing{"gptq", "whole numbers packed by GPTQ"},
    Packing{"awq", "whole numbers packed by AWQ"},
    Packing{"auto-round", "whole numbers packed by AutoRound"},
    Packing{"compressed-tensors", "tensors packed by compressed-tensors"},
    Packing{"bitsandbytes", "tensors packed by bitsandbytes"},
    Packing{"modelopt", "tensors packed by ModelOpt"},
    Packing{"quark", "tensors packed by Quark"},
    Packing{"torchao", "tensors packed by torchao"},
    Packing{"hqq", "tensors packed by HQQ"},
    Packing{"aqlm", "code books of AQLM"},
    Packing{"quanto", "tensors packed by Quanto"},
    Packing{"eetq", "8-bit whole numbers packed by EETQ"},
    Packing{"bitnet", "weights of three values packed by BitNet"},
};

std::unexpected<Error> refuse(std::string_view where, std::string_view is) {
  return fail(
      ErrorCode::kUnsupported,
      "The weights are {}, says {}; Doppler reads BF16, F16 and F32 folders and GGUF's block types. Take the "
      "model that this one was made of, or a GGUF file of it.",
      is, where);
}

Result<std::string> method_of(const ConfigReader& quantization) {
  DOPPLER_ASSIGN(const std::optional<std::string> method, quantization.get_string("quant_method"));
  if (method) return *method;
  // The first files of bitsandbytes name no method.
  if (quantization.has("load_in_4bit") || quantization.has("load_in_8bit")) return "bitsandbytes";
  if (quantization.has("quant_algo")) return "modelopt";
  return fail(ErrorCode::kCorrupt,
              "The {} has no quant_method, so nothing says how the weights are packed. Download it again.",
              quantization.source());
}

}  // namespace

Status check_quantization(const Json& config) {
  const ConfigReader top(config, "config.json");
  DOPPLER_ASSIGN(const std::optional<ConfigReader> text, top.get_object("text_config"));
  for (const ConfigReader* const reader : {&top, text ? &*text : nullptr}) {
    if (reader == nullptr) continue;
    DOPPLER_ASSIGN(const std::optional<ConfigReader> quantization, reader->get_object("quantization_config"));
    if (quantization) {
      DOPPLER_ASSIGN(const std::string method, method_of(*quantization));
      const auto known = std::ranges::find(kPackings, method, &Packing::method);
      if (known != kPackings.end() && known->readable) continue;
      return refuse(fmt::format("{} = {}", quantization->where("quant_method"), printable(method)),
                    known != kPackings.end() ? known->is : "quantised in a way that it does not know");
    }
    // MLX writes group_size and bits.
    DOPPLER_ASSIGN(const std::optional<ConfigReader> mlx, reader->get_object("quantization"));
    if (mlx && mlx->has("group_size"))
      return refuse(reader->where("quantization"), "groups of whole numbers packed by MLX");
  }
  return {};
}

}  // namespace doppler
