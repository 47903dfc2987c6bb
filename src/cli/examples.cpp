#include "cli/examples.h"

#include <algorithm>
#include <array>

namespace doppler::cli {
namespace {

struct Examples {
  std::string_view command, text;
};

constexpr auto kExamples = std::to_array<Examples>({
    {"run", R"(
A text that is piped in follows the prompt. Where a loop of the shell reads from the same pipe, keep it from run:
  while read -r line; do doppler run demo "$line" </dev/null; done < questions.txt

Examples:
  doppler run demo "The color of the sky is"
  doppler run demo "Tell me a story." --temperature 0.7 --seed 1
  doppler run demo < question.txt --quiet
  doppler run demo "What does a bear eat?" --json --max-tokens 20
  doppler run demo Hi --probe stage=q_rope,layers=0,tokens=-1,dims=0:3)"},
    {"chat", R"(
Examples:
  doppler chat demo
  doppler chat demo --system "Answer in one sentence.")"},
    {"pull", R"(
Models go to the Hugging Face cache, where transformers finds them, too. A download that was stopped goes on
where it was. A token for gated and private models comes from HF_TOKEN or ~/.cache/huggingface/token.

Examples:
  doppler pull org/name
  doppler pull org/name:Q4_K_M
  doppler pull org/name --plan)"},
    {"list", R"(
Looks into the Hugging Face cache (HF_HUB_CACHE, HF_HOME) and Ollama's store (OLLAMA_MODELS).

Examples:
  doppler list
  doppler list --json)"},
    {"rm", R"(
Blobs that other models or snapshots use stay.

Examples:
  doppler rm org/name
  doppler rm org/name:Q4_K_M --yes
  doppler rm ollama:llama3.2:1b)"},
    {"inspect", R"(
Examples:
  doppler inspect demo
  doppler inspect demo --tensors
  doppler inspect --gpu
  doppler inspect demo --json)"},
    {"tokenize", R"(
Examples:
  doppler tokenize demo "The color of the sky"
  doppler tokenize demo 2,138,3730 --decode
  doppler tokenize demo --messages conversation.json)"},
    {"record", R"(
Examples:
  doppler record demo "The sky is" -o sky.safetensors
  doppler record demo "The sky is" -o sky.safetensors --backend reference)"},
    {"compare", R"(
Exit status 1 if anything differs by more than the arithmetic explains.

Examples:
  doppler compare demo --reference demo/reference.safetensors
  doppler compare demo --reference auto
  doppler compare demo "The sky is" --with reference
  doppler compare small.gguf "The sky is" --with-model demo
  doppler compare one.safetensors other.safetensors --html page.html)"},
    {"debug", R"(
Exit status 1 if the triage finds something.

Examples:
  doppler debug demo
  doppler debug demo "The sky is" --debug-layers 0,5 --tokens 0,-1
  doppler debug demo "The sky is" --logit-text " blue" --attention 5
  doppler debug demo --inject qk_norm_offset)"},
    {"doctor", R"(
Exit status 1 if anything is found.

Examples:
  doppler doctor demo
  doppler doctor demo --reference demo/reference.safetensors
  doppler doctor demo --reference auto
  doppler doctor small.gguf --source demo
  doppler doctor demo --html page.html
  doppler doctor --list)"},
    {"bench", R"(
Examples:
  doppler bench demo
  doppler bench demo --depths 0,1000 --sequences 1,4
  doppler bench demo --save old.json
  doppler bench demo --baseline old.json --fail-over 5%
  doppler bench demo --html page.html
  doppler bench demo --perplexity text.txt
  doppler bench kernels demo)"},
    {"test", R"(
Exit status 1 if the device computes wrong.

Examples:
  doppler test kernels
  doppler test kernels demo)"},
    {"web", R"(
Serves what make web has built, and the model, to a Chromium on this machine, and to nobody else.

Examples:
  doppler web test demo "The color of the sky is" --raw
  doppler web test demo "What does a bear eat?" --backend gpu --software
  doppler web bench model.gguf --threads 1 --json
  doppler web test demo Hi --probe stage=q_rope,layers=0,tokens=-1,dims=0:3)"},
    {"convert", R"(
Examples:
  doppler convert demo -o demo.gguf --type Q4_K_M
  doppler convert demo -o demo.gguf --type Q8_0 --threads 2
  doppler convert --list)"},
    {"synth", R"(
Examples:
  doppler synth gemma3-1b random.gguf --type Q4_0
  doppler synth llama3.2-1b small.gguf --layers 2 --vocab 1000)"},
    {"config", R"(
Examples:
  doppler config explain
  doppler config explain runtime.shared.debug --config debug --trace attn,ffn
  doppler config presets
  doppler config schema > doppler.schema.json)"},
    {"completion", R"(
Examples:
  doppler completion bash > ~/.local/share/bash-completion/completions/doppler
  doppler completion fish > ~/.config/fish/completions/doppler.fish)"},
});

}  // namespace

std::string_view examples_of(std::string_view command) {
  const auto row = std::ranges::find(kExamples, command, &Examples::command);
  return row == kExamples.end() ? std::string_view() : row->text;
}

}  // namespace doppler::cli
