// Getting a model by its name: asks the Hub, plans, downloads, checks, and lets the cache's names lead to it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/cache.h"
#include "hub/download.h"
#include "hub/places.h"
#include "hub/plan.h"

namespace doppler::hub {

struct PullOptions {
  DownloadOptions download;
  bool plan_only = false;
  bool force = false;  // also what does not fit the memory
  // Hears the plan before the first byte; its error ends everything.
  std::function<Status(const PullPlan&)> on_plan = [](const PullPlan&) -> Status { return {}; };
};

struct Pulled {
  PullPlan plan;
  FoundModel model;  // with plan_only: empty
};

// Errors: those of HubClient, make_plan and download(); kLimit for what does not fit; kUsage without a cache
// folder or with HF_HUB_OFFLINE set.
Result<Pulled> pull(const Places& places, const ModelName& name, const PullOptions& options);

// What this machine has to spare for models in this cache.
Machine this_machine(const Places& places);

// A path that exists: of a folder of the cache its snapshot, of a manifest of Ollama's its weights. Nothing
// for any other text. Errors: those of reading a manifest.
Result<std::optional<FoundModel>> resolve_path(const std::string& text);

// What a user's text for a MODEL means without asking the network: what resolve_path() takes, ollama:NAME, or
// a name whose model is here. A text that is none of these and no name comes back as it is, for the error of
// whoever opens it. Nothing: a name whose model has to be pulled. Errors: kNotFound with what was probably
// meant; those of find_in_cache() and find_ollama().
Result<std::optional<FoundModel>> resolve_here(const Places& places, const std::string& text);

}  // namespace doppler::hub
