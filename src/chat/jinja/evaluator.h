// Runs a parsed template once.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/loop.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {

// Nested evaluations (expressions, statements, macro calls together): about 300 bytes of stack each, several
// times that under a sanitizer, so that a render fits a thread's usual stack.
inline constexpr int kMaxEvaluationDepth = 1000;

// Variables of one block. Blocks are short, so a scan is the fastest lookup.
struct Scope {
  explicit Scope(Scope* outer) : parent(outer) {}
  Scope* parent;
  bool kept = false;
  std::vector<std::pair<NameId, Value>> variables;
};

struct MacroObject : Object {
  MacroObject(Heap& owner, const MacroDefinition& macro, Scope* outer)
      : Object(owner, sizeof(MacroObject)), definition(macro), scope(outer) {}
  const MacroDefinition& definition;
  Scope* scope;  // kept by the evaluator
};

class Evaluator : public Runtime {
 public:
  Evaluator(const Ast& ast, const Limits& limits, std::optional<std::tm> now)
      : Runtime(limits), ast_(ast), now_(now) {}
  ~Evaluator() override;

  // Variables by name; a later one replaces an earlier one.
  void define(const std::string& name, Value value);
  Result<std::string> render();
  std::uint32_t line() const { return line_; }

  Result<Value> call(const Value& callee, const Arguments& arguments) override;
  std::tm now() const override;

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };
  using Evaluate = Result<Value> (Evaluator::*)(const Expression&);
  using Execute = Result<Flow> (Evaluator::*)(const Statement&);
  static const Evaluate kEvaluate[];
  static const Execute kExecute[];

  // A block's scope, current while it lives.
  class ScopeGuard {
   public:
    ScopeGuard(Evaluator& evaluator, Scope* parent);
    ~ScopeGuard();
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;
    Scope& operator*() const { return *scope_; }

   private:
    Evaluator& evaluator_;
    Scope* previous_;
    std::unique_ptr<Scope> scope_;
  };

  // Expressions (evaluate_expression.cpp).
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_constant(const Expression& expression);
  Result<Value> evaluate_name(const Expression& expression);
  Result<Value> evaluate_tuple(const Expression& expression);
  Result<Value> evaluate_list(const Expression& expression);
  Result<Value> evaluate_dict(const Expression& expression);
  Result<Value> evaluate_attribute(const Expression& expression);
  Result<Value> evaluate_item(const Expression& expression);
  Result<Value> evaluate_slice(const Expression& expression);
  Result<Value> evaluate_call(const Expression& expression);
  Result<Value> evaluate_filter(const Expression& expression);
  Result<Value> evaluate_test(const Expression& expression);
  Result<Value> evaluate_binary(const Expression& expression);
  Result<Value> evaluate_compare(const Expression& expression);
  Result<Value> evaluate_and(const Expression& expression);
  Result<Value> evaluate_or(const Expression& expression);
  Result<Value> evaluate_not(const Expression& expression);
  Result<Value> evaluate_negate(const Expression& expression);
  Result<Value> evaluate_plus(const Expression& expression);
  Result<Value> evaluate_concatenate(const Expression& expression);
  Result<Value> evaluate_conditional(const Expression& expression);
  Result<Values> evaluate_all(const std::vector<Expression*>& expressions);
  Result<Arguments> evaluate_arguments(const CallArguments& arguments);
  // The input of a filter block's or set block's innermost filter.
  Result<Value> evaluate_filters(const Expression* filters, Value input);

  // Statements (execute_statement.cpp).
  Result<Flow> execute_body(const Body& body);
  Result<Flow> execute_text(const Statement& statement);
  Result<Flow> execute_print(const Statement& statement);
  Result<Flow> execute_if(const Statement& statement);
  Result<Flow> execute_for(const Statement& statement);
  Result<Flow> execute_set(const Statement& statement);
  Result<Flow> execute_set_block(const Statement& statement);
  Result<Flow> execute_macro(const Statement& statement);
  Result<Flow> execute_call_block(const Statement& statement);
  Result<Flow> execute_filter_block(const Statement& statement);
  Result<Flow> execute_with(const Statement& statement);
  Result<Flow> execute_scope(const Statement& statement);
  Result<Flow> execute_break(const Statement& statement);
  Result<Flow> execute_continue(const Statement& statement);
  Result<Flow> run_loop(const Statement& statement, const Items& items, std::size_t depth0);
  Result<Items> loop_items(const Statement& statement, const Value& source);
  // The text that a body prints, in a scope of its own.
  Result<std::string> capture(const Body& body, Scope* scope);
  Status assign(const Target& target, Value value, Scope& scope);
  Status print(std::string_view text);

  // Macros (macros.cpp).
  Value make_macro(const MacroDefinition& definition);
  Result<Value> call_macro(const MacroObject& macro, const Arguments& arguments);
  Status bind_parameters(const MacroObject& macro, const Arguments& arguments, Scope& scope);
  void keep_scopes(Scope* scope);

  const Value* find_variable(NameId name) const;
  static void set_variable(Scope& scope, NameId name, Value value);

  const Ast& ast_;
  std::optional<std::tm> now_;
  std::vector<std::optional<Value>> context_;  // by NameId
  std::vector<std::unique_ptr<Scope>> kept_;   // scopes that macros refer to
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  std::uint32_t line_ = 1;
  int depth_ = 0;
  const Value* filter_input_ = nullptr;  // of a filter block's innermost filter
};

}  // namespace doppler::chat::jinja
