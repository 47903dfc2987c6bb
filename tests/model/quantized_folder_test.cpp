#include "model/quantized_folder.h"

#include "base/json.h"
#include "testing.h"

namespace doppler {
namespace {

Json with(std::string_view key, Json value) {
  Json config = {{"model_type", "llama"}};
  config[std::string(key)] = std::move(value);
  return config;
}

TEST(QuantizedFolder, PlainAndMxfp4FoldersAreRead) {
  ASSERT_OK(check_quantization({{"model_type", "llama"}}));
  ASSERT_OK(check_quantization(with("quantization_config", nullptr)));
  ASSERT_OK(check_quantization(with("quantization_config", {{"quant_method", "mxfp4"}})));
}

TEST(QuantizedFolder, OthersAreNamedForWhatTheyAre) {
  struct Case {
    Json config;
    const char* says;
  };
  const Case cases[] = {
      {with("quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}), "packed by GPTQ"},
      {with("quantization_config", {{"quant_method", "awq"}}), "packed by AWQ"},
      {with("quantization_config", {{"quant_method", "fp8"}}), "FP8"},
      {with("quantization_config", {{"quant_method", "compressed-tensors"}}), "compressed-tensors"},
      {with("quantization_config", {{"load_in_4bit", true}}), "bitsandbytes"},
      {with("quantization", {{"group_size", 64}, {"bits", 4}}), "MLX"},
      {with("quantization_config", {{"quant_method", "tomorrow's"}}), "tomorrow's"},
      {with("text_config", with("quantization_config", {{"quant_method", "awq"}})), "text_config"},
  };
  for (const Case& c : cases) EXPECT_ERROR(check_quantization(c.config), c.says);
}

TEST(QuantizedFolder, WhatSaysNothingIsCorrupt) {
  EXPECT_ERROR(check_quantization(with("quantization_config", Json::object())), "quant_method");
  EXPECT_ERROR(check_quantization(with("quantization_config", 4)), "instead of an object");
}

}  // namespace
}  // namespace doppler
