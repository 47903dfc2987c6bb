// Macros, call blocks, and everything else a template can call.
#include <algorithm>

#include "chat/jinja/evaluator.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_form.h"
#include "system/clock.h"

namespace doppler::chat::jinja {
namespace {

// Takes a named argument out of the list, if it is there.
std::optional<Value> take_named(std::vector<std::pair<std::string, Value>>& named, std::string_view name) {
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& n) { return n.first == name; });
  if (found == named.end()) return std::nullopt;
  Value value = std::move(found->second);
  named.erase(found);
  return value;
}

}  // namespace

// A macro may outlive the block it is defined in, so the scopes it sees are kept to the end of the render.
void Evaluator::keep_scopes(Scope* scope) {
  for (; scope != nullptr && !scope->kept; scope = scope->parent) {
    scope->kept = true;
    heap.charge(sizeof(Scope) + scope->variables.capacity() * sizeof(scope->variables[0]));
  }
}

Value Evaluator::make_macro(const MacroDefinition& definition) {
  keep_scopes(scope_);
  return make<MacroObject>(Kind::kMacro, definition, scope_);
}

Result<Evaluator::Flow> Evaluator::execute_macro(const Statement& statement) {
  set_variable(*scope_, statement.macro.name, make_macro(statement.macro));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::execute_call_block(const Statement& statement) {
  const Expression& call_expression = *statement.expression;
  DOPPLER_ASSIGN(const Value callee, evaluate(*call_expression.first));
  DOPPLER_ASSIGN(Arguments arguments, evaluate_arguments(call_expression.arguments));
  arguments.named.emplace_back("caller", make_macro(statement.macro));
  line_ = statement.line;
  DOPPLER_ASSIGN(const Value result, call(callee, arguments));
  DOPPLER_ASSIGN(const std::string out, to_text(*this, result));
  DOPPLER_TRY(print(out));
  return Flow::kNext;
}

Status Evaluator::bind_parameters(const MacroObject& macro, const Arguments& arguments, Scope& scope) {
  const MacroDefinition& definition = macro.definition;
  const std::size_t count = definition.parameters.size();
  const std::size_t required = count - definition.defaults.size();
  auto named = arguments.named;
  const Values& given = arguments.positional;
  const bool own_caller = std::find(definition.parameters.begin(), definition.parameters.end(),
                                    kCallerName) != definition.parameters.end();
  for (std::size_t i = 0; i < count; ++i) {
    std::optional<Value> value;
    if (i < given.size())
      value = given[i];
    else
      value = take_named(named, definition.parameter_names[i]);
    if (!value && i >= required) {
      DOPPLER_ASSIGN(value, evaluate(*definition.defaults[i - required]));
    }
    if (!value)
      value = undefined(fmt::format("parameter '{}' was not provided", definition.parameter_names[i]));
    set_variable(scope, definition.parameters[i], std::move(*value));
  }
  if (definition.uses_caller && !own_caller) {
    auto caller = take_named(named, "caller");
    set_variable(scope, kCallerName, caller ? std::move(*caller) : undefined("No caller defined"));
  }
  if (definition.uses_kwargs) {
    std::vector<DictObject::Entry> entries;
    for (auto& [name, value] : named) entries.emplace_back(text(name), std::move(value));
    DOPPLER_ASSIGN(Value rest, make_dict(*this, std::move(entries)));
    set_variable(scope, kKwargsName, std::move(rest));
  } else if (!named.empty()) {
    return type_error("macro '{}' takes no keyword argument '{}'", definition.title, named.front().first);
  }
  if (definition.uses_varargs) {
    const std::size_t begin = std::min(count, given.size());
    set_variable(scope, kVarargsName,
                 tuple(Values(given.begin() + static_cast<std::ptrdiff_t>(begin), given.end())));
  } else if (given.size() > count) {
    return type_error("macro '{}' takes not more than {} argument(s)", definition.title, count);
  }
  return {};
}

Result<Value> Evaluator::call_macro(const MacroObject& macro, const Arguments& arguments) {
  std::string out;
  std::string* const outer = std::exchange(out_, &out);
  const ScopeGuard scope(*this, macro.scope);
  const auto run = [&]() -> Status {
    DOPPLER_TRY(bind_parameters(macro, arguments, *scope));
    const auto flow = execute_body(macro.definition.body);
    if (!flow) return std::unexpected(flow.error());
    return {};
  };
  const Status status = run();
  out_ = outer;
  if (!status) return std::unexpected(status.error());
  return text(std::move(out));
}

Result<Value> Evaluator::call(const Value& callee, const Arguments& arguments) {
  DOPPLER_TRY(require_defined(callee));
  switch (callee.kind()) {
    case Kind::kFunction:
    case Kind::kMethod: {
      const auto& function = callee.as<FunctionObject>();
      return invoke(*this, function.builtin, function.self, arguments);
    }
    case Kind::kMacro:
      return call_macro(callee.as<MacroObject>(), arguments);
    case Kind::kJoiner: {
      auto& joiner = callee.as<JoinerObject>();
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return text("");
    }
    default:
      return type_error("'{}' object is not callable", type_name(callee));
  }
}

std::tm Evaluator::now() const {
  return now_ ? *now_ : system::local_time();
}

}  // namespace doppler::chat::jinja
