// The calls that a module answers: those of every module, and those of one with diagnosis in it.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace doppler::web {

struct Call {
  std::string_view name;
  std::function<Result<Json>(const Json& request)> answer;
};

// Of diagnosis.cpp, or none, of no_diagnosis.cpp: a module is linked with one of the two.
std::span<const Call> diagnosis_calls();

}  // namespace doppler::web
