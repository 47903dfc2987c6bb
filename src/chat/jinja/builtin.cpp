#include "chat/jinja/builtin.h"

#include "chat/jinja/markup.h"
#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {
namespace {

// The next name of a parameter list, without its mark.
struct Parameter {
  std::string_view name;
  bool optional = false;
};

std::vector<Parameter> parameters_of(std::string_view list) {
  std::vector<Parameter> out;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    Parameter parameter{list.substr(0, end)};
    if (parameter.name.ends_with('?')) {
      parameter.optional = true;
      parameter.name.remove_suffix(1);
    }
    out.push_back(parameter);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

Result<Value> bind_and_call(Runtime& rt, const Builtin& builtin, const Value& self,
                            const Arguments& arguments) {
  Call call{rt, self, arguments};
  DOPPLER_TRY(rt.spend(1));
  if (builtin.parameters == "*") return builtin.function(call);
  const auto parameters = parameters_of(builtin.parameters);
  if (arguments.positional.size() > parameters.size()) {
    return type_error("{}() takes at most {} arguments ({} given)", builtin.name, parameters.size(),
                      arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) call.bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    std::size_t i = 0;
    while (i < parameters.size() && parameters[i].name != name) ++i;
    if (i == parameters.size()) {
      return type_error("{}() got an unexpected keyword argument '{}'", builtin.name, name);
    }
    if (call.bound[i] != nullptr) {
      return type_error("{}() got multiple values for argument '{}'", builtin.name, name);
    }
    call.bound[i] = &value;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].optional && call.bound[i] == nullptr) {
      return type_error("{}() missing 1 required positional argument: '{}'", builtin.name,
                        parameters[i].name);
    }
  }
  return builtin.function(call);
}

bool is_text_method(const Builtin& builtin) {
  const auto methods = text_methods();
  return &builtin >= methods.data() && &builtin < methods.data() + methods.size();
}

}  // namespace

Result<Value> invoke(Runtime& rt, const Builtin& builtin, const Value& self, const Arguments& arguments) {
  auto result = bind_and_call(rt, builtin, self, arguments);
  if (!result || !is_markup(self)) return result;
  if (builtin.keeps_markup || is_text_method(builtin)) return as_markup(rt, *result);
  return result;
}

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), number_filters(), sequence_filters(), selection_filters()}) {
    if (const Builtin* found = find_builtin(table, name)) return found;
  }
  return nullptr;
}

}  // namespace doppler::chat::jinja
