#include "chat/chat_template.h"

#include <limits>

#include "base/json.h"
#include "base/text.h"
#include "chat/jinja/evaluator.h"
#include "chat/jinja/parser.h"

namespace doppler::chat {
namespace {

using jinja::Kind;
using jinja::Value;

// JSON as template values. `depth` bounds the recursion for callers that build their JSON themselves.
Result<Value> to_value(jinja::Runtime& rt, const OrderedJson& json, int depth) {
  if (depth > kMaxJsonDepth) {
    return fail(ErrorCode::kLimit, "the variables nest deeper than {} levels", kMaxJsonDepth);
  }
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case OrderedJson::value_t::number_unsigned:
      return Value::integer(json.get<std::uint64_t>());
    case OrderedJson::value_t::number_float:
      return Value::real(json.get<double>());
    case OrderedJson::value_t::string:
      return rt.text(utf8_lossy(*json.get_ptr<const std::string*>()));
    case OrderedJson::value_t::array: {
      jinja::Values items;
      items.reserve(json.size());
      for (const OrderedJson& item : json) {
        DOPPLER_ASSIGN(Value value, to_value(rt, item, depth + 1));
        items.push_back(std::move(value));
      }
      return rt.list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      std::vector<jinja::DictObject::Entry> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        DOPPLER_ASSIGN(Value value, to_value(rt, item, depth + 1));
        entries.emplace_back(rt.text(utf8_lossy(key)), std::move(value));
      }
      return rt.dict(std::move(entries));
    }
    default:
      return Value::none();
  }
}

std::string sentence(std::string text) {
  if (!text.empty() && !std::string_view(".!?").contains(text.back())) text += '.';
  return text;
}

Error compile_error(const std::string& name, jinja::SyntaxError&& error) {
  const bool own_sentence = error.message.starts_with("it ");
  std::string what = own_sentence ? error.message.substr(3) : "has a syntax error: " + error.message;
  const char* advice = error.code == ErrorCode::kUnsupported
                           ? "Take it out of the template or replace it by what Jinja 3.1 has."
                           : "Correct the template there or download it again.";
  if (own_sentence) {
    return {error.code,
            fmt::format("The chat template {} {} at line {}. {}", name, what, error.line, advice)};
  }
  return {error.code, fmt::format("The chat template {} has a syntax error at line {}: {} {}", name,
                                  error.line, sentence(std::move(error.message)), advice)};
}

Error render_error(const std::string& name, std::uint32_t line, bool raised, Error&& error) {
  if (raised) {
    return {error.code,
            fmt::format("The chat template {} refuses these messages at line {}: {} Change the messages.",
                        name, line, sentence(std::move(error.message)))};
  }
  if (error.message.starts_with("it ")) {
    const char* advice = error.code == ErrorCode::kUnsupported
                             ? "Replace it by what Jinja 3.1 has."
                             : "Shorten the messages or correct the template.";
    return {error.code, fmt::format("The chat template {} {} at line {}. {}", name, error.message.substr(3),
                                    line, advice)};
  }
  return {
      error.code,
      fmt::format("The chat template {} fails at line {}: {} Change the messages or correct the template.",
                  name, line, sentence(std::move(error.message)))};
}

}  // namespace

Result<OrderedJson> parse_ordered_json(std::string_view text, std::string_view what) {
  DOPPLER_TRY(check_json_depth(text, what));
  OrderedJson root = OrderedJson::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) {
    // The other parser knows the place.
    auto plain = parse_json(text, what);
    if (!plain) return std::unexpected(std::move(plain).error());
    return fail(ErrorCode::kCorrupt, "{} is not valid JSON. Correct it.", what);
  }
  return root;
}

Result<ChatTemplate> ChatTemplate::compile(std::string source, std::string name) {
  // More than ten times the longest published template.
  constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;
  if (source.size() > kMaxSourceBytes) {
    return fail(ErrorCode::kLimit,
                "The chat template {} has {} bytes, more than the {} that are read. Shorten it.", name,
                source.size(), kMaxSourceBytes);
  }
  auto ast = jinja::parse_template(utf8_lossy(source));
  if (!ast) return std::unexpected(compile_error(name, std::move(ast).error()));
  return ChatTemplate(std::move(*ast), std::move(source), std::move(name));
}

Result<std::string> ChatTemplate::render(const OrderedJson& variables, const RenderOptions& options) const {
  if (!variables.is_object()) {
    return fail(ErrorCode::kUsage,
                "The variables of the chat template {} are not a JSON object. Pass an object.", name_);
  }
  jinja::Limits limits;
  limits.steps = options.max_steps;
  limits.output_bytes = options.max_output_bytes;
  jinja::Evaluator evaluator(*ast_, limits, options.now);
  for (const auto& [key, json] : variables.items()) {
    auto value = to_value(evaluator, json, 0);
    if (!value) return std::unexpected(render_error(name_, 1, false, std::move(value).error()));
    evaluator.define(key, std::move(*value));
  }
  auto text = evaluator.render();
  if (!text) {
    return std::unexpected(render_error(name_, evaluator.line(), evaluator.raised, std::move(text).error()));
  }
  return text;
}

}  // namespace doppler::chat
