#include "backend/gpu/shader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <list>
#include <set>
#include <vector>

#include "backend/gpu/embedded_shaders.h"

namespace doppler::gpu {
namespace {

std::map<std::string, std::string, std::less<>>& replaced_shaders() {
  static std::map<std::string, std::string, std::less<>> replaced;
  return replaced;
}

std::string_view shader_text(std::string_view name) {
  const auto& replaced = replaced_shaders();
  if (const auto found = replaced.find(name); found != replaced.end()) return found->second;
  for (const EmbeddedShader& shader : embedded_shaders()) {
    if (shader.name == name) return shader.text;
  }
  return {};
}

bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_name_part(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

// Names and their values, and which were asked for.
class Scope {
 public:
  Scope(const ShaderValues& values, const ShaderValues& common) : values_(common) {
    for (const auto& [name, value] : values) values_[name] = value;
  }
  void set(std::string_view name, std::int64_t value) { values_[std::string(name)] = value; }
  void unset(std::string_view name) { values_.erase(std::string(name)); }
  const std::int64_t* find(std::string_view name) {
    const auto found = values_.find(name);
    if (found == values_.end()) return nullptr;
    used_.insert(found->first);
    return &found->second;
  }
  bool has(std::string_view name) const { return values_.contains(name); }
  // The values whose names begin so, without that beginning; they count as used.
  ShaderValues take(std::string_view beginning) {
    ShaderValues taken;
    for (const auto& [name, value] : values_) {
      if (!name.starts_with(beginning)) continue;
      used_.insert(name);
      taken[name.substr(beginning.size())] = value;
    }
    return taken;
  }
  bool used(const std::string& name) const { return used_.contains(name); }

 private:
  ShaderValues values_;
  std::set<std::string, std::less<>> used_;
};

// Precedence climbing over integer expressions.
class Expression {
 public:
  Expression(std::string_view text, Scope& scope) : text_(text), scope_(scope) {}

  Result<std::int64_t> value() {
    DOPPLER_ASSIGN(const std::int64_t result, binary(0));
    skip();
    if (at_ != text_.size()) return bad();
    return result;
  }

 private:
  struct Operator {
    std::string_view text;
    int level;
    std::int64_t (*apply)(std::int64_t, std::int64_t);
  };
  // Longer spellings first.
  static constexpr Operator kOperators[] = {
      {"||", 0, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a != 0 || b != 0; }},
      {"&&", 1, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a != 0 && b != 0; }},
      {"==", 2, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a == b; }},
      {"!=", 2, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a != b; }},
      {"<<", 4, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a << (b & 63); }},
      {">>", 4, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a >> (b & 63); }},
      {"<=", 3, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a <= b; }},
      {">=", 3, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a >= b; }},
      {"<", 3, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a < b; }},
      {">", 3, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a > b; }},
      {"+", 5, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a + b; }},
      {"-", 5, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a - b; }},
      {"*", 6, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a * b; }},
      {"/", 6, [](std::int64_t a, std::int64_t b) -> std::int64_t { return b == 0 ? 0 : a / b; }},
      {"%", 6, [](std::int64_t a, std::int64_t b) -> std::int64_t { return b == 0 ? 0 : a % b; }},
  };
  static constexpr int kDeepest = 64;  // nested parentheses; ours have two or three

  std::unexpected<Error> bad() const {
    return fail(ErrorCode::kInternal, "the expression \"{}\" is broken at character {}", text_, at_);
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  Result<std::int64_t> binary(int level) {
    DOPPLER_ASSIGN(std::int64_t left, unary());
    while (true) {
      skip();
      const Operator* found = nullptr;
      for (const Operator& candidate : kOperators) {
        if (text_.substr(at_).starts_with(candidate.text)) {
          found = &candidate;
          break;
        }
      }
      if (found == nullptr || found->level < level) return left;
      at_ += found->text.size();
      // As in C, an operand that && or || does not need may have no value.
      const bool needless = (found->text == "&&" && left == 0) || (found->text == "||" && left != 0);
      needless_ += needless ? 1 : 0;
      DOPPLER_ASSIGN(const std::int64_t right, binary(found->level + 1));
      needless_ -= needless ? 1 : 0;
      left = found->apply(left, right);
    }
  }

  Result<std::int64_t> unary() {
    if (++depth_ > kDeepest) return bad();
    Result<std::int64_t> result = primary();
    --depth_;
    return result;
  }

  Result<std::int64_t> primary() {
    if (take("!")) {
      DOPPLER_ASSIGN(const std::int64_t inner, unary());
      return static_cast<std::int64_t>(inner == 0);
    }
    if (take("-")) {
      DOPPLER_ASSIGN(const std::int64_t inner, unary());
      return -inner;
    }
    if (take("(")) {
      DOPPLER_ASSIGN(const std::int64_t inner, binary(0));
      if (!take(")")) return bad();
      return inner;
    }
    skip();
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      std::int64_t number = 0;
      for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_)
        number = number * 10 + (text_[at_] - '0');
      return number;
    }
    if (at_ >= text_.size() || !is_name_start(text_[at_])) return bad();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_part(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "min" || name == "max") {
      if (!take("(")) return bad();
      DOPPLER_ASSIGN(const std::int64_t a, binary(0));
      if (!take(",")) return bad();
      DOPPLER_ASSIGN(const std::int64_t b, binary(0));
      if (!take(")")) return bad();
      return name == "min" ? std::min(a, b) : std::max(a, b);
    }
    const std::int64_t* value = scope_.find(name);
    if (value == nullptr && needless_ > 0) return 0;
    if (value == nullptr) return fail(ErrorCode::kInternal, "the name {} has no value", name);
    return *value;
  }

  std::string_view text_;
  Scope& scope_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int needless_ = 0;
};

// Splits WGSL without comments into identifiers and numbers, white space, and single other characters.
std::vector<std::string_view> tokens_of(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  std::vector<std::string_view> tokens;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (is_name_part(text[at])) {
      while (end < text.size() && is_name_part(text[end])) ++end;
    } else if (is_space(text[at])) {
      while (end < text.size() && is_space(text[end])) ++end;
    }
    tokens.push_back(text.substr(at, end - at));
    at = end;
  }
  return tokens;
}

// The names that a text declares outside of functions and structures.
std::set<std::string_view> declared_names(const std::vector<std::string_view>& tokens) {
  static constexpr std::string_view kWords[] = {"fn", "var", "const", "struct", "alias", "override"};
  std::set<std::string_view> names;
  int depth = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == "{" || tokens[i] == "(") ++depth;
    if (tokens[i] == "}" || tokens[i] == ")") --depth;
    if (depth != 0 || std::ranges::find(kWords, tokens[i]) == std::end(kWords)) continue;
    // `var<storage, read> name`: what stands in angle brackets is no name.
    int angles = 0;
    for (++i; i < tokens.size(); ++i) {
      if (tokens[i] == "<") ++angles;
      if (tokens[i] == ">") --angles;
      if (angles == 0 && is_name_start(tokens[i].front())) break;
    }
    if (i < tokens.size()) names.insert(tokens[i]);
  }
  return names;
}

// A shader's text as part of another: names that it declares begin with `name`_, its bindings' numbers are
// `first_binding` higher, and main() is a function of what the entry point was given.
std::string as_module(std::string_view text, std::string_view name, std::uint32_t first_binding) {
  const std::vector<std::string_view> tokens = tokens_of(text);
  const std::set<std::string_view> own = declared_names(tokens);
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view next = i + 1 < tokens.size() ? tokens[i + 1] : std::string_view();
    if (tokens[i] == "@" && (next == "compute" || next == "workgroup_size" || next == "builtin")) {
      ++i;
      if (next == "compute") continue;
      while (i < tokens.size() && tokens[i] != ")") ++i;
      continue;
    }
    if (tokens[i] == "@" && next == "binding" && i + 3 < tokens.size()) {
      out += fmt::format("@binding({}", first_binding + std::atoi(std::string(tokens[i + 3]).c_str()));
      i += 3;
      continue;
    }
    const bool is_member = i > 0 && tokens[i - 1] == ".";
    if (!is_member && own.contains(tokens[i])) {
      out += name;
      out += '_';
    }
    out += tokens[i];
  }
  return out;
}

struct Line {
  std::string_view text;
  std::string_view file;
  std::size_t number;
};

class Expander {
 public:
  Expander(const ShaderValues& values, const ShaderValues& common, std::span<const ShaderEdit> edits)
      : scope_(values, common), common_(common), edits_(edits) {}

  Result<std::string> run(std::string_view file, std::string_view text, const ShaderValues& values) {
    included_.insert(file);
    DOPPLER_ASSIGN(text, edited(file, text));
    const Lines whole = split(file, text);
    DOPPLER_TRY(lines(whole, 0, whole.size()));
    for (const auto& [name, value] : values) {
      if (!scope_.used(name))
        return fail(ErrorCode::kInternal, "The shader {} does not use the value {} = {}.", file, name, value);
    }
    return std::move(out_);
  }

 private:
  using Lines = std::vector<Line>;

  Result<std::string_view> edited(std::string_view file, std::string_view text) {
    for (const ShaderEdit& edit : edits_) {
      if (edit.file != file) continue;
      std::string changed(text);
      std::size_t count = 0;
      for (std::size_t at = changed.find(edit.from); at != std::string::npos;
           at = changed.find(edit.from, at + edit.to.size()), ++count) {
        changed.replace(at, edit.from.size(), edit.to);
      }
      if (count == 0)
        return fail(ErrorCode::kInternal, "The shader {} has no text {} to edit.", file, edit.from);
      edited_.push_back(std::move(changed));
      text = edited_.back();
    }
    return text;
  }

  static Lines split(std::string_view file, std::string_view text) {
    Lines lines;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      lines.push_back({text.substr(0, end), file, lines.size() + 1});
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
  }

  static std::unexpected<Error> at(const Line& line, std::string_view what) {
    return fail(ErrorCode::kInternal, "The shader {} is wrong in line {}: {}.", line.file, line.number, what);
  }

  Result<std::int64_t> evaluate(const Line& line, std::string_view expression) {
    auto value = Expression(trim(expression), scope_).value();
    if (!value) return at(line, value.error().message);
    return value;
  }

  // The directive that closes the block opened at `begin`, or the next #elif / #else of it.
  static Result<std::size_t> matching(const Lines& all, std::size_t begin, std::size_t end,
                                      bool stop_at_else) {
    int depth = 0;
    for (std::size_t i = begin + 1; i < end; ++i) {
      const std::string_view text = trim(all[i].text);
      if (text.starts_with("#if ") || text.starts_with("#for ")) ++depth;
      if (depth == 0 && stop_at_else && (text.starts_with("#elif ") || text == "#else")) return i;
      if (text == "#endif" || text == "#endfor") {
        if (depth == 0) return i;
        --depth;
      }
    }
    return at(all[begin], "the block has no end");
  }

  Status lines(const Lines& all, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const Line& line = all[i];
      const std::string_view text = trim(line.text);
      if (text.starts_with("#if ")) {
        DOPPLER_ASSIGN(i, conditional(all, i, end));
      } else if (text.starts_with("#for ")) {
        DOPPLER_ASSIGN(i, loop(all, i, end));
      } else if (text.starts_with("#define ")) {
        DOPPLER_TRY(define(line, trim(text.substr(8)), false));
      } else if (text.starts_with("#default ")) {
        DOPPLER_TRY(define(line, trim(text.substr(9)), true));
      } else if (text.starts_with("#module ")) {
        DOPPLER_TRY(module(line, trim(text.substr(8))));
      } else if (text.starts_with("#include ")) {
        DOPPLER_TRY(include(line, trim(text.substr(9))));
      } else if (text.starts_with("#sum ")) {
        DOPPLER_TRY(sum(line, text.substr(5)));
      } else if (text.starts_with("#")) {
        return at(line, "the directive is unknown or has no beginning");
      } else {
        DOPPLER_TRY(plain(line));
      }
    }
    return {};
  }

  Result<std::size_t> conditional(const Lines& all, std::size_t begin, std::size_t end) {
    bool taken = false, had_else = false;
    std::size_t i = begin;
    while (true) {
      const std::string_view text = trim(all[i].text);
      DOPPLER_ASSIGN(const std::size_t next, matching(all, i, end, true));
      bool holds = text == "#else";
      if (had_else) return at(all[i], holds ? "#else comes twice" : "#elif comes after #else");
      had_else = holds;
      if (!holds && !taken) {
        DOPPLER_ASSIGN(const std::int64_t value,
                       evaluate(all[i], text.substr(text.starts_with("#if ") ? 4 : 6)));
        holds = value != 0;
      }
      if (holds && !taken) {
        taken = true;
        DOPPLER_TRY(lines(all, i + 1, next));
      }
      if (trim(all[next].text) == "#endif") return next;
      if (trim(all[next].text) == "#endfor") return at(all[begin], "#if ends with #endfor");
      i = next;
    }
  }

  Result<std::size_t> loop(const Lines& all, std::size_t begin, std::size_t end) {
    const Line& line = all[begin];
    const std::string_view text = trim(trim(line.text).substr(5));
    const std::size_t in = text.find(" in "), dots = text.find("..");
    if (in == std::string_view::npos || dots == std::string_view::npos || dots < in)
      return at(line, "#for needs the form: #for name in first..end");
    const std::string_view name = trim(text.substr(0, in));
    if (name.empty() || !is_name_start(name[0]) || !std::ranges::all_of(name, is_name_part))
      return at(line, "#for needs the form: #for name in first..end");
    if (scope_.has(name)) return at(line, fmt::format("the name {} is taken", name));
    DOPPLER_ASSIGN(const std::int64_t first, evaluate(line, text.substr(in + 4, dots - in - 4)));
    DOPPLER_ASSIGN(const std::int64_t last, evaluate(line, text.substr(dots + 2)));
    DOPPLER_ASSIGN(const std::size_t close, matching(all, begin, end, false));
    if (trim(all[close].text) != "#endfor") return at(line, "#for ends with #endif");
    if (last - first > 4096) return at(line, "the loop is longer than 4096");  // a wrong value, surely
    for (std::int64_t i = first; i < last; ++i) {
      scope_.set(name, i);
      DOPPLER_TRY(lines(all, begin + 1, close));
    }
    scope_.unset(name);
    return close;
  }

  Status include(const Line& line, std::string_view name) {
    if (name.size() < 2 || name.front() != '"' || name.back() != '"')
      return at(line, "#include needs a name in quotes");
    name = name.substr(1, name.size() - 2);
    std::string_view text = shader_text(name);
    if (text.empty()) return at(line, fmt::format("there is no shader file {}", name));
    if (!included_.insert(name).second) return {};
    DOPPLER_ASSIGN(text, edited(name, text));
    const Lines included = split(name, text);
    return lines(included, 0, included.size());
  }

  Status module(const Line& line, std::string_view text) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view name = text.substr(0, space);
    std::string_view file = trim(text.substr(space));
    if (name.empty() || file.size() < 2 || file.front() != '"' || file.back() != '"')
      return at(line, "#module needs the form: #module name \"file.wgsl\"");
    file = file.substr(1, file.size() - 2);
    const std::string_view source = shader_text(file);
    if (source.empty()) return at(line, fmt::format("there is no shader file {}", file));
    const ShaderValues own = scope_.take(fmt::format("{}.", name));
    DOPPLER_ASSIGN(const std::string part, Expander(own, common_, edits_).run(file, source, own));
    constexpr std::uint32_t kBindings = 32;  // more than a shader of ours has
    out_ += as_module(part, name, kBindings * modules_++);
    return {};
  }

  // `only_if_absent`: a value that is given stays.
  Status define(const Line& line, std::string_view text, bool only_if_absent) {
    std::size_t length = 0;
    while (length < text.size() && is_name_part(text[length])) ++length;
    if (length == 0 || !is_name_start(text[0]))
      return at(line, only_if_absent ? "#default needs a name" : "#define needs a name");
    if (only_if_absent && scope_.find(text.substr(0, length)) != nullptr) return {};
    DOPPLER_ASSIGN(const std::int64_t value, evaluate(line, text.substr(length)));
    scope_.set(text.substr(0, length), value);
    return {};
  }

  // What of the sum over name_0 ... is due behind value i: a pair of neighbours, pairs of pairs, and behind
  // the last the total.
  Status sum(const Line& line, std::string_view text) {
    const std::size_t first = text.find(','), second = text.find(',', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos)
      return at(line, "#sum needs the form: #sum name, i, count");
    DOPPLER_ASSIGN(const std::string name, filled(line, trim(text.substr(0, first))));
    DOPPLER_ASSIGN(const std::int64_t i, evaluate(line, text.substr(first + 1, second - first - 1)));
    DOPPLER_ASSIGN(const std::int64_t count, evaluate(line, text.substr(second + 1)));
    if (i < 0 || i >= count) return at(line, "#sum names a value beyond the last");
    // The sum of the 2^k values from the 2^k j-th on.
    const auto part = [&](int k, std::int64_t j) {
      return k == 0 ? fmt::format("{}_{}", name, j) : fmt::format("{}_{}x{}", name, 1 << k, j);
    };
    for (int k = 0; (i + 1) % (std::int64_t{2} << k) == 0; ++k) {
      const std::int64_t j = i >> k;
      out_ += fmt::format("let {} = {} + {};\n", part(k + 1, j / 2), part(k, j - 1), part(k, j));
    }
    if (i + 1 != count) return {};
    std::string total;
    for (int k = 0; count >> k != 0; ++k) {
      if ((count >> k) % 2 == 0) continue;
      const std::string larger = part(k, (count >> k) - 1);
      total = total.empty() ? larger : fmt::format("{} + ({})", larger, total);
    }
    out_ += fmt::format("let {} = {};\n", name, total);
    return {};
  }

  // A text with the values of its expressions.
  Result<std::string> filled(const Line& line, std::string_view text) {
    std::string out;
    while (true) {
      const std::size_t begin = text.find("${");
      out += text.substr(0, begin);
      if (begin == std::string_view::npos) return out;
      const std::size_t end = text.find('}', begin);
      if (end == std::string_view::npos) return at(line, "${ has no }");
      DOPPLER_ASSIGN(const std::int64_t value, evaluate(line, text.substr(begin + 2, end - begin - 2)));
      out += std::to_string(value);
      text = text.substr(end + 1);
    }
  }

  Status plain(const Line& line) {
    std::string_view text = line.text;
    const std::size_t comment = text.find("//");
    if (comment != std::string_view::npos) text = text.substr(0, comment);
    if (trim(text).empty()) return {};
    DOPPLER_ASSIGN(const std::string out, filled(line, text));
    out_ += out;
    out_ += '\n';
    return {};
  }

  Scope scope_;
  const ShaderValues& common_;
  std::uint32_t modules_ = 0;  // so far
  std::span<const ShaderEdit> edits_;
  std::list<std::string> edited_;  // lines point into them
  std::set<std::string_view> included_;
  std::string out_;
};

}  // namespace

void replace_shader(std::string name, std::string text) {
  replaced_shaders()[std::move(name)] = std::move(text);
}

Result<std::string> expand_shader_text(std::string_view name, std::string_view text,
                                       const ShaderValues& values, const ShaderValues& common) {
  return Expander(values, common, {}).run(name, text, values);
}

Result<std::string> expand_shader(std::string_view file, const ShaderValues& values,
                                  const ShaderValues& common, std::span<const ShaderEdit> edits) {
  const std::string_view text = shader_text(file);
  if (text.empty()) return fail(ErrorCode::kInternal, "There is no shader file {}.", file);
  return Expander(values, common, edits).run(file, text, values);
}

}  // namespace doppler::gpu
