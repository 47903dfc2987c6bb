// The parsed template. Nodes live in one arena and point to each other, so freeing them needs no recursion.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "chat/jinja/builtin.h"
#include "chat/jinja/value.h"

namespace doppler::chat::jinja {

using NameId = std::uint32_t;

// Names the evaluator itself defines; every Ast knows them under these ids.
inline constexpr NameId kLoopName = 0, kCallerName = 1, kVarargsName = 2, kKwargsName = 3;

enum class Operator : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

enum class ExpressionKind : std::uint8_t {
  kConstant,     // constant
  kName,         // name
  kTuple,        // items
  kList,         // items
  kDict,         // items: key, value, key, value ...
  kAttribute,    // first.text
  kItem,         // first[second]
  kSlice,        // first[items[0]:items[1]:items[2]], null where left out
  kCall,         // first(arguments)
  kFilter,       // first | text(arguments); first is null in filter blocks
  kTest,         // first is text(arguments)
  kBinary,       // first op second
  kCompare,      // first operators[0] items[0] operators[1] items[1] ...
  kAnd,          // first and second
  kOr,           // first or second
  kNot,          // not first
  kNegate,       // -first
  kPlus,         // +first
  kConcatenate,  // items joined with ~
  kConditional,  // first if second else third; third may be null
  kCount,
};

struct Expression;

struct CallArguments {
  std::vector<Expression*> positional;
  std::vector<std::pair<std::string, Expression*>> named;
  Expression* unpacked_list = nullptr;  // *expression
  Expression* unpacked_dict = nullptr;  // **expression
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  Operator op = Operator::kAdd;
  std::uint32_t line = 1;
  NameId name = 0;
  std::string text;
  Value constant;
  Expression* first = nullptr;
  Expression* second = nullptr;
  Expression* third = nullptr;
  std::vector<Expression*> items;
  std::vector<Operator> operators;
  CallArguments arguments;
  const Builtin* builtin = nullptr;  // of a filter or test; null if unknown
};

// The left side of `set` and the variables of `for`.
struct Target {
  enum class Kind : std::uint8_t { kName, kField, kTuple } kind = Kind::kName;
  NameId name = 0;
  std::string field;          // namespace.field
  std::vector<Target> parts;  // of a tuple; nested no deeper than the parser's bound
};

enum class StatementKind : std::uint8_t {
  kText,       // text
  kPrint,      // expression
  kIf,         // branches; body is the else part
  kFor,        // target in expression if condition: body, else otherwise
  kSet,        // target = expression
  kSetBlock,   // target = body, through the filter in `expression` (or null)
  kMacro,      // macro
  kCallBlock,  // expression (a call) with macro as `caller`
  kFilterBlock,
  kWith,   // targets and values
  kScope,  // a body with its own scope: generation, block
  kBreak,
  kContinue,
  kCount,
};

struct Statement;
using Body = std::vector<Statement*>;

struct Branch {
  Expression* condition;
  Body body;
};

struct MacroDefinition {
  std::string title;
  NameId name = 0;
  std::vector<NameId> parameters;
  std::vector<std::string> parameter_names;
  std::vector<Expression*> defaults;  // of the last parameters
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  std::uint32_t line = 1;
  std::string text;
  Expression* expression = nullptr;
  Expression* condition = nullptr;
  Target target;
  std::vector<Target> targets;
  std::vector<Expression*> values;
  std::vector<Branch> branches;
  Body body, otherwise;
  bool recursive = false;
  MacroDefinition macro;
};

struct Ast {
  Ast() : heap(~std::size_t{0}, ~std::size_t{0}) {
    for (const char* name : {"loop", "caller", "varargs", "kwargs"}) intern(name);
  }
  Heap heap;  // of the constants
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  std::vector<std::string> names;  // by NameId
  std::unordered_map<std::string, NameId> name_ids;
  Body body;

  NameId intern(const std::string& name) {
    const auto [found, fresh] = name_ids.emplace(name, static_cast<NameId>(names.size()));
    if (fresh) names.push_back(name);
    return found->second;
  }
};

}  // namespace doppler::chat::jinja
