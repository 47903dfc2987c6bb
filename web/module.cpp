// The module's exports: call() takes {"call": name, ...} and answers {"result": ...} or {"error": {"code",
// "message"}}, so that JavaScript needs to know no structure of C++, and nothing but memory limits what
// passes.
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "calls.h"
#include "engine.h"
#include "imports.h"

namespace doppler::web {
namespace {

struct EngineCall {
  std::string_view name;
  Result<Json> (WebEngine::*function)(const Json& request);
};

constexpr EngineCall kCalls[] = {
    {"describe", &WebEngine::describe},
    {"load", &WebEngine::load},
    {"inspect", &WebEngine::inspect},
    {"tokenize", &WebEngine::tokenize},
    {"detokenize", &WebEngine::detokenize},
    {"render", &WebEngine::render},
    {"begin", &WebEngine::begin},
    {"next", &WebEngine::next},
    {"end", &WebEngine::end},
    {"look", &WebEngine::look},
    {"looked", &WebEngine::looked},
    {"score", &WebEngine::score},
};

constexpr std::string_view kCodes[] = {"usage",    "not_found", "corrupt", "unsupported",
                                       "mismatch", "limit",     "io",      "internal"};

Result<Json> answer(std::string_view text) {
  static WebEngine& engine = *new WebEngine;  // as long as the module
  DOPPLER_ASSIGN(const Json request, parse_json(text, "The call"));
  if (!request.is_object()) return fail(ErrorCode::kUsage, "The call is no object.");
  const auto name = request.find("call");
  for (const EngineCall& call : kCalls) {
    if (name != request.end() && *name == call.name) return (engine.*call.function)(request);
  }
  for (const Call& call : diagnosis_calls()) {
    if (name != request.end() && *name == call.name) return call.answer(request);
  }
  return fail(ErrorCode::kUsage, "There is no call {}.", name == request.end() ? "" : dump_json(*name));
}

std::string last_answer;

}  // namespace
}  // namespace doppler::web

extern "C" {

__attribute__((export_name("_initialize"))) void initialize() {
  extern void __wasm_call_ctors();
  __wasm_call_ctors();
  std::set_new_handler([] { doppler::web::out_of_memory(); });
}

// Room for a request, which call() gives back.
__attribute__((export_name("allocate"))) char* allocate(std::size_t bytes) {
  return static_cast<char*>(::operator new(bytes));
}

// Where the answer begins; it is there until the next call.
__attribute__((export_name("call"))) const char* call(char* request, std::size_t length) {
  const auto made = doppler::web::answer({request, length});
  ::operator delete(request);
  const doppler::Json json =
      made ? doppler::Json{{"result", *made}}
           : doppler::Json{{"error",
                            {{"code", doppler::web::kCodes[static_cast<std::size_t>(made.error().code)]},
                             {"message", made.error().message}}}};
  doppler::web::last_answer = doppler::dump_json(json);
  return doppler::web::last_answer.data();
}

__attribute__((export_name("answer_size"))) std::size_t answer_size() {
  return doppler::web::last_answer.size();
}
}
