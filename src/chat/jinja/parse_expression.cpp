// Parser: expressions.
#include <algorithm>

#include "chat/jinja/parser_core.h"

namespace doppler::chat::jinja {
namespace {

struct OperatorText {
  std::string_view text;
  Operator op;
};
constexpr OperatorText kComparisons[] = {{"==", Operator::kEqual},  {"!=", Operator::kNotEqual},
                                         {"<", Operator::kLess},    {"<=", Operator::kLessEqual},
                                         {">", Operator::kGreater}, {">=", Operator::kGreaterEqual}};
constexpr OperatorText kSums[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
constexpr OperatorText kProducts[] = {{"*", Operator::kMultiply},
                                      {"/", Operator::kDivide},
                                      {"//", Operator::kFloorDivide},
                                      {"%", Operator::kModulo}};

const Operator* find_operator(std::span<const OperatorText> table, const Token& token) {
  for (const OperatorText& row : table) {
    if (token.is_operator(row.text)) return &row.op;
  }
  return nullptr;
}

}  // namespace

Expression* Parser::binary(Operator op, Expression* left, Expression* right, std::uint32_t line) {
  Expression* made = node(ExpressionKind::kBinary, line);
  made->op = op;
  made->first = left;
  made->second = right;
  return made;
}

bool Parser::at_tuple_end(bool stop_at_recursive) const {
  const Token& token = current();
  return token.is(TokenKind::kVariableEnd) || token.is(TokenKind::kBlockEnd) || token.is_operator(")") ||
         (stop_at_recursive && token.is_name("recursive"));
}

// An expression, or several with commas between them (or one with a comma behind it): a tuple.
Expression* Parser::parse_tuple(bool conditional, bool parenthesised, bool stop_at_recursive) {
  const std::uint32_t line = current().line;
  std::vector<Expression*> items;
  bool tuple = false;
  while (!failed_) {
    if (!items.empty() && !expect_operator(",")) return nullptr;
    if (at_tuple_end(stop_at_recursive)) break;
    items.push_back(parse_expression(conditional));
    if (!current().is_operator(",")) break;
    tuple = true;
  }
  if (failed_) return nullptr;
  if (!tuple && !items.empty()) return items.front();
  if (!tuple && !parenthesised) return fail("expected an expression");
  Expression* made = node(ExpressionKind::kTuple, line);
  made->items = std::move(items);
  return made;
}

Expression* Parser::parse_expression(bool conditional) {
  const Depth depth(*this);
  if (!depth.ok) return nullptr;
  const std::uint32_t line = current().line;
  Expression* value = parse_or();
  if (!conditional) return value;
  while (!failed_ && skip_name("if")) {
    Expression* made = node(ExpressionKind::kConditional, line);
    made->first = value;
    made->second = parse_or();
    if (!failed_ && skip_name("else")) made->third = parse_expression();
    value = made;
  }
  return value;
}

Expression* Parser::parse_or() {
  Expression* left = parse_and();
  while (!failed_ && current().is_name("or")) {
    Expression* made = node(ExpressionKind::kOr, next().line);
    made->first = left;
    made->second = parse_and();
    left = made;
  }
  return left;
}

Expression* Parser::parse_and() {
  Expression* left = parse_not();
  while (!failed_ && current().is_name("and")) {
    Expression* made = node(ExpressionKind::kAnd, next().line);
    made->first = left;
    made->second = parse_not();
    left = made;
  }
  return left;
}

Expression* Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Depth depth(*this);
  if (!depth.ok) return nullptr;
  Expression* made = node(ExpressionKind::kNot, next().line);
  made->first = parse_not();
  return made;
}

Expression* Parser::parse_compare() {
  const std::uint32_t line = current().line;
  Expression* first = parse_sum();
  Expression* made = nullptr;
  while (!failed_) {
    Operator op;
    if (const Operator* found = find_operator(kComparisons, current())) {
      op = *found;
      next();
    } else if (skip_name("in")) {
      op = Operator::kIn;
    } else if (current().is_name("not") && ahead().is_name("in")) {
      op = Operator::kNotIn;
      next();
      next();
    } else {
      break;
    }
    if (made == nullptr) {
      made = node(ExpressionKind::kCompare, line);
      made->first = first;
    }
    made->operators.push_back(op);
    made->items.push_back(parse_sum());
  }
  return made != nullptr ? made : first;
}

Expression* Parser::parse_sum() {
  Expression* left = parse_concatenation();
  while (!failed_) {
    const Operator* op = find_operator(kSums, current());
    if (op == nullptr) break;
    const std::uint32_t line = next().line;
    left = binary(*op, left, parse_concatenation(), line);
  }
  return left;
}

Expression* Parser::parse_concatenation() {
  const std::uint32_t line = current().line;
  Expression* first = parse_product();
  if (failed_ || !current().is_operator("~")) return first;
  Expression* made = node(ExpressionKind::kConcatenate, line);
  made->items.push_back(first);
  while (!failed_ && skip_operator("~")) made->items.push_back(parse_product());
  return made;
}

Expression* Parser::parse_product() {
  Expression* left = parse_power();
  while (!failed_) {
    const Operator* op = find_operator(kProducts, current());
    if (op == nullptr) break;
    const std::uint32_t line = next().line;
    left = binary(*op, left, parse_power(), line);
  }
  return left;
}

Expression* Parser::parse_power() {
  Expression* left = parse_unary(true);
  while (!failed_ && current().is_operator("**")) {
    const std::uint32_t line = next().line;
    left = binary(Operator::kPower, left, parse_unary(true), line);
  }
  return left;
}

Expression* Parser::parse_unary(bool filters) {
  const Depth depth(*this);
  if (!depth.ok) return nullptr;
  Expression* made = nullptr;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Token& sign = next();
    made = node(sign.is_operator("-") ? ExpressionKind::kNegate : ExpressionKind::kPlus, sign.line);
    made->first = parse_unary(false);
  } else {
    made = parse_primary();
  }
  if (!failed_) made = parse_postfix(made);
  if (!failed_ && filters) made = parse_filters_and_tests(made);
  return made;
}

Expression* Parser::parse_primary() {
  const Token& token = current();
  if (token.is(TokenKind::kName)) return parse_name();
  if (token.is(TokenKind::kString)) return parse_string();
  if (token.is(TokenKind::kInteger) || token.is(TokenKind::kFloat)) {
    Expression* made = node(ExpressionKind::kConstant, token.line);
    made->constant = token.is(TokenKind::kInteger) ? Value::integer(token.integer) : Value::real(token.real);
    next();
    return made;
  }
  if (skip_operator("(")) {
    Expression* made = parse_tuple(true, true);
    return !failed_ && expect_operator(")") ? made : nullptr;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  return unexpected();
}

Expression* Parser::parse_name() {
  const Token& token = next();
  const std::string& name = token.text;
  const bool truth = name == "true" || name == "True";
  if (truth || name == "false" || name == "False" || name == "none" || name == "None") {
    Expression* made = node(ExpressionKind::kConstant, token.line);
    made->constant = name == "none" || name == "None" ? Value::none() : Value::boolean(truth);
    return made;
  }
  for (MacroDefinition* macro : macros_) {
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
    macro->uses_caller |= name == "caller";
  }
  Expression* made = node(ExpressionKind::kName, token.line);
  made->name = ast_.intern(name);
  return made;
}

Expression* Parser::parse_string() {
  Expression* made = node(ExpressionKind::kConstant, current().line);
  std::string text;
  while (current().is(TokenKind::kString)) text += next().text;
  made->constant = Value::object(Kind::kString, std::make_shared<StringObject>(ast_.heap, std::move(text)));
  return made;
}

Expression* Parser::parse_list() {
  Expression* made = node(ExpressionKind::kList, next().line);
  while (!failed_ && !current().is_operator("]")) {
    if (!made->items.empty() && !expect_operator(",")) return nullptr;
    if (current().is_operator("]")) break;
    made->items.push_back(parse_expression());
  }
  return !failed_ && expect_operator("]") ? made : nullptr;
}

Expression* Parser::parse_dict() {
  Expression* made = node(ExpressionKind::kDict, next().line);
  while (!failed_ && !current().is_operator("}")) {
    if (!made->items.empty() && !expect_operator(",")) return nullptr;
    if (current().is_operator("}")) break;
    made->items.push_back(parse_expression());
    if (failed_ || !expect_operator(":")) return nullptr;
    made->items.push_back(parse_expression());
  }
  return !failed_ && expect_operator("}") ? made : nullptr;
}

Expression* Parser::parse_postfix(Expression* expression) {
  while (!failed_) {
    if (current().is_operator("."))
      expression = parse_attribute(expression);
    else if (current().is_operator("["))
      expression = parse_subscript(expression);
    else if (current().is_operator("("))
      expression = parse_call(expression);
    else
      break;
  }
  return expression;
}

Expression* Parser::parse_filters_and_tests(Expression* expression) {
  while (!failed_) {
    if (skip_operator("|"))
      expression = parse_filter(expression);
    else if (current().is_name("is"))
      expression = parse_test(expression);
    else if (current().is_operator("("))
      expression = parse_call(expression);
    else
      break;
  }
  return expression;
}

Expression* Parser::parse_attribute(Expression* object) {
  const std::uint32_t line = next().line;
  const Token& token = next();
  if (token.is(TokenKind::kName)) {
    Expression* made = node(ExpressionKind::kAttribute, line);
    made->first = object;
    made->text = token.text;
    return made;
  }
  if (!token.is(TokenKind::kInteger)) return fail("expected name or number");
  Expression* made = node(ExpressionKind::kItem, line);
  made->first = object;
  made->second = node(ExpressionKind::kConstant, line);
  made->second->constant = Value::integer(token.integer);
  return made;
}

// object[key], object[a:b:c], object[a, b].
Expression* Parser::parse_subscript(Expression* object) {
  const std::uint32_t line = next().line;
  std::vector<Expression*> parts;
  while (!failed_ && !current().is_operator("]")) {
    if (!parts.empty() && !expect_operator(",")) return nullptr;
    parts.push_back(parse_subscribed(object));
  }
  if (failed_ || !expect_operator("]")) return nullptr;
  if (parts.size() == 1 && parts[0]->kind == ExpressionKind::kSlice && parts[0]->first == object)
    return parts[0];
  Expression* made = node(ExpressionKind::kItem, line);
  made->first = object;
  if (parts.size() == 1) {
    made->second = parts[0];
  } else {
    made->second = node(ExpressionKind::kTuple, line);
    made->second->items = std::move(parts);
  }
  return made;
}

Expression* Parser::parse_subscribed(Expression* object) {
  const std::uint32_t line = current().line;
  Expression* start = nullptr;
  if (!current().is_operator(":")) {
    start = parse_expression();
    if (failed_ || !current().is_operator(":")) return start;
  }
  next();
  Expression* made = node(ExpressionKind::kSlice, line);
  made->first = object;
  made->items = {start, nullptr, nullptr};
  const auto part = [&]() -> Expression* {
    const bool left_out =
        current().is_operator(":") || current().is_operator("]") || current().is_operator(",");
    return left_out ? nullptr : parse_expression();
  };
  made->items[1] = part();
  if (!failed_ && skip_operator(":")) made->items[2] = part();
  return made;
}

bool Parser::parse_argument(CallArguments& arguments) {
  const bool unpacked = arguments.unpacked_list != nullptr || arguments.unpacked_dict != nullptr;
  if (skip_operator("*")) {
    if (unpacked) fail("invalid syntax for function call expression");
    arguments.unpacked_list = parse_expression();
  } else if (skip_operator("**")) {
    if (arguments.unpacked_dict != nullptr) fail("invalid syntax for function call expression");
    arguments.unpacked_dict = parse_expression();
  } else if (current().is(TokenKind::kName) && ahead().is_operator("=")) {
    if (arguments.unpacked_dict != nullptr) fail("invalid syntax for function call expression");
    std::string name = next().text;
    next();
    for (const auto& [given, ignored] : arguments.named) {
      if (given == name) fail(fmt::format("keyword argument repeated: {}", name));
    }
    Expression* value = parse_expression();
    arguments.named.emplace_back(std::move(name), value);
  } else {
    if (unpacked || !arguments.named.empty()) fail("invalid syntax for function call expression");
    arguments.positional.push_back(parse_expression());
  }
  return !failed_;
}

bool Parser::parse_arguments(CallArguments& arguments) {
  if (!expect_operator("(")) return false;
  bool comma = false;
  while (!current().is_operator(")")) {
    if (comma) {
      if (!expect_operator(",")) return false;
      if (current().is_operator(")")) break;
    }
    if (!parse_argument(arguments)) return false;
    comma = true;
  }
  return expect_operator(")");
}

Expression* Parser::parse_call(Expression* callee) {
  Expression* made = node(ExpressionKind::kCall, current().line);
  made->first = callee;
  return parse_arguments(made->arguments) ? made : nullptr;
}

Expression* Parser::parse_filter(Expression* input) {
  Expression* made = node(ExpressionKind::kFilter, current().line);
  made->first = input;
  if (!expect_name(made->text)) return nullptr;
  made->builtin = find_filter(made->text);
  if (made->builtin == nullptr && conditional_depth_ == 0) {
    return fail(fmt::format("it uses the unknown filter \"{}\"", made->text), ErrorCode::kUnsupported);
  }
  if (current().is_operator("(") && !parse_arguments(made->arguments)) return nullptr;
  return made;
}

Expression* Parser::parse_test(Expression* subject) {
  const std::uint32_t line = next().line;
  const bool negated = skip_name("not");
  Expression* made = node(ExpressionKind::kTest, line);
  made->first = subject;
  if (!expect_name(made->text)) return nullptr;
  made->builtin = find_test(made->text);
  if (made->builtin == nullptr && conditional_depth_ == 0) {
    return fail(fmt::format("it uses the unknown test \"{}\"", made->text), ErrorCode::kUnsupported);
  }
  const Token& token = current();
  const bool ends = token.is_name("else") || token.is_name("or") || token.is_name("and");
  const bool begins = token.is(TokenKind::kName) || token.is(TokenKind::kString) ||
                      token.is(TokenKind::kInteger) || token.is(TokenKind::kFloat) ||
                      token.is_operator("[") || token.is_operator("{");
  if (token.is_operator("(")) {
    if (!parse_arguments(made->arguments)) return nullptr;
  } else if (begins && !ends) {
    if (token.is_name("is")) return fail("You cannot chain multiple tests with is");
    Expression* argument = parse_primary();
    if (failed_) return nullptr;
    made->arguments.positional.push_back(parse_postfix(argument));
  }
  if (!negated) return made;
  Expression* no = node(ExpressionKind::kNot, line);
  no->first = made;
  return no;
}

}  // namespace doppler::chat::jinja
