#include "cli/other_words.h"

#include <algorithm>
#include <array>

namespace doppler::cli {
namespace {

struct OtherFlag {
  std::string_view command;        // empty: any
  std::string_view flag, instead;  // or a word that stands where a model does
};

// The first row whose command fits counts, so rows of one command stand before those of all.
constexpr auto kFlags = std::to_array<OtherFlag>({
    {"bench", "-p", "The prompt's length is --prefill N."},
    {"bench", "-n", "The tokens to generate are --decode N."},
    {"bench", "-r", "The repetitions are --repetitions N."},
    {"bench", "--runs", "The repetitions are --repetitions N."},
    {"bench", "-d", "The depths are --depths N,N."},
    {"bench", "-w", "The warm-up is --warm-up N."},
    {"bench", "--warmup", "The warm-up is --warm-up N."},
    {"bench", "--no-warmup", "Without a warm-up is --warm-up 0."},
    {"bench", "-c", "An older measurement is compared by --baseline FILE, the context is --context N."},
    {"bench", "-np", "Sequences that share each step are --sequences N,N."},
    {"bench", "--kernels", "The kernels are timed by: doppler bench kernels MODEL."},
    {"bench", "--output", "The measurement is kept by --save FILE, or printed by --json."},
    {"bench", "-o", "The measurement is kept by --save FILE, or printed by --json."},
    {"bench", "--compare", "An older measurement, made with --save FILE, is compared by --baseline FILE."},
    {"bench", "-f", "The loss on a text is --perplexity FILE."},
    {"bench", "--file", "The loss on a text is --perplexity FILE."},
    {"bench", "perplexity", "The loss on a text is measured by: doppler bench MODEL --perplexity FILE."},
    {"convert", "--quantize", "The type is --type, such as --type Q4_K_M."},
    {"convert", "-q", "The type is --type, such as --type Q4_K_M."},
    {"convert", "--outtype", "The type is --type, such as --type Q8_0."},
    {"convert", "--outfile", "The file to write is -o FILE."},
    {"convert", "--model-id", "The file to write is -o FILE; it needs no other name."},
    {"debug", "--layer", "A layer's stages are printed by --debug-layers N."},
    {"debug", "-d", "A layer's stages are printed by --debug-layers N."},
    {"tokenize", "-p", "The text follows the model: doppler tokenize MODEL TEXT."},
    {"tokenize", "--prompt", "The text follows the model: doppler tokenize MODEL TEXT."},
    {"tokenize", "--ids", "Ids alone, as a list, are in --json."},

    {"", "-m", "The model needs no flag: doppler run MODEL."},
    {"", "--model", "The model needs no flag: doppler run MODEL."},
    {"", "--model-path", "The model needs no flag: doppler run MODEL."},
    {"", "-p", "The prompt needs no flag, it follows the model: doppler run MODEL PROMPT."},
    {"", "--prompt", "The prompt needs no flag, it follows the model: doppler run MODEL PROMPT."},
    {"", "--text", "The prompt needs no flag, it follows the model: doppler run MODEL PROMPT."},
    {"", "-f", "A prompt from a file comes through standard input: doppler run MODEL < FILE."},
    {"", "--file", "A prompt from a file comes through standard input: doppler run MODEL < FILE."},
    {"", "-n", "The tokens to generate are --max-tokens N."},
    {"", "--predict", "The tokens to generate are --max-tokens N."},
    {"", "--n-predict", "The tokens to generate are --max-tokens N."},
    {"", "--num-predict", "The tokens to generate are --max-tokens N."},
    {"", "--max-new-tokens", "The tokens to generate are --max-tokens N."},
    {"", "--max_new_tokens", "The tokens to generate are --max-tokens N."},
    {"", "--max_tokens", "The tokens to generate are --max-tokens N."},
    {"", "--length", "The tokens to generate are --max-tokens N."},
    {"", "-c", "The context's length is --context N."},
    {"", "--ctx", "The context's length is --context N."},
    {"", "--ctx-size", "The context's length is --context N."},
    {"", "--n-ctx", "The context's length is --context N."},
    {"", "--num-ctx", "The context's length is --context N."},
    {"", "--num_ctx", "The context's length is --context N."},
    {"", "--max-seq-len", "The context's length is --context N."},
    {"", "-t", "The threads are --threads N."},
    {"", "-tb", "The threads are --threads N, for prompts and decoding alike."},
    {"", "--threads-batch", "The threads are --threads N, for prompts and decoding alike."},
    {"", "-ngl", "A model runs on the GPU whole or not at all: --backend gpu, or --backend cpu."},
    {"", "--ngl", "A model runs on the GPU whole or not at all: --backend gpu, or --backend cpu."},
    {"", "--gpu-layers", "A model runs on the GPU whole or not at all: --backend gpu, or --backend cpu."},
    {"", "--n-gpu-layers", "A model runs on the GPU whole or not at all: --backend gpu, or --backend cpu."},
    {"", "--gpu", "The GPU is --backend gpu; doppler inspect --gpu lists the GPUs."},
    {"", "--cpu", "The processor is --backend cpu."},
    {"", "-dev", "A certain GPU is --gpu-adapter NAME or NUMBER; doppler inspect --gpu lists them."},
    {"", "--device", "What computes is --backend; a certain GPU is --gpu-adapter NAME or NUMBER."},
    {"", "-mg", "A certain GPU is --gpu-adapter NAME or NUMBER; doppler inspect --gpu lists them."},
    {"", "--main-gpu", "A certain GPU is --gpu-adapter NAME or NUMBER; doppler inspect --gpu lists them."},
    {"", "--list-devices", "The GPUs are listed by: doppler inspect --gpu."},
    {"", "--temp", "It is --temperature X."},
    {"", "-s", "The seed is --seed N."},
    {"", "--top_k", "It is --top-k N."},
    {"", "--top_p", "It is --top-p X."},
    {"", "--min_p", "It is --min-p X."},
    {"", "--repetition-penalty", "It is --repeat-penalty X."},
    {"", "--repetition_penalty", "It is --repeat-penalty X."},
    {"", "--repeat_penalty", "It is --repeat-penalty X."},
    {"", "--repeat-last-n", "The tokens that penalties look back at are --penalty-window N."},
    {"", "-r", "What ends the answer is --stop TEXT."},
    {"", "--reverse-prompt", "What ends the answer is --stop TEXT."},
    {"", "-sys", "The system text is --system TEXT."},
    {"", "--system-prompt", "The system text is --system TEXT."},
    {"", "-i", "A conversation is: doppler chat MODEL."},
    {"", "--interactive", "A conversation is: doppler chat MODEL."},
    {"", "-cnv", "A conversation is: doppler chat MODEL."},
    {"", "--conversation", "A conversation is: doppler chat MODEL."},
    {"", "--chat",
     "A conversation is: doppler chat MODEL; run uses the model's chat template unless --raw is given."},
    {"", "-no-cnv", "Without the chat template is --raw."},
    {"", "--no-conversation", "Without the chat template is --raw."},
    {"", "--no-chat", "Without the chat template is --raw."},
    {"", "--jinja", "The model's own template is always rendered; --raw turns it off."},
    {"", "--chat-template", "The model's own template is always rendered; --raw turns it off."},
    {"", "--no-display-prompt", "The prompt is never repeated; leave the flag out."},
    {"", "-ctk", "How keys and values are kept is --kv-type f32, f16 or q8_0."},
    {"", "-ctv", "How keys and values are kept is --kv-type f32, f16 or q8_0."},
    {"", "--cache-type-k", "How keys and values are kept is --kv-type f32, f16 or q8_0."},
    {"", "--cache-type-v", "How keys and values are kept is --kv-type f32, f16 or q8_0."},
    {"", "-b", "Batches are sized by the backend; leave the flag out."},
    {"", "-ub", "Batches are sized by the backend; leave the flag out."},
    {"", "--batch-size", "Batches are sized by the backend; leave the flag out."},
    {"", "--ubatch-size", "Batches are sized by the backend; leave the flag out."},
    {"", "-fa", "Attention has one way, which needs no switch; leave the flag out."},
    {"", "--flash-attn", "Attention has one way, which needs no switch; leave the flag out."},
    {"", "--mlock", "Files are mapped into memory; leave the flag out."},
    {"", "--no-mmap", "Files are mapped into memory; leave the flag out."},
    {"", "-v", "What happens inside is told by --log-level verbose."},
    {"", "--verbose", "What happens inside is told by --log-level verbose; the figures are printed anyway."},
    {"", "--debug", "What happens inside is told by --log-level debug, or by doppler debug MODEL."},
    {"", "--verbose-prompt", "The prompt's tokens are shown by: doppler tokenize MODEL TEXT."},
    {"", "--log-disable", "Nothing but the answer and errors is --quiet."},
    {"", "--silent", "Nothing on stderr is --log-level silent."},
    {"", "--format", "Results for programs are --json."},
    {"", "--output-format", "Results for programs are --json."},
    {"", "--dump-config", "The settings are printed by: doppler config explain."},
    {"", "--list-presets", "The presets are listed by: doppler config presets."},
    {"", "--perf", "Speed is measured by doppler bench MODEL, or told by --trace perf."},
    {"", "--quantize", "Quantised files are made by: doppler convert MODEL -o OUT.gguf --type Q4_K_M."},
    {"", "-hf", "A model of the Hugging Face Hub is named by itself: doppler run org/name:Q4_K_M."},
    {"", "--hf-repo", "A model of the Hugging Face Hub is named by itself: doppler run org/name:Q4_K_M."},
});

struct OtherCommand {
  std::string_view word, instead;
};

constexpr auto kCommands = std::to_array<OtherCommand>({
    {"serve",
     "There is no server; programs call the library (docs/embedding.md), and people doppler chat MODEL."},
    {"server",
     "There is no server; programs call the library (docs/embedding.md), and people doppler chat MODEL."},
    {"ls", "The models that are here: doppler list."},
    {"models", "The models that are here: doppler list."},
    {"download", "A model is downloaded by: doppler pull org/name."},
    {"get", "A model is downloaded by: doppler pull org/name."},
    {"delete", "A model is removed by: doppler rm NAME."},
    {"remove", "A model is removed by: doppler rm NAME."},
    {"show", "What a model is: doppler inspect MODEL."},
    {"info", "What a model is: doppler inspect MODEL."},
    {"describe", "What a model is: doppler inspect MODEL."},
    {"gguf-dump", "What a file holds: doppler inspect MODEL --tensors."},
    {"devices", "The GPUs are listed by: doppler inspect --gpu."},
    {"ps", "Nothing stays in memory between commands, so there is nothing to list or to stop."},
    {"stop", "Nothing stays in memory between commands, so there is nothing to list or to stop."},
    {"generate", "Text is generated by: doppler run MODEL PROMPT."},
    {"complete", "Text is generated by: doppler run MODEL PROMPT; without the chat template with --raw."},
    {"prompt", "Text is generated by: doppler run MODEL PROMPT."},
    {"cli", "Text is generated by: doppler run MODEL PROMPT."},
    {"ask", "Text is generated by: doppler run MODEL PROMPT."},
    {"talk", "A conversation is: doppler chat MODEL."},
    {"interactive", "A conversation is: doppler chat MODEL."},
    {"quantize", "Quantised files are made by: doppler convert MODEL -o OUT.gguf --type Q4_K_M."},
    {"quantise", "Quantised files are made by: doppler convert MODEL -o OUT.gguf --type Q4_K_M."},
    {"create", "Files of a model are made by: doppler convert MODEL -o OUT.gguf --type Q4_K_M."},
    {"perplexity", "The loss on a text is measured by: doppler bench MODEL --perplexity FILE."},
    {"benchmark", "Speed is measured by: doppler bench MODEL."},
    {"test-model", "A model is tested by: doppler doctor MODEL."},
    {"verify", "A model is tested by: doppler doctor MODEL, or against a recording by doppler compare."},
    {"check", "A model is tested by: doppler doctor MODEL, or against a recording by doppler compare."},
    {"validate", "A model is tested by: doppler doctor MODEL, or against a recording by doppler compare."},
    {"diagnose", "What is wrong with a model: doppler doctor MODEL."},
    {"diff", "Two runs, models or backends are compared by: doppler compare."},
    {"trace", "What happens inside: doppler run MODEL PROMPT --trace all, or doppler debug MODEL."},
    {"dump", "Every stage of a run is written by: doppler record MODEL PROMPT -o FILE."},
    {"capture", "Every stage of a run is written by: doppler record MODEL PROMPT -o FILE."},
    {"detokenize", "Ids become text by: doppler tokenize MODEL 2,5,9 --decode."},
    {"decode", "Ids become text by: doppler tokenize MODEL 2,5,9 --decode."},
    {"encode", "Text becomes ids by: doppler tokenize MODEL TEXT."},
    {"tokens", "Text becomes ids by: doppler tokenize MODEL TEXT."},
    {"profiles", "Presets of settings are listed by: doppler config presets."},
    {"presets", "Presets of settings are listed by: doppler config presets."},
    {"settings", "Every setting is listed by: doppler config explain."},
    {"help", "Help is: doppler --help, or doppler COMMAND --help."},
    {"version", "The version is: doppler --version."},
});

// Words behind those that a command takes.
constexpr auto kMoreWords = std::to_array<OtherCommand>({
    {"run", "A prompt of several words stands in quotes: doppler run MODEL \"Why is the sky blue?\"."},
    {"debug", "A prompt of several words stands in quotes: doppler debug MODEL \"Why is the sky blue?\"."},
    {"record", "A prompt of several words stands in quotes: doppler record MODEL \"Why?\" -o FILE."},
    {"tokenize", "A text of several words stands in quotes: doppler tokenize MODEL \"Why is it blue?\"."},
    {"chat", "A chat takes no prompt: type it there, or use doppler run MODEL PROMPT."},
    {"convert",
     "The file to write is -o FILE, the type --type T: doppler convert MODEL -o OUT.gguf --type Q4_0."},
});

}  // namespace

std::string_view instead_of_flag(std::string_view command, std::string_view flag) {
  const auto row = std::ranges::find_if(kFlags, [&](const OtherFlag& other) {
    return other.flag == flag && (other.command.empty() || other.command == command);
  });
  return row == kFlags.end() ? std::string_view() : row->instead;
}

std::string_view instead_of_command(std::string_view word) {
  const auto row = std::ranges::find(kCommands, word, &OtherCommand::word);
  return row == kCommands.end() ? std::string_view() : row->instead;
}

std::string_view instead_of_more_words(std::string_view command) {
  const auto row = std::ranges::find(kMoreWords, command, &OtherCommand::word);
  return row == kMoreWords.end() ? std::string_view() : row->instead;
}

}  // namespace doppler::cli
