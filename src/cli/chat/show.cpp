#include "cli/chat/show.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "engine/access.h"

namespace doppler::cli {
namespace {

std::string show_model(const Chat& chat) {
  const ModelInfo info = chat.engine.info();
  std::string types;
  for (const TensorTypeTotal& total : info.types) types += (types.empty() ? "" : ", ") + total.type;
  return fmt::format(
      "{}: {}, {} layers of {}, vocabulary of {}, weights {} ({})\n"
      "on {}, context {} of the {} tokens that it was trained for, cache {} ({})",
      printable(chat.model), info.family, info.layers, info.hidden, info.vocab_size,
      human_bytes(info.memory.weights), types, chat.engine.backend_name(), chat.engine.context(),
      info.context_length, human_bytes(info.memory.cache), info.memory.kv_type);
}

std::string show_template(const Chat& chat) {
  return EngineAccess::loaded(chat.engine).chat->source();
}

std::string show_settings(const Chat& chat) {
  return switches_table(chat) + chat.parameters.table();
}

std::string show_system(const Chat& chat) {
  return chat.conversation.system.empty() ? "There is no system text." : chat.conversation.system;
}

std::string show_messages(const Chat& chat) {
  std::string text;
  for (const Message& message : chat.conversation.sent()) {
    text += fmt::format("{}: {}\n", message.role, message.content);
    for (const ContentPart& part : message.parts) text += part.text + "\n";
  }
  return text.empty() ? "There are no messages." : text;
}

// The part that `name` asks for, also by the names that ollama has.
struct ShownPart {
  std::string_view name, other;
  std::string (*text)(const Chat& chat);
};
constexpr auto kParts = std::to_array<ShownPart>({
    {"model", "info", show_model},
    {"template", "modelfile", show_template},
    {"settings", "parameters", show_settings},
    {"system", "", show_system},
    {"messages", "history", show_messages},
});

std::string show_all(const Chat& chat) {
  const auto& chat_template = *EngineAccess::loaded(chat.engine).chat;
  const Conversation& conversation = chat.conversation;
  const std::size_t out = conversation.turns_left_out();
  return fmt::format(
      "{}\ntemplate: {}, {}; /show template prints it\nsystem text: {}\nmessages: {}, turns: {}{}\n{}",
      show_model(chat), chat_template.name(), human_bytes(chat_template.source().size()),
      conversation.system.empty() ? "none" : printable(conversation.system, 60),
      conversation.messages().size(), conversation.turns(),
      out == 0 ? "" : fmt::format(", the oldest {} left out", out), show_settings(chat));
}

// A switch of the chat itself.
struct Switch {
  std::string_view name, on, off, what;
  bool (*get)(const Chat& chat);
  void (*set)(Chat& chat, bool on);
};
constexpr auto kSwitches = std::to_array<Switch>({
    {"stats", "on", "off", "figures after each answer", [](const Chat& chat) { return chat.shows_stats; },
     [](Chat& chat, bool on) { chat.shows_stats = on; }},
    {"wrap", "on", "off", "break lines between words", [](const Chat& chat) { return chat.view.wrap; },
     [](Chat& chat, bool on) { chat.view.wrap = on && chat.view.terminal; }},
    {"on-full", "shift", "stop", "when the context is full: leave out the oldest turns, or end the answer",
     [](const Chat& chat) { return chat.on_full == OnFull::kShift; },
     [](Chat& chat, bool on) { chat.on_full = on ? OnFull::kShift : OnFull::kStop; }},
});

Result<std::string> set_switch(Chat& chat, const Switch& one, std::string_view value) {
  if (value == one.on || value == one.off) {
    one.set(chat, value == one.on);
    return fmt::format("{} is {}", one.name, one.get(chat) ? one.on : one.off);
  }
  if (value.empty()) {
    return fmt::format("{} is {}, or may be {}: {}", one.name, one.get(chat) ? one.on : one.off,
                       one.get(chat) ? one.off : one.on, one.what);
  }
  return fail(ErrorCode::kUsage, "The switch {} is set to {}, but it must be {} or {}.", one.name,
              printable(value), one.on, one.off);
}

// What people type who know other programs, or the command line.
struct Elsewhere {
  std::string_view name, hint;
};
constexpr auto kElsewhere = std::to_array<Elsewhere>({
    {"system", "Write /system TEXT."},
    {"verbose", "Write /set stats on."},
    {"quiet", "Write /set stats off."},
    {"wordwrap", "Write /set wrap on."},
    {"nowordwrap", "Write /set wrap off."},
    {"num_ctx", "The context is chosen at the start, with --context."},
    {"context", "It is chosen at the start, with --context."},
    {"history", "Begin with --keep-nothing to keep none."},
    {"nohistory", "Begin with --keep-nothing to keep none."},
});

}  // namespace

Result<std::string> show_part(const Chat& chat, std::string_view part) {
  if (part.empty()) return show_all(chat);
  std::vector<std::string> names;
  for (const ShownPart& each : kParts) {
    if (part == each.name || part == each.other) return each.text(chat);
    names.emplace_back(each.name);
  }
  return fail(ErrorCode::kUsage, "There is no part {} to show, only {}.", printable(part), join(names, ", "));
}

std::vector<std::string> names_to_show(std::string_view) {
  std::vector<std::string> names;
  for (const ShownPart& each : kParts) names.emplace_back(each.name);
  return names;
}

std::vector<std::string> names_to_set(std::string_view typed) {
  std::vector<std::string> names;
  for (const Switch& each : kSwitches) {
    if (typed.starts_with(fmt::format("{} ", each.name)))
      return {fmt::format("{} {}", each.name, each.on), fmt::format("{} {}", each.name, each.off)};
    names.push_back(fmt::format("{} ", each.name));
  }
  for (const std::string& name : Parameters::names()) names.push_back(name + " ");
  return names;
}

std::string switches_table(const Chat& chat) {
  std::string text;
  for (const Switch& each : kSwitches)
    text += fmt::format("{:18} {}\n", each.name, each.get(chat) ? each.on : each.off);
  return text;
}

Result<std::string> set_by_name(Chat& chat, std::string_view name, std::string_view value) {
  std::vector<std::string> names = Parameters::names();
  for (const Switch& each : kSwitches) {
    if (each.name == name) return set_switch(chat, each, value);
    names.emplace_back(each.name);
  }
  if (Parameters::has(name)) {
    if (value.empty()) return chat.parameters.describe(name);
    return chat.parameters.set(name, value);
  }
  const auto elsewhere = std::find_if(kElsewhere.begin(), kElsewhere.end(),
                                      [&](const Elsewhere& each) { return each.name == name; });
  std::string hint = "/set alone lists what there is.";
  if (elsewhere != kElsewhere.end())
    hint = elsewhere->hint;
  else if (const std::string nearest = nearest_name(name, names); !nearest.empty())
    hint = fmt::format("Did you mean {}?", nearest);
  return fail(ErrorCode::kUsage, "/set knows no {}. {}", printable(name), hint);
}

}  // namespace doppler::cli
