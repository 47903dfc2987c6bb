#include "base/json.h"

#include <algorithm>

#include "base/text.h"

namespace doppler {
namespace {

// Collects a value as Json::parse does, but keeps the first syntax error's position.
class PositionedParser : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  using Base = nlohmann::detail::json_sax_dom_parser<Json>;
  explicit PositionedParser(Json& target) : Base(target, /*allow_exceptions=*/false) {}
  template <typename Exception>
  bool parse_error(std::size_t position, const std::string& token, const Exception& error) {
    if (!failed) position_ = position;
    failed = true;
    return Base::parse_error(position, token, error);
  }
  bool failed = false;
  std::size_t position_ = 0;
};

}  // namespace

JsonMember::JsonMember() : value_(std::make_unique<Json>()) {}
JsonMember::JsonMember(Json value) : value_(std::make_unique<Json>(std::move(value))) {}
JsonMember::JsonMember(const JsonMember& other)
    : value_(other.value_ == nullptr ? nullptr : std::make_unique<Json>(*other)) {}
JsonMember::JsonMember(JsonMember&& other) noexcept = default;
JsonMember& JsonMember::operator=(JsonMember other) noexcept {
  value_.swap(other.value_);
  return *this;
}
JsonMember::~JsonMember() = default;

std::string describe_position(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t last = before.rfind('\n');
  return fmt::format("line {}, column {}", line,
                     offset - (last == std::string_view::npos ? 0 : last + 1) + 1);
}

Status check_json_depth(std::string_view text, std::string_view what) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return fail(ErrorCode::kCorrupt,
                    "{} nests deeper than {} levels at {}. Check that it is the right file.", what,
                    kMaxJsonDepth, describe_position(text, i));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return {};
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Result<Json> parse_json(std::string_view text, std::string_view what) {
  DOPPLER_TRY(check_json_depth(text, what));
  // The parser takes a NUL for the end of its input and would ignore what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return fail(ErrorCode::kCorrupt,
                "{} is not valid JSON at {}, near \"\\x00\". Download it again or correct it there.", what,
                describe_position(text, nul));
  }
  Json root;
  PositionedParser parser(root);
  Json::sax_parse(text.begin(), text.end(), &parser);
  if (parser.failed || root.is_discarded()) {
    const std::size_t at = parser.position_ > 0 ? parser.position_ - 1 : 0;
    const std::string_view rest = at < text.size() ? text.substr(at) : std::string_view();
    const std::string found =
        rest.empty() ? "where it ends" : fmt::format("near \"{}\"", printable(rest, 20));
    return fail(ErrorCode::kCorrupt, "{} is not valid JSON at {}, {}. Download it again or correct it there.",
                what, describe_position(text, at), found);
  }
  return root;
}

}  // namespace doppler
