// Rendered conversations beside what they should be: which part of the template makes the difference.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "diagnosis/compare/compare_texts_parts.h"

namespace doppler::diagnosis {
namespace {

using chat::OrderedJson;

// A conversation of a few messages takes a few thousand steps; a hostile recording may hold two hundred.
constexpr std::uint64_t kMostSteps = 2'000'000;

constexpr auto kRoleNames = std::to_array<std::string_view>(
    {"user", "assistant", "model", "system", "developer", "human", "bot", "ai", "gpt", "tool", "function",
     "instruction", "response", "input", "output", "environment", "chatbot", "ipython", "observation"});

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kWhite = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kWhite);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhite) - begin + 1);
}

bool is_blank(std::string_view text) {
  return trimmed(text).empty();
}

std::size_t count_words(std::string_view text) {
  std::size_t words = 0;
  bool in_word = false;
  for (const char c : text) {
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    words += letter && !in_word;
    in_word = letter;
  }
  return words;
}

struct Said {
  std::string role, content;
};

std::string text_member(const OrderedJson& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return {};
  return object[key].get<std::string>();
}

std::vector<Said> messages_of(const OrderedJson& conversation) {
  std::vector<Said> said;
  for (const OrderedJson& message : conversation["messages"]) {
    Said one{text_member(message, "role"), std::string(trimmed(text_member(message, "content")))};
    if (!one.content.empty()) said.push_back(std::move(one));
  }
  return said;
}

bool has_tools(const OrderedJson& conversation) {
  return conversation.contains("tools") && conversation["tools"].is_array() && !conversation["tools"].empty();
}

bool has_tool_messages(const OrderedJson& conversation) {
  return std::ranges::any_of(conversation["messages"], [](const OrderedJson& message) {
    return message.is_object() && (text_member(message, "role") == "tool" || message.contains("tool_calls"));
  });
}

bool prompts(const OrderedJson& conversation) {
  return conversation.contains("add_generation_prompt") && conversation["add_generation_prompt"] == true;
}

// What a rendered text has before, between and behind the contents; nothing if one of them is not in it.
std::optional<std::vector<std::string_view>> around(std::string_view text, const std::vector<Said>& said) {
  std::vector<std::string_view> parts;
  std::size_t at = 0;
  for (const Said& one : said) {
    const std::size_t found = text.find(one.content, at);
    if (found == std::string_view::npos) return std::nullopt;
    parts.push_back(text.substr(at, found - at));
    at = found + one.content.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

struct Rendered {
  const ConversationCase* given = nullptr;
  OrderedJson conversation;
  std::string found;
  std::string problem;  // why it could not be rendered
};

class ConversationComparison {
 public:
  ConversationComparison(const TextTruth& truth, const TextSide& ours, TextFindings& findings)
      : truth_(truth), ours_(ours), findings_(findings) {}

  void run() {
    for (const ConversationCase& given : truth_.conversations) {
      Rendered rendered{&given, {}, {}, {}};
      auto conversation = chat::parse_ordered_json(given.conversation, given.name);
      if (!conversation || !conversation->is_object() || !conversation->contains("messages")) continue;
      rendered.conversation = std::move(*conversation);
      auto text = ours_.render(rendered.conversation, {.now = truth_.now, .max_steps = kMostSteps});
      if (text)
        rendered.found = std::move(*text);
      else
        rendered.problem = text.error().message;
      rendered_.push_back(std::move(rendered));
    }
    // A template that loses turns is another one altogether: its parts need not be compared.
    const bool loses = std::ranges::any_of(rendered_, [&](const Rendered& one) { return loses_turn(one); });
    for (const Rendered& one : rendered_) {
      if (!loses || loses_turn(one)) compare(one);
    }
  }

 private:
  bool agrees(const Rendered& one) const {
    return one.given->rendered ? one.problem.empty() && *one.given->rendered == one.found
                               : !one.problem.empty();
  }

  static bool loses_turn(const Rendered& one) {
    if (!one.given->rendered || !one.problem.empty()) return false;
    return std::ranges::any_of(messages_of(one.conversation), [&](const Said& said) {
      return (said.role == "user" || said.role == "assistant") &&
             one.given->rendered->find(said.content) != std::string::npos &&
             one.found.find(said.content) == std::string::npos;
    });
  }

  // Every finding ends alike: where the template is, and whether its text is the truth's.
  void add(const Rendered& one, std::string cause, std::string step, std::string what,
           double confidence = 1) {
    const std::string& wanted = one.given->rendered ? *one.given->rendered : one.found;
    std::string says = fmt::format("Rendering {}, {}", one.given->name, what);
    if (one.problem.empty() && one.given->rendered)
      says += fmt::format(": {}, which should be {}", excerpt(one.found, wanted), excerpt(wanted, one.found));
    findings_.add({std::move(cause), std::move(step), says + "." + template_says(), repair(), confidence, 1});
  }

  std::string place() const {
    return ours_.gguf ? "tokenizer.chat_template of the GGUF file"
                      : "the chat template (chat_template.jinja or tokenizer_config.json)";
  }

  bool same_template() const { return truth_.chat_template == ours_.chat_template; }

  std::string template_says() const {
    if (truth_.chat_template.empty()) return {};
    if (same_template()) return " The template itself is the source's: what differs is handed to it.";
    const MiddleParts middle = differing_middle(truth_.chat_template, ours_.chat_template);
    const auto line =
        1 + std::ranges::count(std::string_view(truth_.chat_template).substr(0, middle.begin), '\n');
    return fmt::format(" The template is another than the source's, from line {} on.", line);
  }

  std::string repair() const {
    if (!truth_.chat_template.empty() && same_template())
      return ours_.gguf ? "Set the special tokens (tokenizer.ggml.bos_token_id and its like) to the source's."
                        : "Set the special tokens of tokenizer_config.json to the source's.";
    return fmt::format("Take {} from the source again.", place());
  }

  void compare(const Rendered& one) {
    if (agrees(one)) return;
    if (!one.given->rendered) {
      add(one, "chat_template", "template", "the template gives a text where the source's refuses", 0.9);
      return;
    }
    if (!one.problem.empty()) {
      add(one, "chat_template", "template", fmt::format("the template fails ({})", one.problem));
      return;
    }
    std::string_view wanted = *one.given->rendered, found = one.found;
    if (!compare_bos(one, wanted, found)) return;
    if (wanted == found || compare_whole(one, wanted, found)) return;
    const OrderedJson& conversation = one.conversation;
    if (has_tools(conversation) && compare_tools(one, wanted, found)) return;
    if (!compare_contents(one, wanted, found)) return;
    const std::vector<Said> said = messages_of(conversation);
    const auto wanted_parts = around(wanted, said), found_parts = around(found, said);
    if (!wanted_parts || !found_parts) {
      add(one, "chat_template", "template", "the contents come in another order", 0.8);
      return;
    }
    for (std::size_t i = 0; i < wanted_parts->size(); ++i) {
      const std::string_view w = (*wanted_parts)[i], f = (*found_parts)[i];
      if (w != f) compare_part(one, i, said, w, f);
    }
  }

  // BOS at the beginning is a matter of its own; false: it is the only one.
  bool compare_bos(const Rendered& one, std::string_view& wanted, std::string_view& found) {
    const auto role = truth_.roles.find("bos");
    if (role == truth_.roles.end() || role->second.text.empty()) return true;
    const std::string& bos = role->second.text;
    const auto strip = [&](std::string_view& text) {
      std::size_t count = 0;
      for (; text.starts_with(bos); ++count) text.remove_prefix(bos.size());
      return count;
    };
    std::string_view without_wanted = wanted, without_found = found;
    const std::size_t w = strip(without_wanted), f = strip(without_found);
    if (w == f) return true;
    add(one,
        f > w && w > 0 ? "double_bos"
        : f > w        ? "bos_extra"
                       : "bos_missing",
        "template", fmt::format("{} BOS come first where {} should", f, w));
    wanted = without_wanted;
    found = without_found;
    return true;
  }

  // What ends turns in the truth; empty: not known.
  std::string turn_end() const {
    for (const Rendered& other : rendered_) {
      if (!other.given->rendered || prompts(other.conversation)) continue;
      const auto parts = around(*other.given->rendered, messages_of(other.conversation));
      if (parts && !is_blank(parts->back())) return std::string(trimmed(parts->back()));
    }
    return {};
  }

  // Differences of one kind at many places: white space, or ends of turns. True if nothing else differs.
  bool compare_whole(const Rendered& one, std::string_view wanted, std::string_view found) {
    const auto squeezed = [](std::string_view text, const std::string& without) {
      std::string out;
      for (std::size_t at = 0; at < text.size(); ++at) {
        if (!without.empty() && text.substr(at).starts_with(without)) {
          at += without.size() - 1;
        } else if (!is_blank(text.substr(at, 1))) {
          out += text[at];
        }
      }
      return out;
    };
    if (squeezed(wanted, "") == squeezed(found, "")) {
      const MiddleParts middle = differing_middle(wanted, found);
      add(one, "chat_white_space", "white space",
          fmt::format("line ends or spaces are {}", middle.wanted.size() > middle.found.size() ? "lost"
                                                    : middle.wanted.size() < middle.found.size()
                                                        ? "added"
                                                        : "changed"));
      return true;
    }
    const std::string end = turn_end();
    if (end.empty() || squeezed(wanted, end) != squeezed(found, end)) return false;
    add(one, "end_of_turn", "end of turn",
        fmt::format("the end of a turn, {}, is {}", printable(end),
                    wanted.size() > found.size() ? "missing" : "too much"));
    return true;
  }

  // True if the difference is that of the tools.
  bool compare_tools(const Rendered& one, std::string_view wanted, std::string_view found) {
    for (const OrderedJson& tool : one.conversation["tools"]) {
      if (!tool.is_object() || !tool.contains("function")) continue;
      const std::string name = text_member(tool["function"], "name");
      if (name.empty() || wanted.find(name) == std::string_view::npos) continue;
      if (found.find(name) != std::string_view::npos) continue;
      add(one, "chat_tools", "tools", fmt::format("the tool {} is left out", name));
      return true;
    }
    // Everything else is right where there are no tools.
    const bool only_here = std::ranges::all_of(rendered_, [&](const Rendered& other) {
      return agrees(other) || has_tools(other.conversation) || has_tool_messages(other.conversation);
    });
    if (only_here) add(one, "chat_tools", "tools", "tools are written otherwise");
    return only_here;
  }

  // False if something that was said is lost, or comes where it should not.
  bool compare_contents(const Rendered& one, std::string_view wanted, std::string_view found) {
    bool whole = true;
    for (const Said& said : messages_of(one.conversation)) {
      const bool in_wanted = wanted.find(said.content) != std::string_view::npos;
      const bool in_found = found.find(said.content) != std::string_view::npos;
      if (in_wanted == in_found) {
        whole = whole && in_wanted;  // without it the parts cannot be told
        continue;
      }
      const std::string_view cause = said.role == "system" ? "system_prompt"
                                     : said.role == "tool" ? "chat_tools"
                                                           : "chat_template";
      const std::string_view step = said.role == "system" ? "system text"
                                    : said.role == "tool" ? "tools"
                                                          : "template";
      add(one, std::string(cause), std::string(step),
          fmt::format("what the {} said is {}", said.role,
                      in_wanted ? "left out" : "passed on, and should not be"));
      return false;
    }
    if (!whole) add(one, "chat_template", "template", "the text is another", 0.8);
    return whole;
  }

  // The truth's text for the same messages without a generation prompt: what is behind its last content.
  std::optional<std::string_view> ending(const Rendered& one, const std::vector<Said>& said) const {
    for (const Rendered& other : rendered_) {
      if (!other.given->rendered || prompts(other.conversation)) continue;
      if (other.conversation["messages"] != one.conversation["messages"]) continue;
      const auto parts = around(*other.given->rendered, said);
      if (parts) return parts->back();
    }
    return std::nullopt;
  }

  void compare_part(const Rendered& one, std::size_t part, const std::vector<Said>& said,
                    std::string_view wanted, std::string_view found) {
    const bool last = part == said.size(), first = part == 0;
    if (last && prompts(one.conversation) && compare_generation_prompt(one, said, wanted, found)) return;
    const MiddleParts middle = differing_middle(wanted, found);
    if (is_blank(middle.wanted) && is_blank(middle.found)) {
      add(one, "chat_white_space", "white space",
          fmt::format("white space {} is {}",
                      first  ? "before the first text"
                      : last ? "at the end"
                             : "between turns",
                      middle.wanted.empty()  ? "added"
                      : middle.found.empty() ? "lost"
                                             : "changed"));
      return;
    }
    if (compare_role(one, wanted, found, middle)) return;
    const bool no_system = std::ranges::none_of(said, [](const Said& s) { return s.role == "system"; });
    if (first && no_system && (count_words(middle.wanted) > 2 || count_words(middle.found) > 2)) {
      add(one, "system_prompt", "system text",
          is_blank(middle.found)    ? "the system text that stands for none is left out"
          : is_blank(middle.wanted) ? "a system text is added that nobody gave"
                                    : "another system text stands for none");
      return;
    }
    const bool marked = middle.wanted.find_first_of("<[|") != std::string_view::npos ||
                        middle.found.find_first_of("<[|") != std::string_view::npos;
    const bool at_turn_end = !first && is_blank(wanted.substr(0, middle.begin));
    if (at_turn_end && marked) {
      add(one, "end_of_turn", "end of turn",
          is_blank(middle.found)
              ? fmt::format("the end of a turn, {}, is missing", printable(trimmed(middle.wanted)))
          : is_blank(middle.wanted)
              ? fmt::format("the end of a turn, {}, is too much", printable(trimmed(middle.found)))
              : "a turn ends otherwise");
      return;
    }
    if (last && prompts(one.conversation)) {
      add(one, "generation_prompt", "generation prompt", "the answer begins otherwise", 0.9);
      return;
    }
    add(one, "chat_template", "template",
        first ? "the beginning is another" : "what is between turns is another", 0.9);
  }

  // True if the prompt for the answer is missing, or stands where it should not.
  bool compare_generation_prompt(const Rendered& one, const std::vector<Said>& said, std::string_view wanted,
                                 std::string_view found) {
    const auto end = ending(one, said);
    const std::string_view turn_end = end ? *end
                                      : differing_middle(wanted, found).found.empty()
                                          ? wanted.substr(0, differing_middle(wanted, found).begin)
                                          : std::string_view();
    const bool known = end.has_value() || !turn_end.empty();
    if (!known || !wanted.starts_with(turn_end)) return false;
    const std::string_view prompt = wanted.substr(turn_end.size());
    if (trimmed(prompt).empty() || found.find(trimmed(prompt)) != std::string_view::npos) return false;
    if (trimmed(found) != trimmed(turn_end)) return false;
    add(one, "generation_prompt", "generation prompt",
        fmt::format("what begins the answer, {}, is missing", printable(trimmed(prompt))));
    return true;
  }

  static std::string_view word_at(std::string_view text, std::size_t at, std::size_t size) {
    const auto letter = [&](std::size_t i) { return std::isalpha(static_cast<unsigned char>(text[i])) != 0; };
    std::size_t begin = std::min(at, text.size()), end = std::min(at + size, text.size());
    while (begin > 0 && letter(begin - 1)) --begin;
    while (end < text.size() && letter(end)) ++end;
    return text.substr(begin, end - begin);
  }

  bool compare_role(const Rendered& one, std::string_view wanted, std::string_view found,
                    const MiddleParts& middle) {
    const std::string_view w = word_at(wanted, middle.begin, middle.wanted.size());
    const std::string_view f = word_at(found, middle.begin, middle.found.size());
    const auto is_word = [](std::string_view text) {
      return std::ranges::all_of(text, [](unsigned char c) { return std::isalpha(c) != 0 || c == '_'; });
    };
    if (!is_word(w) || !is_word(f) || (w.empty() && f.empty())) return false;
    const auto lower = [](std::string_view text) {
      std::string out(text);
      std::ranges::transform(out, out.begin(),
                             [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      return out;
    };
    const bool known = std::ranges::find(kRoleNames, lower(w)) != kRoleNames.end() ||
                       std::ranges::find(kRoleNames, lower(f)) != kRoleNames.end();
    if (!known) return false;
    add(one, "chat_role", "role",
        fmt::format("the role {} is written as {}", printable(w), f.empty() ? "nothing" : printable(f)));
    return true;
  }

  const TextTruth& truth_;
  const TextSide& ours_;
  TextFindings& findings_;
  std::vector<Rendered> rendered_;
};

std::string id_list(std::span<const TokenId> ids, const TextSide& ours) {
  std::vector<std::string> names;
  for (const TokenId id : ids) {
    const auto piece = ours.tokenizer != nullptr ? ours.tokenizer->piece(id) : std::unexpected(Error{});
    names.push_back(piece ? fmt::format("{} ({})", id, printable(*piece, 30)) : fmt::format("{}", id));
  }
  return names.empty() ? "none" : join(names, ", ");
}

// GGUF has a key for the end of a text and one for that of a turn.
std::vector<TextSetting> stop_settings(std::span<const TokenId> ids, bool gguf) {
  if (!gguf) {
    std::string list;
    for (const TokenId id : ids) list += fmt::format("{}{}", list.empty() ? "" : ", ", id);
    return {{"generation_config.json", "eos_token_id",
             ids.size() == 1 ? std::to_string(ids[0]) : fmt::format("[{}]", list)}};
  }
  constexpr std::string_view kKeys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
  std::vector<TextSetting> settings;
  if (ids.size() > std::size(kKeys)) return settings;
  for (std::size_t i = 0; i < ids.size(); ++i)
    settings.push_back({"gguf", std::string(kKeys[i]), std::to_string(ids[i])});
  return settings;
}

void compare_stops(const TextTruth& truth, const TextSide& ours, TextFindings& findings) {
  if (!truth.stop_ids || truth.stop_ids->empty()) return;
  std::vector<TokenId> missing, extra;
  for (const TokenId id : *truth.stop_ids) {
    if (std::ranges::find(ours.stop_ids, id) == ours.stop_ids.end()) missing.push_back(id);
  }
  for (const TokenId id : ours.stop_ids) {
    if (std::ranges::find(*truth.stop_ids, id) != truth.stop_ids->end()) continue;
    // Readers add the ends of turns that a file's special tokens name; a word among them is a fault.
    const bool usual = ours.tokenizer == nullptr || (ours.tokenizer->is_special(id) && ours.gguf);
    const auto bos = truth.roles.find("bos");
    const bool begins = bos != truth.roles.end() && bos->second.id == id;
    if (!usual || begins) extra.push_back(id);
  }
  if (missing.empty() && extra.empty()) return;
  std::string says =
      missing.empty() ? "" : fmt::format("Generation does not stop at {}", id_list(missing, ours));
  if (!extra.empty()) {
    says += missing.empty() ? "Generation stops at " : ", but at ";
    says += id_list(extra, ours);
    if (missing.empty()) says += ", which ends nothing in the source";
  }
  findings.add({"stop_tokens", "stop tokens", says + ".",
                ours.gguf ? fmt::format("Set tokenizer.ggml.eos_token_id (and eot_token_id) to {}.",
                                        id_list(*truth.stop_ids, ours))
                          : fmt::format("Set eos_token_id in generation_config.json to {}.",
                                        id_list(*truth.stop_ids, ours)),
                1, missing.size() + extra.size(), stop_settings(*truth.stop_ids, ours.gguf)});
}

std::vector<TextSetting> pad_settings(TokenId wanted, bool gguf) {
  if (wanted < 0) return {};
  if (gguf) return {{"gguf", "tokenizer.ggml.padding_token_id", std::to_string(wanted)}};
  return {{"generation_config.json", "pad_token_id", std::to_string(wanted)}};
}

void compare_pad(const TextTruth& truth, const TextSide& ours, TextFindings& findings) {
  if (ours.pad_id < 0) return;
  const auto is_stop = [&](TokenId id) {
    return truth.stop_ids && std::ranges::find(*truth.stop_ids, id) != truth.stop_ids->end();
  };
  const auto role = truth.roles.find("pad");
  const TokenId of_tokenizer = role == truth.roles.end() ? -1 : role->second.id.value_or(-1);
  const TokenId wanted = truth.pad_id.value_or(of_tokenizer);  // -1: none
  if (wanted == ours.pad_id || of_tokenizer == ours.pad_id) return;
  const bool known = wanted >= 0;
  const bool word = ours.tokenizer != nullptr && !ours.tokenizer->is_special(ours.pad_id);
  // A file may name a pad where the source has none; it must only be no word that could be said. An end of
  // text as pad may end answers, too.
  if (!word && (!known || is_stop(ours.pad_id) || ours.gguf)) return;
  const std::array<TokenId, 1> found = {ours.pad_id}, should = {wanted};
  findings.add(
      {"pad_token", "pad token",
       fmt::format("The padding token, which is never chosen, is {}{}.", id_list(found, ours),
                   wanted >= 0 ? " and should be " + id_list(should, ours) : ", and the source has none"),
       fmt::format("{} {}{}.", wanted >= 0 ? "Set" : "Take away",
                   ours.gguf ? "tokenizer.ggml.padding_token_id" : "pad_token_id",
                   wanted >= 0 ? fmt::format(" to {}", wanted) : ""),
       1, 1, pad_settings(wanted, ours.gguf)});
}

void compare_sampling(const TextTruth& truth, const TextSide& ours, TextFindings& findings) {
  if (!truth.sampling) return;
  // What transformers takes where generation_config.json does not say.
  static constexpr std::pair<std::string_view, double> kUsual[] = {
      {"do_sample", 0}, {"temperature", 1}, {"top_k", 50},
      {"top_p", 1},     {"min_p", 0},       {"repetition_penalty", 1}};
  for (const auto& [key, usual] : kUsual) {
    const auto said = truth.sampling->find(key), found = ours.sampling.find(key);
    const double wanted = said == truth.sampling->end() ? usual : said->second;
    if (found == ours.sampling.end() || found->second == wanted) continue;
    findings.add({"generation_defaults",
                  "defaults",
                  fmt::format("The default of {} is {} and should be {}.", key, found->second, wanted),
                  fmt::format("Set {} in generation_config.json to {}.", key, wanted),
                  1,
                  1,
                  {{"generation_config.json", std::string(key),
                    key == "do_sample" ? (wanted != 0 ? "true" : "false") : fmt::format("{}", wanted)}}});
  }
}

}  // namespace

void compare_conversations(const TextTruth& truth, const TextSide& ours, TextFindings& findings) {
  const bool any = std::ranges::any_of(truth.conversations,
                                       [](const ConversationCase& c) { return c.rendered.has_value(); });
  if (!any) return;
  if (!ours.render) {
    findings.add({"chat_template", "template", "The source has a chat template, and this model has none.",
                  ours.gguf ? "Set tokenizer.chat_template to the source's."
                            : "Copy chat_template.jinja from the source.",
                  1, truth.conversations.size()});
    return;
  }
  ConversationComparison(truth, ours, findings).run();
}

void compare_generation(const TextTruth& truth, const TextSide& ours, TextFindings& findings) {
  compare_stops(truth, ours, findings);
  compare_pad(truth, ours, findings);
  compare_sampling(truth, ours, findings);
}

}  // namespace doppler::diagnosis
