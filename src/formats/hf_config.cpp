#include "formats/hf_config.h"

#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace doppler {
namespace {

// A value as it may appear inside a sentence.
std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  return printable(dump_json(value), 60);
}

std::unexpected<Error> wrong(const std::string& where, const Json& value, std::string_view wanted) {
  return fail(ErrorCode::kCorrupt,
              "The value of {} is {} instead of {}. Correct it or download the file again.", where,
              shown(value), wanted);
}

// Null if the object has no such key, or only null.
const Json* member(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// The value at a key or a dotted path, null if absent. Errors: kCorrupt when the path leads through a value
// that is no object.
Result<const Json*> find(const ConfigReader& reader, std::string_view key) {
  const Json* value = &reader.json();
  if (!value->is_object()) return wrong(reader.source(), *value, "an object");
  if (const Json* direct = member(*value, key)) return direct;
  std::size_t begin = 0;
  for (std::size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.', begin)) {
    value = member(*value, key.substr(begin, dot - begin));
    if (value == nullptr) return nullptr;
    if (!value->is_object()) return wrong(reader.where(key.substr(0, dot)), *value, "an object");
    begin = dot + 1;
  }
  return begin == 0 ? nullptr : member(*value, key.substr(begin));
}

// For each kind of value: its name, and how to take it out of JSON (nothing if it is of another kind).
std::optional<std::uint64_t> as_uint(const Json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    return number >= 0 ? std::optional(static_cast<std::uint64_t>(number)) : std::nullopt;
  }
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  constexpr double kExactIntegers = 0x1p53;  // above it a double no longer says which integer was meant
  if (!(number >= 0 && number <= kExactIntegers) || number != std::floor(number)) return std::nullopt;
  return static_cast<std::uint64_t>(number);
}

std::optional<double> as_number(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<bool> as_bool(const Json& value) {
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

std::optional<std::string> as_string(const Json& value) {
  const std::string* text = value.get_ptr<const std::string*>();
  return text != nullptr ? std::optional(*text) : std::nullopt;
}

constexpr std::string_view kUint = "a whole number of at least 0";
constexpr std::string_view kNumber = "a finite number";

template <typename T>
Result<std::optional<T>> get(const ConfigReader& reader, std::string_view key,
                             std::optional<T> (*as)(const Json&), std::string_view wanted) {
  DOPPLER_ASSIGN(const Json* const value, find(reader, key));
  if (value == nullptr) return std::optional<T>();
  std::optional<T> result = as(*value);
  if (!result) return wrong(reader.where(key), *value, wanted);
  return result;
}

template <typename T>
Result<std::optional<std::vector<T>>> get_list(const ConfigReader& reader, std::string_view key,
                                               std::optional<T> (*as)(const Json&), std::string_view wanted) {
  DOPPLER_ASSIGN(const Json* const list, find(reader, key));
  if (list == nullptr) return std::optional<std::vector<T>>();
  if (!list->is_array()) return wrong(reader.where(key), *list, "a list");
  std::vector<T> values;
  values.reserve(list->size());
  for (const Json& entry : *list) {
    std::optional<T> value = as(entry);
    if (!value) return wrong(fmt::format("{}[{}]", reader.where(key), values.size()), entry, wanted);
    values.push_back(std::move(*value));
  }
  return std::optional(std::move(values));
}

}  // namespace

bool ConfigReader::has(std::string_view key) const {
  const auto value = find(*this, key);
  return value && *value != nullptr;
}

Result<std::optional<std::uint64_t>> ConfigReader::get_uint(std::string_view key) const {
  return get(*this, key, as_uint, kUint);
}

Result<std::optional<double>> ConfigReader::get_number(std::string_view key) const {
  return get(*this, key, as_number, kNumber);
}

Result<std::optional<bool>> ConfigReader::get_bool(std::string_view key) const {
  return get(*this, key, as_bool, "true or false");
}

Result<std::optional<std::string>> ConfigReader::get_string(std::string_view key) const {
  return get(*this, key, as_string, "a string");
}

Result<std::optional<ConfigReader>> ConfigReader::get_object(std::string_view key) const {
  DOPPLER_ASSIGN(const Json* const value, find(*this, key));
  if (value == nullptr) return std::optional<ConfigReader>();
  if (!value->is_object()) return wrong(where(key), *value, "an object");
  ConfigReader object(*value, where(key), origins_);
  object.path_ = fmt::format("{}{}.", path_, key);
  return std::optional(std::move(object));
}

Result<std::optional<std::vector<std::string>>> ConfigReader::get_strings(std::string_view key) const {
  return get_list(*this, key, as_string, "a string");
}

Result<std::optional<std::vector<std::uint64_t>>> ConfigReader::get_uints(std::string_view key) const {
  return get_list(*this, key, as_uint, kUint);
}

Result<std::optional<std::vector<double>>> ConfigReader::get_numbers(std::string_view key) const {
  return get_list(*this, key, as_number, kNumber);
}

const KeyOrigin* ConfigReader::origin(std::string_view key) const {
  if (origins_ == nullptr) return nullptr;
  const auto found = origins_->find(path_ + std::string(key));
  return found == origins_->end() ? nullptr : &found->second;
}

std::string ConfigReader::name(std::string_view key) const {
  const KeyOrigin* from = origin(key);
  return from != nullptr ? from->name : std::string(key);
}

std::string ConfigReader::where(std::string_view key) const {
  if (const KeyOrigin* from = origin(key)) return from->source;
  const bool nested = source_.find(": ") != std::string::npos;
  return fmt::format("{}{}{}", source_, nested ? "." : ": ", printable(key));
}

}  // namespace doppler
