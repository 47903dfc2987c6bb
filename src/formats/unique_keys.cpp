#include "formats/unique_keys.h"

#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"

namespace doppler {
namespace {

// Sees a key that an object has twice, of which a parsed value would keep the last only: two tensors of one
// name.
class KeyCounter : public nlohmann::json_sax<Json> {
 public:
  const std::string& repeated() const { return repeated_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    repeated_ = name;
    return false;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string repeated_;
};

}  // namespace

Result<Json> parse_unique_object(std::string_view text, std::string_view file) {
  const std::string what = fmt::format("The file {}", printable(file));
  DOPPLER_ASSIGN(Json value, parse_json(text, what));  // checks the depth, too
  KeyCounter counter;
  Json::sax_parse(text, &counter);
  if (!counter.repeated().empty()) {
    return fail(ErrorCode::kCorrupt, "{} has the key {} twice in one object. Download it again.", what,
                printable(counter.repeated()));
  }
  if (value.is_object()) return value;
  return fail(ErrorCode::kCorrupt, "{} holds JSON of the kind {} instead of an object. Download it again.",
              what, value.type_name());
}

}  // namespace doppler
