// Evaluator: expressions.
#include <algorithm>

#include "base/text.h"
#include "chat/jinja/evaluator.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_form.h"

namespace doppler::chat::jinja {

// In the order of ExpressionKind.
const Evaluator::Evaluate Evaluator::kEvaluate[] = {
    &Evaluator::evaluate_constant,    &Evaluator::evaluate_name,        &Evaluator::evaluate_tuple,
    &Evaluator::evaluate_list,        &Evaluator::evaluate_dict,        &Evaluator::evaluate_attribute,
    &Evaluator::evaluate_item,        &Evaluator::evaluate_slice,       &Evaluator::evaluate_call,
    &Evaluator::evaluate_filter,      &Evaluator::evaluate_test,        &Evaluator::evaluate_binary,
    &Evaluator::evaluate_compare,     &Evaluator::evaluate_and,         &Evaluator::evaluate_or,
    &Evaluator::evaluate_not,         &Evaluator::evaluate_negate,      &Evaluator::evaluate_plus,
    &Evaluator::evaluate_concatenate, &Evaluator::evaluate_conditional,
};

Result<Value> Evaluator::evaluate(const Expression& expression) {
  static_assert(std::size(kEvaluate) == static_cast<std::size_t>(ExpressionKind::kCount));
  DOPPLER_TRY(spend(1));
  line_ = expression.line;
  if (depth_ >= kMaxEvaluationDepth) {
    return fail(ErrorCode::kLimit, "it nests evaluations deeper than {} levels", kMaxEvaluationDepth);
  }
  ++depth_;
  auto result = (this->*kEvaluate[static_cast<std::size_t>(expression.kind)])(expression);
  --depth_;
  return result;
}

Result<Values> Evaluator::evaluate_all(const std::vector<Expression*>& expressions) {
  Values values;
  values.reserve(expressions.size());
  for (const Expression* expression : expressions) {
    DOPPLER_ASSIGN(Value value, evaluate(*expression));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Evaluator::evaluate_constant(const Expression& expression) {
  return expression.constant;
}

Result<Value> Evaluator::evaluate_name(const Expression& expression) {
  if (const Value* found = find_variable(expression.name)) return *found;
  const std::string& name = ast_.names[expression.name];
  if (const Builtin* global = find_global(name))
    return make<FunctionObject>(Kind::kFunction, *global, Value());
  return undefined(fmt::format("'{}' is undefined", name));
}

Result<Value> Evaluator::evaluate_tuple(const Expression& expression) {
  DOPPLER_ASSIGN(Values values, evaluate_all(expression.items));
  return tuple(std::move(values));
}

Result<Value> Evaluator::evaluate_list(const Expression& expression) {
  DOPPLER_ASSIGN(Values values, evaluate_all(expression.items));
  return list(std::move(values));
}

Result<Value> Evaluator::evaluate_dict(const Expression& expression) {
  DOPPLER_ASSIGN(Values values, evaluate_all(expression.items));
  std::vector<DictObject::Entry> entries;
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
    entries.emplace_back(std::move(values[i]), std::move(values[i + 1]));
  }
  return make_dict(*this, std::move(entries));
}

Result<Value> Evaluator::evaluate_attribute(const Expression& expression) {
  DOPPLER_ASSIGN(const Value object, evaluate(*expression.first));
  return get_attribute(*this, object, expression.text);
}

Result<Value> Evaluator::evaluate_item(const Expression& expression) {
  DOPPLER_ASSIGN(const Value object, evaluate(*expression.first));
  DOPPLER_ASSIGN(const Value key, evaluate(*expression.second));
  return get_item(*this, object, key);
}

Result<Value> Evaluator::evaluate_slice(const Expression& expression) {
  DOPPLER_ASSIGN(const Value object, evaluate(*expression.first));
  Value parts[3] = {Value::none(), Value::none(), Value::none()};
  for (std::size_t i = 0; i < 3; ++i) {
    if (expression.items[i] == nullptr) continue;
    DOPPLER_ASSIGN(parts[i], evaluate(*expression.items[i]));
  }
  return jinja::slice(*this, object, parts[0], parts[1], parts[2]);
}

Result<Arguments> Evaluator::evaluate_arguments(const CallArguments& arguments) {
  Arguments out;
  DOPPLER_ASSIGN(out.positional, evaluate_all(arguments.positional));
  for (const auto& [name, expression] : arguments.named) {
    DOPPLER_ASSIGN(Value value, evaluate(*expression));
    out.named.emplace_back(name, std::move(value));
  }
  if (arguments.unpacked_list != nullptr) {
    DOPPLER_ASSIGN(const Value values, evaluate(*arguments.unpacked_list));
    DOPPLER_ASSIGN(const Items items, iterate(*this, values));
    DOPPLER_TRY(spend(items->size()));
    out.positional.insert(out.positional.end(), items->begin(), items->end());
  }
  if (arguments.unpacked_dict != nullptr) {
    DOPPLER_ASSIGN(const Value values, evaluate(*arguments.unpacked_dict));
    if (!values.is(Kind::kDict)) {
      return type_error("argument after ** must be a mapping, not {}", type_name(values));
    }
    for (const auto& [key, value] : values.as<DictObject>().entries) {
      if (!key.is_string()) return type_error("keywords must be strings");
      out.named.emplace_back(key.text(), value);
    }
  }
  return out;
}

Result<Value> Evaluator::evaluate_call(const Expression& expression) {
  DOPPLER_ASSIGN(const Value callee, evaluate(*expression.first));
  DOPPLER_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  line_ = expression.line;
  return call(callee, arguments);
}

Result<Value> Evaluator::evaluate_filter(const Expression& expression) {
  Value input;
  if (expression.first == nullptr) {
    if (filter_input_ != nullptr) input = *filter_input_;
  } else {
    DOPPLER_ASSIGN(input, evaluate(*expression.first));
  }
  if (expression.builtin == nullptr) {
    return fail(ErrorCode::kUnsupported, "it uses the unknown filter \"{}\"", printable(expression.text));
  }
  DOPPLER_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  line_ = expression.line;
  return invoke(*this, *expression.builtin, input, arguments);
}

Result<Value> Evaluator::evaluate_test(const Expression& expression) {
  DOPPLER_ASSIGN(const Value subject, evaluate(*expression.first));
  if (expression.builtin == nullptr) {
    return fail(ErrorCode::kUnsupported, "it uses the unknown test \"{}\"", printable(expression.text));
  }
  DOPPLER_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  line_ = expression.line;
  return invoke(*this, *expression.builtin, subject, arguments);
}

Result<Value> Evaluator::evaluate_binary(const Expression& expression) {
  DOPPLER_ASSIGN(const Value left, evaluate(*expression.first));
  DOPPLER_ASSIGN(const Value right, evaluate(*expression.second));
  line_ = expression.line;
  return arithmetic(*this, expression.op, left, right);
}

Result<Value> Evaluator::evaluate_compare(const Expression& expression) {
  DOPPLER_ASSIGN(Value left, evaluate(*expression.first));
  for (std::size_t i = 0; i < expression.items.size(); ++i) {
    DOPPLER_ASSIGN(Value right, evaluate(*expression.items[i]));
    DOPPLER_ASSIGN(const bool holds, compare_with(*this, expression.operators[i], left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Evaluator::evaluate_and(const Expression& expression) {
  DOPPLER_ASSIGN(Value left, evaluate(*expression.first));
  if (!truth(left)) return left;
  return evaluate(*expression.second);
}

Result<Value> Evaluator::evaluate_or(const Expression& expression) {
  DOPPLER_ASSIGN(Value left, evaluate(*expression.first));
  if (truth(left)) return left;
  return evaluate(*expression.second);
}

Result<Value> Evaluator::evaluate_not(const Expression& expression) {
  DOPPLER_ASSIGN(const Value value, evaluate(*expression.first));
  return Value::boolean(!truth(value));
}

Result<Value> Evaluator::evaluate_negate(const Expression& expression) {
  DOPPLER_ASSIGN(const Value value, evaluate(*expression.first));
  return negate(*this, value, false);
}

Result<Value> Evaluator::evaluate_plus(const Expression& expression) {
  DOPPLER_ASSIGN(const Value value, evaluate(*expression.first));
  return negate(*this, value, true);
}

Result<Value> Evaluator::evaluate_concatenate(const Expression& expression) {
  std::string out;
  for (const Expression* item : expression.items) {
    DOPPLER_ASSIGN(const Value value, evaluate(*item));
    DOPPLER_TRY(append_text(*this, out, value));
  }
  return text(std::move(out));
}

Result<Value> Evaluator::evaluate_conditional(const Expression& expression) {
  DOPPLER_ASSIGN(const Value condition, evaluate(*expression.second));
  if (truth(condition)) return evaluate(*expression.first);
  if (expression.third != nullptr) return evaluate(*expression.third);
  return undefined("the inline if-expression evaluated to false and no else section was defined.");
}

}  // namespace doppler::chat::jinja
