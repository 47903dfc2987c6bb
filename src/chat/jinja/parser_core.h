// The parser's class; its statements are in parser.cpp, its expressions in parse_expression.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"

namespace doppler::chat::jinja {

// The first error wins: it is stored, every parse function then returns null at once.
class Parser {
 public:
  Parser(std::vector<Token> tokens, Ast& ast) : tokens_(std::move(tokens)), ast_(ast) {}
  bool parse();
  const SyntaxError& error() const { return error_; }

 private:
  // Keywords that end a body.
  using EndNames = std::vector<std::string_view>;
  struct StatementRule {
    std::string_view name;
    Statement* (Parser::*parse)();
  };
  static const StatementRule kStatementRules[];

  // Counts the nesting while it lives; `ok` is false beyond the bound.
  class Depth {
   public:
    explicit Depth(Parser& parser);
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    bool ok = true;

   private:
    Parser& parser_;
  };

  const Token& current() const { return tokens_[position_]; }
  const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& next();
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  bool expect_operator(std::string_view op);
  bool expect(TokenKind kind);
  bool expect_name(std::string& name);
  std::nullptr_t fail(std::string message, ErrorCode code = ErrorCode::kCorrupt);
  std::nullptr_t unexpected();
  Expression* node(ExpressionKind kind, std::uint32_t line);
  Statement* statement(StatementKind kind);

  // Statements.
  bool parse_body(Body& body, const EndNames& ends);
  bool parse_block(Body& body, const EndNames& ends);
  bool parse_tail(Body& body, std::string_view end);
  Statement* parse_statement();
  Statement* parse_if();
  Statement* parse_for();
  Statement* parse_set();
  Statement* parse_macro();
  Statement* parse_call_block();
  Statement* parse_filter_block();
  Statement* parse_with();
  Statement* parse_generation();
  Statement* parse_named_block();
  Statement* parse_print();
  Statement* parse_break();
  Statement* parse_continue();
  bool parse_signature(MacroDefinition& macro);
  bool parse_macro_body(MacroDefinition& macro, std::string_view end);
  bool parse_target(Target& target, bool fields, bool stop_at_in);
  bool parse_target_part(Target& target, bool fields);

  // Expressions.
  bool at_tuple_end(bool stop_at_recursive) const;
  Expression* parse_tuple(bool conditional, bool parenthesised, bool stop_at_recursive = false);
  Expression* parse_expression(bool conditional = true);
  Expression* parse_or();
  Expression* parse_and();
  Expression* parse_not();
  Expression* parse_compare();
  Expression* parse_sum();
  Expression* parse_concatenation();
  Expression* parse_product();
  Expression* parse_power();
  Expression* parse_unary(bool filters);
  Expression* parse_primary();
  Expression* parse_name();
  Expression* parse_string();
  Expression* parse_list();
  Expression* parse_dict();
  Expression* parse_postfix(Expression* expression);
  Expression* parse_filters_and_tests(Expression* expression);
  Expression* parse_attribute(Expression* object);
  Expression* parse_subscript(Expression* object);
  Expression* parse_subscribed(Expression* object);
  Expression* parse_call(Expression* callee);
  Expression* parse_filter(Expression* input);
  Expression* parse_test(Expression* subject);
  bool parse_arguments(CallArguments& arguments);
  bool parse_argument(CallArguments& arguments);
  Expression* binary(Operator op, Expression* left, Expression* right, std::uint32_t line);

  std::vector<Token> tokens_;
  Ast& ast_;
  std::size_t position_ = 0;
  int depth_ = 0;
  int conditional_depth_ = 0;  // inside `if`: unknown filters are errors only when reached
  int loop_depth_ = 0;
  std::vector<MacroDefinition*> macros_;  // being parsed, innermost last
  std::vector<std::string> open_;         // statements being parsed, for messages
  bool failed_ = false;
  SyntaxError error_;
};

}  // namespace doppler::chat::jinja
