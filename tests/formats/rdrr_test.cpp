// RDRR packages: each field that lies is found, and tensors lie in any layout and any number of shards.
#include "formats/rdrr.h"

#include <cstring>

#include "base/files.h"
#include "base/json.h"
#include "formats/model_files.h"
#include "formats/rdrr_writer.h"
#include "quant/encode.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::TempDir;
using testing::write_file;

constexpr std::string_view kHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

// Two shards of 100 and 60 bytes; "wide" begins in the first and ends in the second.
Json small_manifest() {
  return Json::parse(R"({
    "version": 1, "modelId": "tiny", "modelType": "transformer", "quantization": "F32", "hashAlgorithm": "sha256",
    "architecture": {"numLayers": 1, "hiddenSize": 4, "intermediateSize": 8, "numAttentionHeads": 1,
                     "numKeyValueHeads": 1, "headDim": 4, "vocabSize": 3, "maxSeqLen": 16},
    "eos_token_id": [1, 2],
    "inference": {"normalization": {"postFeedforwardNorm": false, "preFeedforwardNorm": false,
                                    "postAttentionNorm": false}},
    "shards": [
      {"index": 0, "filename": "shard_00000.bin", "size": 100, "offset": 0,
       "hash": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
      {"index": 1, "filename": "shard_00001.bin", "size": 60, "offset": 100,
       "hash": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}],
    "totalSize": 160, "tensorCount": 3,
    "tensors": {
      "first": {"shard": 0, "offset": 0, "size": 48, "shape": [3, 4], "dtype": "F32", "role": "embedding",
                "group": "embed"},
      "wide": {"spans": [{"shardIndex": 0, "offset": 52, "size": 48}, {"shardIndex": 1, "offset": 0, "size": 16}],
               "size": 64, "shape": [4, 4], "dtype": "F32", "role": "matmul", "group": "layer.0"},
      "norm": {"shard": 1, "offset": 16, "size": 16, "shape": [4], "dtype": "F32", "role": "norm",
               "group": "layer.0"}},
    "groups": {
      "embed": {"type": "embed", "shards": [0], "tensors": ["first"]},
      "layer.0": {"type": "layer", "shards": [0, 1], "tensors": ["wide", "norm"],
                  "hash": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}},
    "files": [{"filename": "tokenizer.json", "size": 2,
               "hash": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}]})");
}

Result<RdrrManifest> parse(const Json& manifest) {
  return parse_rdrr_manifest(dump_json(manifest), "");
}

TEST(RdrrManifest, IsRead) {
  ASSERT_OK_AND_ASSIGN(const RdrrManifest manifest, parse(small_manifest()));
  EXPECT_EQ(manifest.model_id, "tiny");
  EXPECT_EQ(manifest.total_size, 160u);
  ASSERT_EQ(manifest.tensors.size(), 3u);
  EXPECT_EQ(manifest.tensors[2].name, "wide");
  EXPECT_EQ(manifest.tensors[2].spans.size(), 2u);
  EXPECT_EQ(manifest.groups[1].shards, (std::vector<std::size_t>{0, 1}));
}

// A value that is put in, or (null) taken out, and what the error says of it.
struct Lie {
  const char* pointer;
  const char* value;  // JSON; empty: the key is taken out
  const char* says;
};
const Lie kLies[] = {
    {"/version", "", "version is missing"},
    {"/version", "\"new\"", "version is \"new\" instead of a number"},
    {"/version", "2", "the version 2; Doppler reads RDRR up to version 1"},
    {"/version", "-1", "instead of a number"},
    {"/modelId", "", "modelId is missing"},
    {"/modelType", "7", "modelType is 7"},
    {"/quantization", "\"\"", "quantization is missing"},
    {"/inference", "", "inference is missing"},
    {"/hashAlgorithm", "", "hashAlgorithm is missing"},
    {"/hashAlgorithm", "\"md5\"", "md5, a hash that Doppler does not know"},
    {"/architecture", "", "architecture is missing"},
    {"/architecture/hiddenSize", "", "hiddenSize is missing"},
    {"/architecture/hiddenSize", "0", "hiddenSize is 0"},
    {"/architecture/vocabSize", "-5", "vocabSize is -5"},
    {"/architecture/numLayers", "1e300", "numLayers is 1e+300"},
    {"/architecture/maxSeqLen", "99999999999", "maxSeqLen is 99999999999"},
    {"/eos_token_id", "", "eos_token_id is missing"},
    {"/eos_token_id", "[]", "eos_token_id is missing"},
    {"/eos_token_id", "\"</s>\"", "eos_token_id is"},
    {"/eos_token_id", "[1, -2]", "eos_token_id[1] is -2"},
    {"/adapterType", "\"lora\"", "an adapter"},
    {"/weightsRef", "{}", "borrows the shards of another package"},
    {"/metadata", "{\"sourceRuntime\": {\"mode\": \"direct-source\"}}", "original files"},
    {"/shards", "[]", "shards is missing"},
    {"/shards", "{}", "shards is object instead of a list"},
    {"/shards/1/index", "0", "stands at place 1"},
    {"/shards/1/filename", "\"../x\"", "not the name of a file beside it"},
    {"/shards/1/filename", "\"shard_00000.bin\"", "is two shards"},
    {"/shards/1/filename", "", "fileName is missing"},
    {"/shards/1/size", "0", "size is 0"},
    {"/shards/1/size", "61", "totalSize is 160, but the sizes of its 2 shards add up to 161"},
    {"/shards/1/size", "18446744073709551615", "more than 2^64 bytes"},
    {"/shards/1/offset", "99", "offset is 99, but the shards before it end at byte 100"},
    {"/shards/1/hash", "\"0123\"", "(4 characters) instead of 64"},
    {"/shards/1/hash", "\"g123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"",
     "instead of 64"},
    {"/shards/1/hash", "", "hash is missing"},
    {"/shards/1/hashAlgorithm", "\"crc\"", "crc, a hash"},
    {"/totalSize", "", "totalSize is missing"},
    {"/totalSize", "161", "totalSize is 161"},
    {"/tensors", "", "says nowhere where its tensors lie"},
    {"/tensorCount", "4", "tensorCount is 4, but there are 3"},
    {"/tensors/first/dtype", "\"Q9\"", "Q9, a type that Doppler does not read"},
    {"/tensors/first/dtype", "\"F16\"",
     "size is 48, but the tensor's type F16 and shape 3 x 4 take 24 bytes"},
    {"/tensors/first/shape", "[3, 5]", "take 60 bytes"},
    {"/tensors/first/shape", "[4294967296, 4294967296, 4]", "more than 2^64 bytes"},
    {"/tensors/first/shape", "[0, 4]", "size is 48"},
    {"/tensors/first/shape", "", "shape is missing"},
    {"/tensors/first/size", "", "size is missing"},
    {"/tensors/first/role", "", "role is missing"},
    {"/tensors/first/layout", "\"spiral\"", "spiral, a layout that Doppler does not know"},
    {"/tensors/first/shard", "2", "shard is 2, but there are 2 shards"},
    {"/tensors/first/offset", "53", "go beyond the 100 of the shard"},
    {"/tensors/first/offset", "18446744073709551600", "go beyond"},
    {"/tensors/first/offset", "8", "first and wide overlap at byte 52 of the shard shard_00000.bin"},
    {"/tensors/wide/spans/1/size", "15", "hold 63 bytes, but the tensor takes 64"},
    {"/tensors/wide/spans/1/shardIndex", "9", "shardIndex is 9"},
    {"/tensors/norm/offset", "12", "wide and norm overlap"},
    {"/tensors/norm/group", "\"embed\"", "but says that it is in embed"},
    {"/groups/embed/tensors", "[\"frist\"]", "names frist, which is no tensor"},
    {"/groups/embed/tensors", "[\"first\", \"first\"]", "in two groups"},
    {"/groups/embed/tensors", "[]", "list "},
    {"/groups/embed/shards", "[0, 1]", "is not that of the shards"},
    {"/groups/embed/shards", "", "shards is missing"},
    {"/groups/layer.0/hash", "\"12\"", "instead of 64"},
    {"/groups/embed", "", "says that it is in the group embed, which does not name it"},
    {"/inference/normalization/postFeedforwardNorm", "true",
     "there is no tensor named *.post_feedforward_layernorm"},
    {"/files/0/filename", "\"a/b\"", "not the name of a file"},
    {"/files/0/hash", "\"\"", "hash is missing"},
    {"/ggufMetadata", "\"..\"", "not the name of a file"},
    {"/tokenizer", "{\"file\": \"/etc/passwd\"}", "not the name of a file"},
};

TEST(RdrrManifest, EachLieIsFoundAndNamed) {
  for (const Lie& lie : kLies) {
    Json manifest = small_manifest();
    const Json::json_pointer pointer(lie.pointer);
    if (*lie.value == '\0')
      manifest[pointer.parent_pointer()].erase(pointer.back());
    else
      manifest[pointer] = Json::parse(lie.value);
    const auto read = parse(manifest);
    ASSERT_FALSE(read.has_value()) << lie.pointer << " " << lie.value;
    EXPECT_NE(read.error().message.find(lie.says), std::string::npos)
        << lie.pointer << " " << lie.value << ": " << read.error().message;
    EXPECT_TRUE(read.error().message.ends_with('.')) << read.error().message;
  }
}

TEST(RdrrManifest, TheSameKeyTwiceIsAnError) {
  std::string text = dump_json(small_manifest());
  const std::size_t at = text.find("\"wide\":");
  text.replace(at, 7, "\"norm\":");
  EXPECT_ERROR(parse_rdrr_manifest(text, ""), "has the key norm twice");
}

TEST(RdrrManifest, TensorsThatNormFlagsDenyAreFound) {
  Json manifest = small_manifest();
  const Json norm = manifest["tensors"]["norm"];
  manifest["tensors"].erase("norm");
  manifest["tensors"]["model.layers.0.post_feedforward_layernorm.weight"] = norm;
  manifest["groups"]["layer.0"]["tensors"] = {"wide", "model.layers.0.post_feedforward_layernorm.weight"};
  EXPECT_ERROR(parse(manifest), "postFeedforwardNorm is false, but there are tensors named");
}

TEST(RdrrManifest, OldSpellingsAreRead) {
  Json manifest = small_manifest();
  manifest["version"] = "0.9";
  manifest["architecture"] = "LlamaForCausalLM";
  for (const char* key : {"inference", "eos_token_id", "hashAlgorithm", "groups"}) manifest.erase(key);
  for (Json& shard : manifest["shards"]) {
    shard["fileName"] = shard["filename"];
    shard["blake3"] = shard["hash"];
    for (const char* key : {"filename", "hash", "offset", "index"}) shard.erase(key);
  }
  for (Json& tensor : manifest["tensors"]) tensor.erase("role"), tensor.erase("group");
  ASSERT_OK_AND_ASSIGN(const RdrrManifest read, parse(manifest));
  EXPECT_EQ(read.version, 0);
  EXPECT_EQ(read.shards[1].offset, 100u);
  EXPECT_EQ(read.shards[1].algorithm, RdrrHash::kBlake3);
  EXPECT_EQ(read.shards[1].hash, kHash);
  manifest["version"] = "1.0.0";  // then roles, eos and the rest are asked for
  EXPECT_ERROR(parse(manifest), "inference is missing");
}

// What other programs write of a decoder, in config.json's words.
TEST(RdrrManifest, DescribesADecoderInTheWordsOfConfigJson) {
  Json manifest = small_manifest();
  manifest["architecture"]["numLayers"] = 4;
  manifest["architecture"]["ropeTheta"] = 5;
  manifest["architecture"]["linearNumKeyHeads"] = 16;
  manifest["moeConfig"] = {{"numExperts", 8}, {"numExpertsPerToken", 2}};
  manifest["inference"] = Json::parse(R"({
    "attention": {"queryPreAttnScalar": 256, "attnLogitSoftcapping": null, "slidingWindow": 512},
    "normalization": {"rmsNormEps": 1e-6, "rmsNormWeightOffset": true},
    "ffn": {"activation": "geglu"},
    "rope": {"ropeTheta": 1000000, "ropeLocalTheta": 10000, "ropeScalingType": "yarn", "ropeScalingFactor": 4,
             "yarnBetaFast": 32, "yarnBetaSlow": 1, "yarnOriginalMaxPos": 8192},
    "output": {"tieWordEmbeddings": true, "scaleEmbeddings": true, "finalLogitSoftcapping": 30},
    "layerPattern": {"type": "every_n", "period": 2, "offset": 1}})");
  ASSERT_OK_AND_ASSIGN(const RdrrManifest read, parse(manifest));
  const Json config = rdrr_config(read);
  EXPECT_EQ(config["model_type"], "transformer");
  EXPECT_EQ(config["num_hidden_layers"], 4);
  EXPECT_EQ(config["linear_num_key_heads"], 16);
  EXPECT_EQ(config["num_experts_per_tok"], 2);
  EXPECT_EQ(config["query_pre_attn_scalar"], 256);
  EXPECT_FALSE(config.contains("attn_logit_softcapping"));
  EXPECT_EQ(config["final_logit_softcapping"], 30);
  EXPECT_EQ(config["hidden_act"], "gelu_pytorch_tanh");
  EXPECT_EQ(config["norm_weight_offset"], 1);
  EXPECT_EQ(config["embedding_multiplier"], 2.0);  // the root of 4
  EXPECT_EQ(config["layer_types"],
            Json({"sliding_attention", "full_attention", "sliding_attention", "full_attention"}));
  const Json& full = config["rope_parameters"]["full_attention"];
  EXPECT_EQ(full["rope_type"], "yarn");
  EXPECT_EQ(full["factor"], 4);
  EXPECT_EQ(full["original_max_position_embeddings"], 8192);
  EXPECT_EQ(config["rope_parameters"]["sliding_attention"]["rope_theta"], 10000);
  EXPECT_EQ(config["rope_parameters"]["sliding_attention"]["rope_type"], "default");

  // Gemma 2's pattern: odd layers attend fully.
  manifest["inference"]["layerPattern"] = {{"type", "alternating"}, {"globalPattern", "even"}};
  manifest["inference"]["rope"] = {{"ropeScalingType", "longrope"}, {"longropeShortFactor", {1, 2}}};
  ASSERT_OK_AND_ASSIGN(const RdrrManifest other, parse(manifest));
  const Json again = rdrr_config(other);
  EXPECT_EQ(again["layer_types"][0], "full_attention");
  EXPECT_EQ(again["layer_types"][1], "sliding_attention");
  EXPECT_EQ(again["rope_parameters"]["rope_theta"], 5);
  EXPECT_EQ(again["rope_parameters"]["short_factor"], Json({1, 2}));

  // Numbers that no model has lead to no list of layers.
  for (const char* period : {"0", "-1", "1e300", "0.5"}) {
    manifest["inference"]["layerPattern"] = {{"type", "every_n"}, {"period", Json::parse(period)}};
    ASSERT_OK_AND_ASSIGN(const RdrrManifest odd, parse(manifest));
    EXPECT_FALSE(rdrr_config(odd).contains("layer_types")) << period;
  }
}

// ---- folders

void write_shards(const TempDir& dir) {
  std::string first(100, 'a'), second(60, 'b');
  for (std::size_t i = 0; i < 12; ++i) {
    const float value = static_cast<float>(i);
    std::memcpy(first.data() + 4 * i, &value, 4);
    std::memcpy(first.data() + 52 + 4 * i, &value, 4);
  }
  write_file(dir / "shard_00000.bin", first);
  write_file(dir / "shard_00001.bin", second);
}

TEST(RdrrFolder, TensorsOverSeveralShardsAreWhole) {
  const TempDir dir;
  write_shards(dir);
  Json manifest = small_manifest();
  const Json tensors = manifest["tensors"];
  manifest.erase("tensors");
  manifest["tensorsFile"] = "tensors.json";
  write_file(dir / "manifest.json", dump_json(manifest));
  write_file(dir / "tensors.json", dump_json(tensors));
  ASSERT_OK_AND_ASSIGN(const RdrrPackage package, open_rdrr(dir.path()));
  const TensorView& wide = *package.tensors.find("wide");
  std::vector<float> values(16);
  ASSERT_OK(decode_f32(wide, 0, values));
  EXPECT_EQ(values[11], 11.0F);
  EXPECT_EQ(std::memcmp(wide.data.data() + 48, "bbbbbbbbbbbbbbbb", 16), 0);
  EXPECT_TRUE(package.tensors.find("first")->mapped);
  EXPECT_FALSE(wide.mapped);

  // Its folder and its manifest are model paths.
  ASSERT_OK(open_model_files(dir.path()));
  ASSERT_OK_AND_ASSIGN(const ModelFiles files, open_model_files(dir / "manifest.json"));
  EXPECT_EQ((*files.config)["hidden_size"], 4);
  EXPECT_EQ((**files.generation_config)["eos_token_id"], Json::parse("[1, 2]"));

  std::filesystem::remove(dir / "tensors.json");
  EXPECT_ERROR(open_rdrr(dir.path()), "tensors.json");
  write_file(dir / "tensors.json", dump_json(tensors));
  write_file(dir / "shard_00001.bin", "short");
  EXPECT_ERROR(open_rdrr(dir.path()), "shard_00001.bin holds 5 bytes", "says 60", "Download it again");
  std::filesystem::remove(dir / "shard_00001.bin");
  EXPECT_ERROR(open_rdrr(dir.path()), "shard_00001.bin", "is missing. Download it.");
  write_file(dir / "manifest.json", "{");
  EXPECT_ERROR(open_model_files(dir.path()), "manifest.json");
}

TEST(RdrrFolder, HashesAreComparedWhenAsked) {
  for (const RdrrHash hash : {RdrrHash::kSha256, RdrrHash::kBlake3}) {
    const TempDir dir;
    RdrrWriter writer(dir.path(), hash, 100);
    const std::vector<std::byte> bytes(160, std::byte{7});
    ASSERT_OK(writer.begin_tensor("a", DType::kU8, {96}, "other", "embed"));
    ASSERT_OK(writer.write(std::span(bytes).first(96)));
    ASSERT_OK(writer.begin_tensor("b", DType::kU8, {160}, "other", "layer.0"));
    ASSERT_OK(writer.write(std::span(bytes).first(50)));
    ASSERT_OK(writer.write(std::span(bytes).subspan(50)));
    write_file(dir / "tokenizer.json", "{}");
    ASSERT_OK(writer.add_file("tokenizer.json"));
    Json head = small_manifest();
    for (const char* key : {"shards", "tensors", "groups", "files"}) head.erase(key);
    ASSERT_OK(writer.finish(head));

    const auto check = [&] { return check_rdrr(dir.path(), [](double, std::string_view) { return true; }); };
    ASSERT_OK_AND_ASSIGN(const RdrrCheck good, check());
    EXPECT_TRUE(good.problems.empty()) << good.problems[0].sentence;
    EXPECT_EQ(good.shards, 3u);
    EXPECT_EQ(good.groups, 2u);
    EXPECT_EQ(good.files, 1u);
    EXPECT_EQ(good.bytes, 258u);

    ASSERT_OK_AND_ASSIGN(const std::string text, read_text_file(dir / "manifest.json", 1 << 20));
    Json manifest = Json::parse(text);
    const std::string own = manifest["groups"]["embed"]["hash"];
    manifest["groups"]["embed"]["hash"] = kHash;
    write_file(dir / "manifest.json", dump_json(manifest));
    ASSERT_OK_AND_ASSIGN(const RdrrCheck group, check());
    ASSERT_EQ(group.problems.size(), 1u);
    EXPECT_NE(group.problems[0].sentence.find("The tensors of the group embed have the"), std::string::npos);

    manifest["groups"]["embed"]["hash"] = own;
    write_file(dir / "manifest.json", dump_json(manifest));
    write_file(dir / "shard_00001.bin", std::string(100, 'x'));
    write_file(dir / "tokenizer.json", "[]");
    ASSERT_OK_AND_ASSIGN(const RdrrCheck bad, check());
    ASSERT_EQ(bad.problems.size(), 2u);
    EXPECT_EQ(bad.problems[0].file, "shard_00001.bin");
    EXPECT_NE(bad.problems[0].sentence.find("Download it again"), std::string::npos);
    EXPECT_EQ(bad.problems[1].file, "tokenizer.json");
    EXPECT_ERROR(check_rdrr(dir.path(), [](double, std::string_view) { return false; }), "interrupted");
  }
}

TEST(RdrrWriter, RefusesWhatDoesNotFitTogether) {
  const TempDir dir;
  RdrrWriter writer(dir.path(), RdrrHash::kSha256, 100);
  const std::vector<std::byte> bytes(8);
  ASSERT_OK(writer.begin_tensor("a", DType::kU8, {8}, "other", "embed"));
  EXPECT_ERROR(writer.begin_tensor("b", DType::kU8, {8}, "other", "embed"), "lacks 8 bytes");
  ASSERT_OK(writer.write(bytes));
  EXPECT_ERROR(writer.write(bytes), "8 bytes too many");
  EXPECT_ERROR(writer.begin_tensor("a", DType::kU8, {8}, "other", "embed"), "comes twice");
  ASSERT_OK(writer.begin_tensor("c", DType::kU8, {8}, "other", "head"));
  ASSERT_OK(writer.write(bytes));
  EXPECT_ERROR(writer.begin_tensor("d", DType::kU8, {8}, "other", "embed"), "The group embed was left");
}

// ---- layouts

std::vector<float> some_values(std::size_t count) {
  std::vector<float> values(count);
  std::uint32_t state = 1;
  for (float& value : values)
    value = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
  return values;
}

// Blocks of lines of so many values, the last one of each line filled up with zeros.
std::vector<std::byte> blocks_of(DType type, std::span<const float> values, std::size_t length) {
  const std::size_t block = dtype_info(type).block_values, stride = (length + block - 1) / block * block;
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < values.size(); at += length) {
    std::vector<float> line(stride);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), length, line.begin());
    std::vector<std::byte> encoded(stride / block * dtype_info(type).block_bits / 8);
    EXPECT_TRUE(encode(type, line, encoded).has_value());
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  return bytes;
}

// The tensor as it is computed with, and what its blocks decode to.
struct Relaid {
  DType type;
  std::vector<float> is, was;
};
Relaid relay(DType type, const Shape& shape, RdrrLayout layout, std::span<const std::byte> bytes) {
  TensorStore store;
  const RdrrTensor tensor{.name = "t", .dtype = type, .shape = shape, .layout = layout, .size = bytes.size()};
  EXPECT_EQ(rdrr_bytes(type, shape, layout), bytes.size());
  const auto note = add_rdrr_tensor(tensor, bytes, store);
  EXPECT_TRUE(note.has_value());
  Relaid out{.type = store.find("t")->dtype, .is = std::vector<float>(shape[0] * shape[1]), .was = {}};
  EXPECT_TRUE(decode_f32(*store.find("t"), 0, out.is).has_value());
  const DTypeInfo& info = dtype_info(type);
  std::vector<float> all(bytes.size() / (info.block_bits / 8) * info.block_values);
  EXPECT_TRUE(decode_f32(TensorView{"t", type, {all.size()}, bytes}, 0, all).has_value());
  const std::size_t lines = layout == RdrrLayout::kRows      ? shape[0]
                            : layout == RdrrLayout::kColumns ? shape[1]
                                                             : 1;
  const std::size_t length = out.is.size() / lines, stride = all.size() / lines;
  out.was.resize(out.is.size());
  for (std::size_t i = 0; i < out.was.size(); ++i) {
    const std::size_t row = i / shape[1], column = i % shape[1];
    const std::size_t at = layout == RdrrLayout::kColumns ? column * length + row : i;
    out.was[i] = all[at / length * stride + at % length];
  }
  return out;
}

void expect_near(const Relaid& relaid, double share) {
  float largest = 0;
  for (const float value : relaid.was) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < relaid.is.size(); ++i)
    ASSERT_NEAR(relaid.is[i], relaid.was[i], share * largest) << i;
}

// 2^-11 of a scale and of a minimum, times codes up to 15.
constexpr double kHalves = 1e-3;

TEST(RdrrLayout, RowsThatAreNoWholeBlocksBecomeQ4_1) {
  const std::vector<float> values = some_values(5 * 288);
  const Relaid rows = relay(DType::kQ4_K, {5, 288}, RdrrLayout::kRows, blocks_of(DType::kQ4_K, values, 288));
  EXPECT_EQ(rows.type, DType::kQ4_1);
  expect_near(rows, kHalves);
  const Relaid packed =
      relay(DType::kQ4_K, {5, 288}, RdrrLayout::kPacked, blocks_of(DType::kQ4_K, values, values.size()));
  EXPECT_EQ(packed.type, DType::kQ4_1);
  expect_near(packed, kHalves);
}

TEST(RdrrLayout, OtherOddRowsBecomeFloats) {
  const std::vector<float> values = some_values(5 * 40);
  for (const DType type : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
    const Relaid rows = relay(type, {5, 40}, RdrrLayout::kRows, blocks_of(type, values, 40));
    EXPECT_EQ(rows.type, DType::kF32);
    expect_near(rows, 0);
    expect_near(relay(type, {5, 40}, RdrrLayout::kPacked, blocks_of(type, values, values.size())), 0);
  }
}

TEST(RdrrLayout, ColumnsBecomeRows) {
  const std::vector<float> values = some_values(300 * 6);
  const Relaid blocks =
      relay(DType::kQ4_K, {300, 6}, RdrrLayout::kColumns, blocks_of(DType::kQ4_K, values, 300));
  EXPECT_EQ(blocks.type, DType::kF16);
  expect_near(blocks, kHalves);
  const Relaid floats = relay(DType::kF32, {300, 6}, RdrrLayout::kColumns, std::as_bytes(std::span(values)));
  EXPECT_EQ(floats.type, DType::kF32);
  EXPECT_EQ(floats.is[1], values[300]);
  EXPECT_EQ(floats.is[6], values[1]);
}

TEST(RdrrLayout, SizesOverflowToNothing) {
  constexpr std::uint64_t kBig = std::uint64_t{1} << 40;
  EXPECT_EQ(rdrr_bytes(DType::kF32, {kBig, kBig}, RdrrLayout::kRows), std::nullopt);
  EXPECT_EQ(rdrr_bytes(DType::kQ4_K, {kBig, kBig / 2, 1}, RdrrLayout::kRows), std::nullopt);
  EXPECT_EQ(rdrr_bytes(DType::kQ4_K, {std::uint64_t{1} << 58, 1}, RdrrLayout::kRows), std::nullopt);
  EXPECT_EQ(rdrr_bytes(DType::kQ4_K, {1024, 1152}, RdrrLayout::kRows), 1024u * 5 * 144);
  EXPECT_EQ(rdrr_bytes(DType::kQ4_K, {1152, 6912}, RdrrLayout::kRows), 4478976u);
}

}  // namespace
}  // namespace doppler
