#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {

Value Runtime::markup(std::string s) {
  Value value = text(std::move(s));
  value.as<StringObject>().markup = true;
  return value;
}

Value Runtime::typed(Kind kind, const char* type, Values items) {
  auto object = std::make_shared<ListObject>(heap, std::move(items));
  object->type = type;
  return admit(Value::object(kind, std::move(object)));
}

Value Runtime::name_space() {
  auto object = std::make_shared<NamespaceObject>(heap);
  namespaces_.push_back(object);
  return Value::object(Kind::kNamespace, std::move(object));
}

void Runtime::release_namespaces() {
  for (const auto& space : namespaces_) space->fields.clear();
  namespaces_.clear();
}

Status Runtime::spend(std::uint64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps) {
    return fail(ErrorCode::kLimit, "it needs more than {} steps", limits_.steps);
  }
  if (heap.exhausted()) {
    return fail(ErrorCode::kLimit, "it needs more than {} bytes of memory", limits_.live_bytes);
  }
  if (too_deep_) return fail(ErrorCode::kLimit, "it nests values deeper than {} levels", kMaxValueDepth);
  return {};
}

Status Runtime::check_text_size(std::uint64_t bytes) {
  if (bytes > kMaxTextBytes) {
    return fail(ErrorCode::kLimit, "it makes a text of more than {} bytes", kMaxTextBytes);
  }
  return {};
}

Status Runtime::check_list_size(std::uint64_t items) {
  if (items > kMaxListItems) {
    return fail(ErrorCode::kLimit, "it makes a list of more than {} items", kMaxListItems);
  }
  return {};
}

}  // namespace doppler::chat::jinja
