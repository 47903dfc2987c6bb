// Evaluator: statements.
#include <algorithm>

#include "chat/jinja/evaluator.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_form.h"

namespace doppler::chat::jinja {

// In the order of StatementKind.
const Evaluator::Execute Evaluator::kExecute[] = {
    &Evaluator::execute_text,     &Evaluator::execute_print,      &Evaluator::execute_if,
    &Evaluator::execute_for,      &Evaluator::execute_set,        &Evaluator::execute_set_block,
    &Evaluator::execute_macro,    &Evaluator::execute_call_block, &Evaluator::execute_filter_block,
    &Evaluator::execute_with,     &Evaluator::execute_scope,      &Evaluator::execute_break,
    &Evaluator::execute_continue,
};

Evaluator::ScopeGuard::ScopeGuard(Evaluator& evaluator, Scope* parent)
    : evaluator_(evaluator), previous_(evaluator.scope_), scope_(std::make_unique<Scope>(parent)) {
  evaluator_.scope_ = scope_.get();
}

Evaluator::ScopeGuard::~ScopeGuard() {
  evaluator_.scope_ = previous_;
  if (scope_->kept) evaluator_.kept_.push_back(std::move(scope_));
}

Evaluator::~Evaluator() {
  release_namespaces();
  kept_.clear();
}

void Evaluator::define(const std::string& name, Value value) {
  context_.resize(ast_.names.size());
  const auto found = ast_.name_ids.find(name);
  if (found != ast_.name_ids.end()) context_[found->second] = std::move(value);
}

Result<std::string> Evaluator::render() {
  context_.resize(ast_.names.size());
  return capture(ast_.body, nullptr);
}

const Value* Evaluator::find_variable(NameId name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [id, value] : scope->variables) {
      if (id == name) return &value;
    }
  }
  return context_[name] ? &*context_[name] : nullptr;
}

void Evaluator::set_variable(Scope& scope, NameId name, Value value) {
  for (auto& [id, held] : scope.variables) {
    if (id != name) continue;
    held = std::move(value);
    return;
  }
  scope.variables.emplace_back(name, std::move(value));
}

Status Evaluator::print(std::string_view text) {
  if (out_->size() + text.size() > limits_.output_bytes) {
    return fail(ErrorCode::kLimit, "it writes more than {} bytes", limits_.output_bytes);
  }
  *out_ += text;
  return {};
}

Result<std::string> Evaluator::capture(const Body& body, Scope* parent) {
  std::string out;
  std::string* const outer = std::exchange(out_, &out);
  const ScopeGuard scope(*this, parent);
  const auto flow = execute_body(body);
  out_ = outer;
  if (!flow) return std::unexpected(flow.error());
  return out;
}

Result<Evaluator::Flow> Evaluator::execute_body(const Body& body) {
  static_assert(std::size(kExecute) == static_cast<std::size_t>(StatementKind::kCount));
  if (depth_ >= kMaxEvaluationDepth) {
    return fail(ErrorCode::kLimit, "it nests evaluations deeper than {} levels", kMaxEvaluationDepth);
  }
  ++depth_;
  Result<Flow> flow = Flow::kNext;
  for (const Statement* statement : body) {
    line_ = statement->line;
    if (auto status = spend(1); !status)
      flow = std::unexpected(std::move(status).error());
    else
      flow = (this->*kExecute[static_cast<std::size_t>(statement->kind)])(*statement);
    if (!flow || *flow != Flow::kNext) break;
  }
  --depth_;
  return flow;
}

Result<Evaluator::Flow> Evaluator::execute_text(const Statement& statement) {
  DOPPLER_TRY(print(statement.text));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::execute_print(const Statement& statement) {
  DOPPLER_ASSIGN(const Value value, evaluate(*statement.expression));
  if (value.is_string()) {
    DOPPLER_TRY(print(value.text()));
    return Flow::kNext;
  }
  DOPPLER_ASSIGN(const std::string text, to_text(*this, value));
  DOPPLER_TRY(print(text));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::execute_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    DOPPLER_ASSIGN(const Value condition, evaluate(*branch.condition));
    if (truth(condition)) return execute_body(branch.body);
  }
  return execute_body(statement.body);
}

// The items that pass the loop's condition, which sees the loop's target.
Result<Items> Evaluator::loop_items(const Statement& statement, const Value& source) {
  DOPPLER_ASSIGN(Items items, iterate(*this, source));
  if (statement.condition == nullptr) return items;
  Values passing;
  for (const Value& item : *items) {
    const ScopeGuard scope(*this, scope_);
    DOPPLER_TRY(assign(statement.target, item, *scope));
    DOPPLER_ASSIGN(const Value passes, evaluate(*statement.condition));
    if (truth(passes)) passing.push_back(item);
  }
  return std::make_shared<Values>(std::move(passing));
}

Result<Evaluator::Flow> Evaluator::run_loop(const Statement& statement, const Items& items,
                                            std::size_t depth0) {
  const auto object = std::make_shared<LoopObject>(heap, items, depth0);
  const Value loop = Value::object(Kind::kLoop, object);
  Result<Flow> flow = Flow::kNext;
  for (std::size_t i = 0; i < items->size(); ++i) {
    object->index0 = i;
    const ScopeGuard scope(*this, scope_);
    set_variable(*scope, kLoopName, loop);
    if (auto status = assign(statement.target, (*items)[i], *scope); !status) {
      flow = std::unexpected(std::move(status).error());
    } else {
      flow = execute_body(statement.body);
    }
    if (!flow || *flow == Flow::kBreak) break;
  }
  finish_loop(*object);
  if (!flow) return flow;
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::execute_for(const Statement& statement) {
  if (statement.recursive) {
    return fail(ErrorCode::kUnsupported, "it uses the unsupported statement \"for ... recursive\"");
  }
  DOPPLER_ASSIGN(const Value source, evaluate(*statement.expression));
  DOPPLER_ASSIGN(const Items items, loop_items(statement, source));
  if (!items->empty()) return run_loop(statement, items, 0);
  if (statement.otherwise.empty()) return Flow::kNext;
  const ScopeGuard scope(*this, scope_);
  return execute_body(statement.otherwise);
}

Status Evaluator::assign(const Target& target, Value value, Scope& scope) {
  if (target.kind == Target::Kind::kName) {
    set_variable(scope, target.name, std::move(value));
    return {};
  }
  if (target.kind == Target::Kind::kField) {
    const Value* space = find_variable(target.name);
    if (space == nullptr || !space->is(Kind::kNamespace)) {
      return type_error("cannot assign attribute on non-namespace object");
    }
    auto& fields = space->as<NamespaceObject>().fields;
    const auto found = std::find_if(fields.begin(), fields.end(),
                                    [&](const auto& field) { return field.first == target.field; });
    if (found == fields.end())
      fields.emplace_back(target.field, std::move(value));
    else
      found->second = std::move(value);
    return {};
  }
  auto items = iterate(*this, value);
  if (!items) {
    if (value.is_undefined()) return std::unexpected(items.error());
    return type_error("cannot unpack non-iterable {} object", type_name(value));
  }
  const std::size_t wanted = target.parts.size(), given = (*items)->size();
  if (given < wanted) return type_error("not enough values to unpack (expected {}, got {})", wanted, given);
  if (given > wanted) return type_error("too many values to unpack (expected {})", wanted);
  for (std::size_t i = 0; i < wanted; ++i) DOPPLER_TRY(assign(target.parts[i], (**items)[i], scope));
  return {};
}

Result<Evaluator::Flow> Evaluator::execute_set(const Statement& statement) {
  DOPPLER_ASSIGN(Value value, evaluate(*statement.expression));
  DOPPLER_TRY(assign(statement.target, std::move(value), *scope_));
  return Flow::kNext;
}

Result<Value> Evaluator::evaluate_filters(const Expression* filters, Value input) {
  if (filters == nullptr) return input;
  const Value* const outer = std::exchange(filter_input_, &input);
  auto result = evaluate(*filters);
  filter_input_ = outer;
  return result;
}

Result<Evaluator::Flow> Evaluator::execute_set_block(const Statement& statement) {
  DOPPLER_ASSIGN(std::string body, capture(statement.body, scope_));
  DOPPLER_ASSIGN(Value value, evaluate_filters(statement.expression, text(std::move(body))));
  DOPPLER_TRY(assign(statement.target, std::move(value), *scope_));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::execute_filter_block(const Statement& statement) {
  DOPPLER_ASSIGN(std::string body, capture(statement.body, scope_));
  DOPPLER_ASSIGN(const Value value, evaluate_filters(statement.expression, text(std::move(body))));
  DOPPLER_ASSIGN(const std::string out, to_text(*this, value));
  DOPPLER_TRY(print(out));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::execute_with(const Statement& statement) {
  DOPPLER_ASSIGN(Values values, evaluate_all(statement.values));
  const ScopeGuard scope(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) {
    DOPPLER_TRY(assign(statement.targets[i], std::move(values[i]), *scope));
  }
  return execute_body(statement.body);
}

Result<Evaluator::Flow> Evaluator::execute_scope(const Statement& statement) {
  const ScopeGuard scope(*this, scope_);
  return execute_body(statement.body);
}

Result<Evaluator::Flow> Evaluator::execute_break(const Statement&) {
  return Flow::kBreak;
}
Result<Evaluator::Flow> Evaluator::execute_continue(const Statement&) {
  return Flow::kContinue;
}

}  // namespace doppler::chat::jinja
