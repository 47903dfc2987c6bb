#include "chat/jinja/parser.h"

#include <algorithm>

#include "chat/jinja/parser_core.h"

namespace doppler::chat::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kString:
      return "string";
    case TokenKind::kEnd:
      return "end of template";
    default:
      return token.text;
  }
}

}  // namespace

const Parser::StatementRule Parser::kStatementRules[] = {
    {"if", &Parser::parse_if},
    {"for", &Parser::parse_for},
    {"set", &Parser::parse_set},
    {"macro", &Parser::parse_macro},
    {"call", &Parser::parse_call_block},
    {"filter", &Parser::parse_filter_block},
    {"with", &Parser::parse_with},
    {"generation", &Parser::parse_generation},
    {"block", &Parser::parse_named_block},
    {"print", &Parser::parse_print},
    {"break", &Parser::parse_break},
    {"continue", &Parser::parse_continue},
};

Parser::Depth::Depth(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ > kMaxParseDepth) {
    ok = false;
    parser_.fail(fmt::format("it nests deeper than {} levels", kMaxParseDepth), ErrorCode::kLimit);
  }
}

const Token& Parser::next() {
  const Token& token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}

bool Parser::skip_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  next();
  return true;
}

bool Parser::expect_operator(std::string_view op) {
  if (skip_operator(op)) return true;
  fail(fmt::format("expected token '{}', got '{}'", op, describe(current())));
  return false;
}

bool Parser::expect(TokenKind kind) {
  if (current().is(kind)) {
    next();
    return true;
  }
  Token wanted;
  wanted.kind = kind;
  fail(fmt::format("expected token '{}', got '{}'", describe(wanted), describe(current())));
  return false;
}

bool Parser::expect_name(std::string& name) {
  if (!current().is(TokenKind::kName)) {
    fail(fmt::format("expected token 'name', got '{}'", describe(current())));
    return false;
  }
  name = next().text;
  return true;
}

std::nullptr_t Parser::fail(std::string message, ErrorCode code) {
  if (!failed_) error_ = {current().line, std::move(message), code};
  failed_ = true;
  return nullptr;
}

std::nullptr_t Parser::unexpected() {
  return fail(fmt::format("unexpected '{}'", describe(current())));
}

Expression* Parser::node(ExpressionKind kind, std::uint32_t line) {
  Expression& made = ast_.expressions.emplace_back();
  made.kind = kind;
  made.line = line;
  return &made;
}

Statement* Parser::statement(StatementKind kind) {
  Statement& made = ast_.statements.emplace_back();
  made.kind = kind;
  made.line = current().line;
  return &made;
}

bool Parser::parse() {
  return parse_body(ast_.body, {}) && !failed_;
}

// Text, prints and statements until one of the end names (not consumed) or, without any, the end of the
// template.
bool Parser::parse_body(Body& body, const EndNames& ends) {
  const Depth depth(*this);
  while (depth.ok && !failed_) {
    const Token& token = current();
    if (token.is(TokenKind::kEnd)) {
      if (ends.empty()) return true;
      fail(fmt::format("unexpected end of template; the innermost block that needs to be closed is '{}'",
                       open_.empty() ? "" : open_.back()));
      return false;
    }
    if (token.is(TokenKind::kData)) {
      Statement* text = statement(StatementKind::kText);
      text->text = token.text;
      body.push_back(text);
      next();
    } else if (token.is(TokenKind::kVariableBegin)) {
      next();
      Statement* print = statement(StatementKind::kPrint);
      print->expression = parse_tuple(true, false);
      body.push_back(print);
      if (failed_ || !expect(TokenKind::kVariableEnd)) return false;
    } else {
      next();
      for (const std::string_view end : ends) {
        if (current().is_name(end)) return true;
      }
      Statement* made = parse_statement();
      if (failed_ || !expect(TokenKind::kBlockEnd)) return false;
      body.push_back(made);
    }
  }
  return false;
}

// The end of the opening tag and the body behind it.
bool Parser::parse_block(Body& body, const EndNames& ends) {
  skip_operator(":");
  return expect(TokenKind::kBlockEnd) && parse_body(body, ends);
}

bool Parser::parse_tail(Body& body, std::string_view end) {
  if (!parse_block(body, {end})) return false;
  next();
  return true;
}

Statement* Parser::parse_statement() {
  if (!current().is(TokenKind::kName)) return fail("tag name expected");
  for (const StatementRule& rule : kStatementRules) {
    if (!current().is_name(rule.name)) continue;
    open_.push_back(current().text);
    Statement* made = (this->*rule.parse)();
    open_.pop_back();
    return made;
  }
  const std::string& name = current().text;
  if (name.starts_with("end") || name == "else" || name == "elif") {
    return fail(
        fmt::format("Encountered unknown tag '{}'{}", name,
                    open_.empty() ? "" : fmt::format("; the innermost open block is '{}'", open_.back())));
  }
  return fail(fmt::format("it uses the unknown statement \"{}\"", name), ErrorCode::kUnsupported);
}

Statement* Parser::parse_if() {
  Statement* made = statement(StatementKind::kIf);
  ++conditional_depth_;
  bool more = true;
  while (more) {
    next();  // if or elif
    Branch branch{parse_tuple(false, false), {}};
    if (failed_ || !parse_block(branch.body, {"elif", "else", "endif"})) return nullptr;
    made->branches.push_back(std::move(branch));
    more = current().is_name("elif");
  }
  if (skip_name("else")) {
    if (!parse_tail(made->body, "endif")) return nullptr;
  } else {
    next();
  }
  --conditional_depth_;
  return made;
}

Statement* Parser::parse_for() {
  Statement* made = statement(StatementKind::kFor);
  next();
  if (!parse_target(made->target, false, true)) return nullptr;
  if (!skip_name("in")) return fail(fmt::format("expected token 'in', got '{}'", describe(current())));
  made->expression = parse_tuple(false, false, true);
  if (!failed_ && skip_name("if")) made->condition = parse_expression();
  if (failed_) return nullptr;
  made->recursive = skip_name("recursive");
  ++loop_depth_;
  if (!parse_block(made->body, {"endfor", "else"})) return nullptr;
  --loop_depth_;
  if (skip_name("else")) {
    if (!parse_tail(made->otherwise, "endfor")) return nullptr;
  } else {
    next();
  }
  return made;
}

Statement* Parser::parse_set() {
  Statement* made = statement(StatementKind::kSet);
  next();
  if (!parse_target(made->target, true, false)) return nullptr;
  if (skip_operator("=")) {
    made->expression = parse_tuple(true, false);
    return made;
  }
  made->kind = StatementKind::kSetBlock;
  while (!failed_ && skip_operator("|")) made->expression = parse_filter(made->expression);
  if (failed_ || !parse_tail(made->body, "endset")) return nullptr;
  return made;
}

bool Parser::parse_signature(MacroDefinition& macro) {
  if (!expect_operator("(")) return false;
  while (!current().is_operator(")")) {
    if (!macro.parameters.empty() && !expect_operator(",")) return false;
    std::string name;
    if (!expect_name(name)) return false;
    if (skip_operator("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      fail("non-default argument follows default argument");
    }
    if (failed_) return false;
    macro.parameters.push_back(ast_.intern(name));
    macro.parameter_names.push_back(std::move(name));
  }
  next();
  return true;
}

bool Parser::parse_macro_body(MacroDefinition& macro, std::string_view end) {
  macros_.push_back(&macro);
  const int outer_loops = std::exchange(loop_depth_, 0);
  const bool ok = parse_tail(macro.body, end);
  loop_depth_ = outer_loops;
  macros_.pop_back();
  return ok;
}

Statement* Parser::parse_macro() {
  Statement* made = statement(StatementKind::kMacro);
  next();
  if (!expect_name(made->macro.title)) return nullptr;
  made->macro.name = ast_.intern(made->macro.title);
  if (!parse_signature(made->macro) || !parse_macro_body(made->macro, "endmacro")) return nullptr;
  return made;
}

Statement* Parser::parse_call_block() {
  Statement* made = statement(StatementKind::kCallBlock);
  next();
  made->macro.title = "caller";
  if (current().is_operator("(") && !parse_signature(made->macro)) return nullptr;
  made->expression = parse_expression();
  if (failed_) return nullptr;
  if (made->expression->kind != ExpressionKind::kCall) return fail("expected call");
  if (!parse_macro_body(made->macro, "endcall")) return nullptr;
  return made;
}

Statement* Parser::parse_filter_block() {
  Statement* made = statement(StatementKind::kFilterBlock);
  next();
  made->expression = parse_filter(nullptr);
  while (!failed_ && skip_operator("|")) made->expression = parse_filter(made->expression);
  if (failed_ || !parse_tail(made->body, "endfilter")) return nullptr;
  return made;
}

Statement* Parser::parse_with() {
  Statement* made = statement(StatementKind::kWith);
  next();
  while (!current().is(TokenKind::kBlockEnd)) {
    if (!made->targets.empty() && !expect_operator(",")) return nullptr;
    if (!parse_target(made->targets.emplace_back(), false, false) || !expect_operator("=")) return nullptr;
    made->values.push_back(parse_expression());
    if (failed_) return nullptr;
  }
  if (!parse_tail(made->body, "endwith")) return nullptr;
  return made;
}

// transformers' own statement: its body, whose place in the output the training code remembers. It is a call
// block to Jinja, so `break` cannot leave it.
Statement* Parser::parse_generation() {
  Statement* made = statement(StatementKind::kScope);
  next();
  const int outer_loops = std::exchange(loop_depth_, 0);
  const bool ok = parse_tail(made->body, "endgeneration");
  loop_depth_ = outer_loops;
  return ok ? made : nullptr;
}

// Without inheritance a block is its body.
Statement* Parser::parse_named_block() {
  Statement* made = statement(StatementKind::kScope);
  next();
  std::string name;
  if (!expect_name(name)) return nullptr;
  skip_name("scoped");
  if (!parse_tail(made->body, "endblock")) return nullptr;
  skip_name(name);
  return made;
}

Statement* Parser::parse_print() {
  Statement* made = statement(StatementKind::kPrint);
  next();
  Expression* all = node(ExpressionKind::kConcatenate, current().line);
  while (!current().is(TokenKind::kBlockEnd)) {
    if (!all->items.empty() && !expect_operator(",")) return nullptr;
    all->items.push_back(parse_expression());
    if (failed_) return nullptr;
  }
  made->expression = all;
  return made;
}

Statement* Parser::parse_break() {
  if (loop_depth_ == 0) return fail("'break' stands outside a loop");
  Statement* made = statement(StatementKind::kBreak);
  next();
  return made;
}

Statement* Parser::parse_continue() {
  if (loop_depth_ == 0) return fail("'continue' stands outside a loop");
  Statement* made = statement(StatementKind::kContinue);
  next();
  return made;
}

// a, or a, b, or (with `fields`) namespace.field, as in set, for and with.
bool Parser::parse_target(Target& target, bool fields, bool stop_at_in) {
  const Depth depth(*this);
  if (!depth.ok || !parse_target_part(target, fields)) return false;
  if (!current().is_operator(",")) return true;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.parts.push_back(std::move(target));
  while (skip_operator(",")) {
    if (current().is_operator("=") || current().is_operator(")") || (stop_at_in && current().is_name("in")))
      break;
    if (!parse_target_part(tuple.parts.emplace_back(), fields)) return false;
  }
  target = std::move(tuple);
  return true;
}

bool Parser::parse_target_part(Target& target, bool fields) {
  if (skip_operator("(")) return parse_target(target, fields, false) && expect_operator(")");
  std::string name;
  if (!expect_name(name)) return false;
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) {
      fail("can't assign to 'const'");
      return false;
    }
  }
  target.name = ast_.intern(name);
  if (!fields || !skip_operator(".")) return true;
  target.kind = Target::Kind::kField;
  return expect_name(target.field);
}

std::expected<std::shared_ptr<const Ast>, SyntaxError> parse_template(std::string_view source) {
  auto tokens = tokenize_template(source);
  if (!tokens) return std::unexpected(std::move(tokens).error());
  auto ast = std::make_shared<Ast>();
  Parser parser(std::move(*tokens), *ast);
  if (!parser.parse()) return std::unexpected(parser.error());
  return ast;
}

}  // namespace doppler::chat::jinja
