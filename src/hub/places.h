// Where models come from and where they lie, as the environment says: the variables of Hugging Face's own
// programs and Ollama's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace doppler::hub {

struct Token {
  std::string text;
  std::string source;  // "the variable HF_TOKEN", "the file /home/me/.cache/huggingface/token"
};

struct Places {
  std::string endpoint = "https://huggingface.co";  // no slash at its end
  std::filesystem::path cache;                      // the folder of models--ORG--NAME; empty: no home folder
  std::vector<std::filesystem::path> ollama;        // Ollama's folders of manifests and blobs that are there
  std::optional<Token> token;
  bool offline = false;  // nothing may be asked of the network
};

// HF_ENDPOINT; HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub; HF_TOKEN,
// HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH or $HF_HOME/token; HF_HUB_OFFLINE; OLLAMA_MODELS and the two
// folders that Ollama takes without it. Errors: kUsage for an endpoint that is no web address, and for a
// token that cannot be one.
Result<Places> find_places();

}  // namespace doppler::hub
