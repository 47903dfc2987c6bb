// The text part of a recording as JSON.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "diagnosis/compare/text_truth.h"
#include "tokenizer/vocabulary.h"

namespace doppler::diagnosis {
namespace {

using chat::OrderedJson;

// Ten times what tools/hf_record.py writes of the largest vocabularies.
constexpr std::size_t kMostBytes = std::size_t{4} << 20;
constexpr std::size_t kMostTexts = 1000, kMostConversations = 200, kMostIds = 100'000;

std::unexpected<Error> wrong(std::string_view key, std::string_view must_be) {
  return fail(
      ErrorCode::kCorrupt,
      "The recording's text has a {} that is not {}. Record it again with tools/hf_record.py or doppler "
      "record.",
      key, must_be);
}

std::unexpected<Error> too_many(std::string_view what, std::size_t count, std::size_t most) {
  return fail(ErrorCode::kLimit,
              "The recording's text has {} {}, more than the {} that are read. Record it again.", count, what,
              most);
}

const OrderedJson* member(const OrderedJson& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<const OrderedJson*> list_in(const OrderedJson& object, const char* key, std::size_t most) {
  const OrderedJson* list = member(object, key);
  if (list == nullptr) return nullptr;
  if (!list->is_array()) return wrong(key, "a list");
  if (list->size() > most) return too_many(key, list->size(), most);
  return list;
}

Result<TokenId> id_of(const OrderedJson& value, const char* key) {
  if (!value.is_number_integer()) return wrong(key, "a token id");
  const auto id = value.get<std::int64_t>();
  if (id < 0 || id > tokenizer::kMaxTokenId)
    return wrong(key, fmt::format("a token id from 0 to {}", tokenizer::kMaxTokenId));
  return static_cast<TokenId>(id);
}

Result<std::optional<std::vector<TokenId>>> ids_in(const OrderedJson& object, const char* key) {
  DOPPLER_ASSIGN(const OrderedJson* list, list_in(object, key, kMostIds));
  if (list == nullptr) return std::nullopt;
  std::vector<TokenId> ids;
  ids.reserve(list->size());
  for (const OrderedJson& value : *list) {
    DOPPLER_ASSIGN(const TokenId id, id_of(value, key));
    ids.push_back(id);
  }
  return std::optional(std::move(ids));
}

Result<std::optional<std::string>> text_in(const OrderedJson& object, const char* key) {
  const OrderedJson* value = member(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return wrong(key, "a text");
  return std::optional(value->get<std::string>());
}

Result<std::string> required_text(const OrderedJson& object, const char* key) {
  DOPPLER_ASSIGN(auto text, text_in(object, key));
  if (!text) return wrong(key, "a text");
  return std::move(*text);
}

Status read_texts(const OrderedJson& json, TextTruth& truth) {
  DOPPLER_ASSIGN(const OrderedJson* texts, list_in(json, "texts", kMostTexts));
  if (texts == nullptr) return {};
  for (const OrderedJson& entry : *texts) {
    TextCase made;
    DOPPLER_ASSIGN(made.text, required_text(entry, "text"));
    DOPPLER_ASSIGN(auto ids, ids_in(entry, "ids"));
    if (!ids) return wrong("ids", "a list");
    made.ids = std::move(*ids);
    DOPPLER_ASSIGN(made.with_special, ids_in(entry, "with_special"));
    DOPPLER_ASSIGN(made.decoded, text_in(entry, "decoded"));
    DOPPLER_ASSIGN(made.without_special, text_in(entry, "without_special"));
    truth.texts.push_back(std::move(made));
  }
  return {};
}

Status read_conversations(const OrderedJson& json, TextTruth& truth) {
  DOPPLER_ASSIGN(const OrderedJson* list, list_in(json, "conversations", kMostConversations));
  if (list == nullptr) return {};
  for (const OrderedJson& entry : *list) {
    ConversationCase made;
    DOPPLER_ASSIGN(made.name, required_text(entry, "name"));
    const OrderedJson* conversation = member(entry, "conversation");
    if (conversation == nullptr || !conversation->is_object() ||
        member(*conversation, "messages") == nullptr || !(*conversation)["messages"].is_array())
      return wrong("conversation", "an object with messages");
    made.conversation = conversation->dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    DOPPLER_ASSIGN(made.rendered, text_in(entry, "rendered"));
    truth.conversations.push_back(std::move(made));
  }
  return {};
}

// [[id, "piece"], ...]
Status read_pieces(const OrderedJson& json, TextTruth& truth) {
  DOPPLER_ASSIGN(const OrderedJson* list, list_in(json, "pieces", kMostIds));
  if (list == nullptr) return {};
  for (const OrderedJson& entry : *list) {
    if (!entry.is_array() || entry.size() != 2 || !entry[1].is_string())
      return wrong("pieces", "a list of pairs of id and text");
    DOPPLER_ASSIGN(const TokenId id, id_of(entry[0], "pieces"));
    truth.pieces[id] = entry[1].get<std::string>();
  }
  return {};
}

Status read_roles(const OrderedJson& json, TextTruth& truth) {
  const OrderedJson* roles = member(json, "roles");
  if (roles == nullptr) return {};
  if (!roles->is_object() || roles->size() > 16) return wrong("roles", "an object of the special tokens");
  for (const auto& [name, entry] : roles->items()) {
    const OrderedJson* id = member(entry, "id");
    if (id == nullptr) return wrong("roles", "an object of ids and texts");
    tokenizer::SpecialToken role;
    DOPPLER_ASSIGN(role.id, id_of(*id, "roles"));
    DOPPLER_ASSIGN(role.text, required_text(entry, "text"));
    truth.roles[name] = std::move(role);
  }
  return {};
}

Status read_generation(const OrderedJson& json, TextTruth& truth) {
  DOPPLER_ASSIGN(truth.stop_ids, ids_in(json, "stop_ids"));
  if (const OrderedJson* pad = member(json, "pad_id")) {
    DOPPLER_ASSIGN(truth.pad_id, id_of(*pad, "pad_id"));
  }
  const OrderedJson* sampling = member(json, "sampling");
  if (sampling == nullptr) return {};
  if (!sampling->is_object()) return wrong("sampling", "an object of numbers");
  truth.sampling.emplace();
  for (const char* key : kSamplingKeys) {
    const OrderedJson* value = member(*sampling, key);
    if (value == nullptr) continue;
    if (!value->is_number()) return wrong("sampling", "an object of numbers");
    (*truth.sampling)[key] = value->get<double>();
  }
  return {};
}

Result<std::optional<std::tm>> read_time(const OrderedJson& json) {
  DOPPLER_ASSIGN(const auto text, text_in(json, "now"));
  if (!text) return std::nullopt;
  std::tm tm = {};
  // Widths keep every number an int; strftime gets no field out of its range.
  if (std::sscanf(text->c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
                  &tm.tm_min, &tm.tm_sec) != 6 ||
      tm.tm_year < 1900 || tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
      tm.tm_hour < 0 || tm.tm_hour > 23 || tm.tm_min < 0 || tm.tm_min > 59 || tm.tm_sec < 0 || tm.tm_sec > 60)
    return wrong("now", "a time such as 2026-05-17T12:30:00");
  const std::chrono::year_month_day date{std::chrono::year(tm.tm_year),
                                         std::chrono::month(static_cast<unsigned>(tm.tm_mon)),
                                         std::chrono::day(static_cast<unsigned>(tm.tm_mday))};
  const std::chrono::sys_days day = date;
  tm.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  tm.tm_yday = static_cast<int>((day - std::chrono::sys_days(date.year() / 1 / 1)).count());
  tm.tm_year -= 1900;
  tm.tm_mon -= 1;
  return std::optional(tm);
}

OrderedJson json_of(const TextCase& text) {
  OrderedJson json = {{"text", text.text}, {"ids", text.ids}};
  if (text.with_special) json["with_special"] = *text.with_special;
  if (text.decoded) json["decoded"] = utf8_lossy(*text.decoded);
  if (text.without_special) json["without_special"] = utf8_lossy(*text.without_special);
  return json;
}

OrderedJson json_of(const ConversationCase& made) {
  OrderedJson json = {{"name", made.name}};
  if (auto conversation = chat::parse_ordered_json(made.conversation, made.name))
    json["conversation"] = std::move(*conversation);
  if (made.rendered) json["rendered"] = *made.rendered;
  return json;
}

}  // namespace

std::string text_truth_json(const TextTruth& truth) {
  OrderedJson json = {{"texts", OrderedJson::array()}, {"conversations", OrderedJson::array()}};
  for (const TextCase& text : truth.texts) json["texts"].push_back(json_of(text));
  for (const ConversationCase& made : truth.conversations) json["conversations"].push_back(json_of(made));
  json["pieces"] = OrderedJson::array();
  for (const auto& [id, piece] : truth.pieces) json["pieces"].push_back(OrderedJson::array({id, piece}));
  json["special"] = truth.special;
  json["roles"] = OrderedJson::object();
  for (const auto& [name, role] : truth.roles)
    json["roles"][name] = {{"id", role.id.value_or(0)}, {"text", role.text}};
  if (truth.stop_ids) json["stop_ids"] = *truth.stop_ids;
  if (truth.pad_id) json["pad_id"] = *truth.pad_id;
  if (truth.sampling) {
    json["sampling"] = OrderedJson::object();
    for (const auto& [key, value] : *truth.sampling) json["sampling"][key] = value;
  }
  json["chat_template"] = truth.chat_template;
  if (truth.now) {
    json["now"] =
        fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", truth.now->tm_year + 1900, truth.now->tm_mon + 1,
                    truth.now->tm_mday, truth.now->tm_hour, truth.now->tm_min, truth.now->tm_sec);
  }
  return json.dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
}

Result<TextTruth> read_text_truth(std::string_view text) {
  if (text.size() > kMostBytes) return too_many("bytes", text.size(), kMostBytes);
  DOPPLER_ASSIGN(const OrderedJson json, chat::parse_ordered_json(text, "The recording's text"));
  if (!json.is_object()) return wrong("form", "an object");
  TextTruth truth;
  DOPPLER_TRY(read_texts(json, truth));
  DOPPLER_TRY(read_conversations(json, truth));
  DOPPLER_TRY(read_pieces(json, truth));
  DOPPLER_ASSIGN(auto special, ids_in(json, "special"));
  if (special) truth.special = std::move(*special);
  DOPPLER_TRY(read_roles(json, truth));
  DOPPLER_TRY(read_generation(json, truth));
  DOPPLER_ASSIGN(auto chat_template, text_in(json, "chat_template"));
  truth.chat_template = std::move(chat_template).value_or("");
  DOPPLER_ASSIGN(truth.now, read_time(json));
  return truth;
}

}  // namespace doppler::diagnosis
