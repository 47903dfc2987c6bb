#include "tokenizer/gguf_pre_tokenizers.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "tokenizer/pre_tokenizer.h"

namespace doppler::tokenizer {
namespace {

// The patterns are those of the tokenizer.json files that llama.cpp's converter recognises under these names,
// written as one alternative a line.
constexpr std::string_view kLlama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                                     R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                                     R"(|\p{N}{1,3})"
                                     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Spaces in blocks of powers of two.
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
    R"(|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S))"
    R"(|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";

// Llama 3's with numbers of any length, behind a step of its own that cuts them.
constexpr std::string_view kMiniCpm5 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                                       R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                                       R"(|\p{N}+)"
                                       R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                       R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                                    R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                                    R"(|\p{N})"
                                    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Qwen 2's where combining marks belong to their letters.
constexpr std::string_view kQwen35 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                                     R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)"
                                     R"(|\p{N})"
                                     R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
                                     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Qwen 2's without the English contractions: Turkish suffixes stay with their apostrophes.
constexpr std::string_view kUfakzeka = R"([^\r\n\p{L}\p{N}]?\p{L}+)"
                                       R"(|\p{N})"
                                       R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                       R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kSeedCoder = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                                        R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                                        R"(|\p{N}{1})"
                                        R"(| ?[^\s\p{L}\p{N}\r\n]+)"
                                        R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// One line break at a time. The original's possessive ?+ and ++ match the same: what follows them excludes
// what they take.
constexpr std::string_view kBailing = R"('(?i:[sdmt]|ll|ve|re))"
                                      R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                                      R"(|\p{N})"
                                      R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                      R"(|\s*[\r\n]|\s+(?!\S)|\s+)";

// Words with the spaces between them.
constexpr std::string_view kExaoneMoe = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                                        R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+)"
                                        R"(|\p{N})"
                                        R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
                                        R"(|\s*[\r\n]|\s+(?!\S)|\s+)";

// o200k: words are cut where upper case begins.
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The same with single digits.
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kYoutuScripts =
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+";

// Without contractions and with single digits.
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// DeepSeek's first tokenizer names the letters with case of its day one by one. By number are those that
// editors like to replace by their equals in NFC.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ)"
    R"(ὐ-ὗὙὛὝὟ-\x{1f7d}ᾀ-ᾴᾶ-ᾼ\x{1fbe}ῂ-ῄῆ-ῌῐ-\x{1fd3}ῖ-\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎ)"
    R"(ꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr std::string_view kDeepSeekMarks = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";
constexpr std::string_view kDeepSeekHan = "[一-龥ࠀ-一가-퟿]+";

constexpr std::string_view kDeepSeekV3 = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
                                         R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
                                         R"(| ?[\p{P}\p{S}]+[\r\n]*)"
                                         R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpark25 = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
                                      R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
                                      R"(| ?[\p{P}\p{S}]+)"
                                      R"(|[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kHanAndKana = "[一-龥぀-ゟ゠-ヿ]+";

constexpr std::string_view kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kUpToThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kGpt2 = kGpt2Pattern;
constexpr std::string_view kLines = "[^\\n]+|[\\n]+";

// Classes are those of transformers 5.17, which set the form themselves, whatever a file says;
// AutoTokenizer's table names them for the model's type. Files were read.
constexpr SeenForm kQwenClass = {true, "class Qwen2Tokenizer"};
constexpr SeenForm kQwen35Class = {true, "class Qwen3_5Tokenizer"};
constexpr SeenForm kCohereClass = {true, "class CohereTokenizer"};
constexpr SeenForm kNeoxClass = {true, "class GPTNeoXTokenizer"};
constexpr SeenForm kGpt2Class = {false, "class GPT2Tokenizer"};
constexpr SeenForm kLlama3File = {false, "tokenizer.json of Llama 3"};
constexpr SeenForm kGpt4oFile = {false, "tokenizer.json of gpt-oss"};
// Models whose tokenizer is code of their own.
constexpr SeenForm kArcadeCode = {true, "StableLM 2's class Arcade100kTokenizer"};
constexpr SeenForm kHunyuanCode = {true, "Hunyuan's class HYTokenizer"};
constexpr SeenForm kGlm4Code = {false, "GLM 4's class ChatGLM4Tokenizer"};

constexpr auto kTable = std::to_array<GgufPreTokenizer>({
    {.name = "a.x-4.0", .patterns = {kGpt2}},
    {.name = "bailingmoe", .patterns = {kBailing}},
    {.name = "bailingmoe2", .patterns = {kBailing}},
    {.name = "bloom", .patterns = {kBloom}},
    {.name = "chameleon",
     .patterns = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"(([\t\n]|    |  ))", kDigit,
                  R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
     .add_bos = true},
    {.name = "chatglm-bpe", .patterns = {kLlama3}, .form = kGlm4Code},
    {.name = "codeshell", .patterns = {kDigit, kGpt2}},
    {.name = "cohere2moe", .patterns = {R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o}},
    {.name = "command-r", .patterns = {kDigit, kGpt2}, .form = kCohereClass},
    {.name = "dbrx", .patterns = {kLlama3}, .form = kGpt2Class},
    {.name = "deepseek-coder", .patterns = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekHan, kDigit}},
    {.name = "deepseek-llm",
     .patterns = {"[\r\n]", kDeepSeekLetters, kDeepSeekMarks, R"(\s+$)", kDeepSeekHan, R"(\p{N}+)"}},
    {.name = "deepseek-r1-qwen", .patterns = {kQwen2}, .form = kQwenClass},
    {.name = "deepseek-v3", .patterns = {kUpToThreeDigits, kHanAndKana, kDeepSeekV3}},
    // The patterns that llama.cpp takes for files from before tokenizer.ggml.pre was written.
    {.name = "default", .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", kThreeDigits}},
    {.name = "exaone", .patterns = {kDigit, kGpt2}},
    {.name = "exaone-moe", .patterns = {kExaoneMoe}},
    {.name = "exaone4", .patterns = {kGpt2}},
    {.name = "f2llmv2", .patterns = {kQwen2}, .form = kQwenClass},
    {.name = "falcon", .patterns = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, kThreeDigits}},
    {.name = "falcon-h1", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    {.name = "gigachat", .patterns = {kGpt2}},
    {.name = "glm4", .patterns = {kLlama3}},
    {.name = "gpt-2", .patterns = {kGpt2}, .form = kGpt2Class},
    {.name = "gpt-4o", .patterns = {kGpt4o}, .form = kGpt4oFile},
    {.name = "gpt3-finnish", .patterns = {kBloom}},
    {.name = "granite-docling", .patterns = {kGpt2}},
    {.name = "grok-2", .patterns = {kQwen2}},
    {.name = "hunyuan", .patterns = {kQwen2}, .form = kHunyuanCode},
    {.name = "hunyuan-dense", .patterns = {kUpToThreeDigits, kHanAndKana, kDeepSeekV3}},
    {.name = "hy_v4", .patterns = {kUpToThreeDigits, kHanAndKana, kDeepSeekV3}},
    {.name = "jais", .patterns = {kGpt2}},
    {.name = "jais-2", .patterns = {kJais2}, .form = kGpt2Class},
    {.name = "joyai-llm", .patterns = {kUpToThreeDigits, kHanAndKana, kDeepSeekV3}},
    {.name = "kanana2", .patterns = {kGpt4o}},
    {.name = "kormo", .patterns = {kQwen2}},
    {.name = "laguna", .patterns = {kLines, kQwen2}},
    {.name = "lfm2", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    {.name = "llada-moe", .patterns = {kBailing}},
    {.name = "llama-bpe", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true, .form = kLlama3File},
    {.name = "llama-v3", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true, .form = kLlama3File},
    {.name = "llama3", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true, .form = kLlama3File},
    {.name = "llama4", .patterns = {kGpt4o}},
    {.name = "megrez", .patterns = {kQwen2}, .form = kQwenClass},
    {.name = "mellum", .patterns = {kGpt2}},
    {.name = "mellum2", .patterns = {kDigit, kGpt2}},
    {.name = "midm-2.0", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    {.name = "minerva-7b", .patterns = {kDigit, kGpt2}},
    {.name = "minicpm5", .patterns = {kUpToThreeDigits, kMiniCpm5}, .ignore_merges = true},
    {.name = "minimax-m2", .patterns = {kGpt4o}},
    {.name = "mpt", .patterns = {kGpt2}, .form = kNeoxClass},
    {.name = "olmo", .patterns = {kGpt2}, .form = kNeoxClass},
    {.name = "phi-2", .patterns = {kGpt2}, .form = kGpt2Class},
    {.name = "pixtral", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    {.name = "poro-chat", .patterns = {kBloom}},
    {.name = "qwen2", .patterns = {kQwen2}, .form = kQwenClass},
    {.name = "qwen35", .patterns = {kQwen35}, .form = kQwen35Class},
    {.name = "refact", .patterns = {kDigit, kGpt2}},
    {.name = "seed-coder", .patterns = {kSeedCoder}},
    {.name = "smaug-bpe", .patterns = {kLlama3}},
    {.name = "smollm", .patterns = {kDigit, kGpt2}},
    {.name = "solar-open", .patterns = {kQwen2}},
    {.name = "spark2_5", .patterns = {kUpToThreeDigits, kHanAndKana, kSpark25, kDigit}},
    {.name = "stablelm2", .patterns = {kQwen2}, .form = kArcadeCode},
    {.name = "starcoder", .patterns = {kDigit, kGpt2}, .form = kGpt2Class},
    {.name = "superbpe", .patterns = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
    {.name = "talkie", .patterns = {kGpt4o}},
    {.name = "tekken", .patterns = {kTekken}, .ignore_merges = true, .add_bos = true},
    {.name = "tiny_aya", .patterns = {R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o}},
    {.name = "trillion", .patterns = {kGpt2}},
    {.name = "ufakzeka", .patterns = {kUfakzeka}},
    {.name = "viking", .patterns = {kBloom, kDigit}},
    {.name = "youtu", .patterns = {kYoutuScripts, kYoutu}, .ignore_merges = true},
});
static_assert(std::ranges::is_sorted(kTable, {}, &GgufPreTokenizer::name));

}  // namespace

std::span<const GgufPreTokenizer> gguf_pre_tokenizers() {
  return kTable;
}

Result<const GgufPreTokenizer*> find_gguf_pre_tokenizer(std::string_view name) {
  const auto found = std::ranges::lower_bound(kTable, name, {}, &GgufPreTokenizer::name);
  if (found != kTable.end() && found->name == name) return &*found;
  std::vector<std::string> known;
  for (const GgufPreTokenizer& row : kTable) known.emplace_back(row.name);
  return fail(
      ErrorCode::kUnsupported,
      "The value tokenizer.ggml.pre = {} names a pre-tokenizer that Doppler does not know; it knows {}. "
      "Convert the model again, or use its Hugging Face folder.",
      printable(name), join(known, ", "));
}

}  // namespace doppler::tokenizer
