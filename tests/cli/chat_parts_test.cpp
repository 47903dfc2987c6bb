// The parts of a chat that need no terminal: wrapping, thinking, pastes, messages of many lines,
// conversations and what is kept of them, commands and parameters.
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/layout.h"
#include "cli/chat/answer_view.h"
#include "cli/chat/commands.h"
#include "cli/chat/completion.h"
#include "cli/chat/conversation.h"
#include "cli/chat/kept_files.h"
#include "cli/chat/message_reader.h"
#include "cli/chat/parameters.h"
#include "cli/chat/paste.h"
#include "cli/chat/thinking.h"
#include "cli/chat/wrap.h"
#include "testing.h"

namespace doppler::cli {
namespace {

using testing::TempDir;

// The text wrapped at `columns`, given in pieces of `step` characters.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t step = 1000) {
  Wrapper wrapper([=] { return columns; });
  std::string out;
  std::string piece;
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    const bool whole = i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xc0) != 0x80;
    if (!whole || ++characters % step != 0) continue;
    out += wrapper.feed(piece);
    piece.clear();
  }
  out += wrapper.feed(piece);
  return out + wrapper.flush();
}

TEST(Columns, WideCharactersTakeTwoAndMarksNone) {
  EXPECT_EQ(text_columns("abc"), 3u);
  EXPECT_EQ(text_columns("熊"), 2u);
  EXPECT_EQ(text_columns("e\xcc\x81"), 1u);         // e and a combining acute accent
  EXPECT_EQ(text_columns("❤\xef\xb8\x8f"), 2u);     // drawn as an emoji
  EXPECT_EQ(text_columns("👩\xe2\x80\x8d🔬"), 2u);  // joined to one
  EXPECT_EQ(text_columns(""), 0u);
}

TEST(Wrapper, BreaksBetweenWordsAtTheWidth) {
  for (const std::size_t step : {1, 2, 5, 1000}) {
    EXPECT_EQ(wrapped("one two three four", 9, step), "one two\nthree\nfour") << step;
    EXPECT_EQ(wrapped("123456789 123", 9, step), "123456789\n123") << step;
    EXPECT_EQ(wrapped("a  b", 9, step), "a  b") << step;
    EXPECT_EQ(wrapped("  indented", 20, step), "  indented") << step;
  }
}

TEST(Wrapper, LeavesNewlinesCodeAndTablesAsTheyAre) {
  EXPECT_EQ(wrapped("a\nb\n\nc", 5), "a\nb\n\nc");
  const std::string code = "```cpp\nint main() { return 0; }\n```\n";
  EXPECT_EQ(wrapped(code, 10, 1), code);
  EXPECT_EQ(wrapped(code + "one two three", 10, 1), code + "one two\nthree");
  EXPECT_EQ(wrapped("~~~\na b c d e f\n~~~", 5, 1), "~~~\na b c d e f\n~~~");
  EXPECT_EQ(wrapped("| a | b | c |\n", 5, 1), "| a | b | c |\n");
}

TEST(Wrapper, BreaksWideTextAnywhereButBeforeWhatClosesAPhrase) {
  EXPECT_EQ(wrapped("熊は魚を食べる", 6, 1), "熊は魚\nを食べ\nる");
  EXPECT_EQ(wrapped("熊は魚。森", 6, 1), "熊は\n魚。森");
}

TEST(Wrapper, TakesAWordThatIsLongerThanTheLineAndANewWidth) {
  EXPECT_EQ(wrapped("a 1234567890 b", 4, 1), "a\n1234567890 b");
  std::size_t columns = 20;
  Wrapper wrapper([&] { return columns; });
  std::string out = wrapper.feed("one two three ");
  columns = 8;
  out += wrapper.feed("four five six");
  out += wrapper.flush();
  EXPECT_EQ(out, "one two three\nfour\nfive six");
}

// The parts of an answer given in pieces of `step` bytes, as "[dim]answer".
std::string split(std::string_view text, std::string_view prompt, std::size_t step) {
  const auto all = all_thinking_marks();
  ThinkingSplitter splitter({all.begin(), all.end()}, prompt);
  std::string out;
  const auto put = [&](const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      for (const char c : part.text) out += part.thinking ? std::string("[") + c + "]" : std::string(1, c);
    }
  };
  for (std::size_t i = 0; i < text.size(); i += step) put(splitter.feed(text.substr(i, step)));
  put(splitter.flush());
  return out;
}

TEST(Thinking, IsFoundBetweenTheMarksHoweverTheTextComes) {
  for (const std::size_t step : {1, 2, 3, 7, 100}) {
    EXPECT_EQ(split("<think>\nhm\n</think>\n\nYes", "", step), "[h][m][\n]Yes") << step;
    EXPECT_EQ(split("[THINK]a[/THINK]b", "", step), "[a]b") << step;
    EXPECT_EQ(split("a < b <thin> c", "", step), "a < b <thin> c") << step;
    EXPECT_EQ(split("no </think> mark", "", step), "no </think> mark") << step;
    EXPECT_EQ(split("a</think>b", "<|assistant|><think>\n", step), "[a]b") << step;
    EXPECT_EQ(split("<think>[/THINK]</thinking></think>b", "", step),
              split("<think>[/THINK]</thinking></think>b", "", 100));
    EXPECT_EQ(split("<think>never closed <", "", step).find(']'), 2u) << step;
  }
}

TEST(Thinking, AnswerAfterAnEmptyThoughtHasNoEmptyLines) {
  EXPECT_EQ(split("<think>\n\n</think>\n\nYes", "", 4), "Yes");
  EXPECT_EQ(split("\n\nYes", "", 4), "\n\nYes");
}

std::string laid_out(const ViewOptions& options, std::string_view text) {
  const auto all = all_thinking_marks();
  ThinkingSplitter splitter({all.begin(), all.end()}, "");
  AnswerLayout layout(options, [] { return std::size_t{20}; });
  std::string out;
  for (const char c : text) {
    const std::string piece(1, c);
    out += layout.feed(piece, splitter.feed(piece));
  }
  out += layout.feed("", splitter.flush());
  return out + layout.end();
}

TEST(AnswerLayout, DimsTheThinkingOnATerminalAndLeavesPipesAlone) {
  const std::string text = "<think>\nhm\n</think>\nYes, it is so and not else";
  EXPECT_EQ(laid_out({.terminal = true, .dim = true, .wrap = true}, text),
            "\033[2mhm\n\n\033[22mYes, it is so and\nnot else\n");
  EXPECT_EQ(laid_out({}, text), text + "\n");
  EXPECT_EQ(laid_out({.terminal = true, .dim = false, .wrap = false}, text), text + "\n");
}

TEST(AnswerLayout, ShowsControlsOfTheModelInsteadOfObeyingThem) {
  EXPECT_EQ(laid_out({.terminal = true}, "a\033[2Jb\r"), "a\xef\xbf\xbd[2Jb\xef\xbf\xbd\n");
}

std::string pasted(std::string_view bytes) {
  PasteCollector collector;
  for (const char byte : bytes)
    if (collector.take(byte)) return collector.text();
  return "unfinished";
}

TEST(Paste, IsTakenWholeWithNewlinesAndWithoutControls) {
  EXPECT_EQ(pasted("one\rtwo\r\nthree\033[201~"), "one\ntwo\nthree");
  EXPECT_EQ(pasted("a\tb\003\033[31m\x7f\033[201~"), "a\tb[31m");
  EXPECT_EQ(pasted("\xff\xe7\x86\033[201~"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(pasted("no end\033[201"), "unfinished");
}

TEST(Paste, BeyondTheBoundIsDropped) {
  PasteCollector collector;
  for (std::size_t i = 0; i < PasteCollector::kMostBytes + 1000; ++i) collector.take('a');
  bool ended = false;
  for (const char byte : kPasteEnds) ended = collector.take(byte);
  EXPECT_TRUE(ended);
  EXPECT_TRUE(collector.cut());
  EXPECT_EQ(collector.text().size(), PasteCollector::kMostBytes);
}

TEST(Paste, LongOnesStandInTheLineAsMarks) {
  PasteMarks marks;
  EXPECT_EQ(marks.shown("two\nlines", "paste"), "two\nlines");
  const std::string longer(100000, 'x');
  const std::string lines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
  const std::string first = marks.shown(longer, "paste"), second = marks.shown(lines, "paste");
  EXPECT_EQ(first, "[paste 1: 1 line, 100.0 kB]");
  EXPECT_EQ(second, "[paste 2: 9 lines, 18 B]");
  EXPECT_EQ(marks.expand("a " + second + " b " + first + "."), "a " + lines + " b " + longer + ".");
  EXPECT_EQ(marks.expand("[paste 3: 1 line, 1 B]"), "[paste 3: 1 line, 1 B]");
}

TEST(MessageLines, QuotesHoldManyLinesTogether) {
  MessageLines lines;
  EXPECT_EQ(lines.take("one"), "one");
  EXPECT_FALSE(lines.quoted());
  EXPECT_EQ(lines.take("\"\"\"one\"\"\""), "one");
  EXPECT_TRUE(lines.quoted());
  EXPECT_EQ(lines.take("\"\"\""), std::nullopt);
  EXPECT_TRUE(lines.open());
  EXPECT_EQ(lines.take("/not a command"), std::nullopt);
  EXPECT_EQ(lines.take(""), std::nullopt);
  EXPECT_EQ(lines.take("end \"\"\" "), "/not a command\n\nend ");
  EXPECT_FALSE(lines.open());
  EXPECT_EQ(lines.take("\"\"\"a"), std::nullopt);
  EXPECT_EQ(lines.take("\"\"\""), "a");
  EXPECT_EQ(lines.take("\"quoted\""), "\"quoted\"");
}

Conversation conversation_of_turns(int turns) {
  Conversation conversation;
  conversation.system = "Be brief.";
  for (int i = 1; i <= turns; ++i) {
    conversation.add({"user", "q" + std::to_string(i)});
    conversation.add({"assistant", "a" + std::to_string(i)});
  }
  return conversation;
}

std::string sent_text(const Conversation& conversation) {
  std::string text;
  for (const Message& message : conversation.sent()) text += message.content + " ";
  return text;
}

TEST(Conversation, OldestTurnsAreLeftOutButStay) {
  Conversation conversation = conversation_of_turns(3);
  EXPECT_EQ(sent_text(conversation), "Be brief. q1 a1 q2 a2 q3 a3 ");
  EXPECT_TRUE(conversation.leave_out_oldest_turn());
  EXPECT_EQ(sent_text(conversation), "Be brief. q2 a2 q3 a3 ");
  EXPECT_TRUE(conversation.leave_out_oldest_turn());
  EXPECT_FALSE(conversation.leave_out_oldest_turn());
  EXPECT_EQ(sent_text(conversation), "Be brief. q3 a3 ");
  EXPECT_EQ(conversation.turns_left_out(), 2u);
  EXPECT_EQ(conversation.turns(), 3u);
  EXPECT_EQ(messages_json(all_messages(conversation))["messages"].size(), 7u);
}

TEST(Conversation, TurnsAreTakenBack) {
  Conversation conversation = conversation_of_turns(2);
  conversation.take_back_answer();
  EXPECT_EQ(sent_text(conversation), "Be brief. q1 a1 q2 ");
  EXPECT_EQ(conversation.take_back_turn()->content, "q2");
  EXPECT_EQ(sent_text(conversation), "Be brief. q1 a1 ");
  EXPECT_EQ(conversation.take_back_turn()->content, "q1");
  EXPECT_EQ(conversation.take_back_turn(), std::nullopt);
  EXPECT_EQ(conversation.last_of_user(), nullptr);
}

TEST(Conversation, WhatWasLeftOutComesBackWhenTheNewestTurnGoes) {
  Conversation conversation = conversation_of_turns(2);
  ASSERT_TRUE(conversation.leave_out_oldest_turn());
  (void)conversation.take_back_turn();
  EXPECT_EQ(sent_text(conversation), "Be brief. q1 a1 ");
}

TEST(ConversationJson, SavesAndLoadsEveryField) {
  Conversation conversation = conversation_of_turns(1);
  conversation.add({.role = "user", .parts = {{.text = "one"}, {.text = "two"}}});
  conversation.add({.role = "assistant", .tool_calls = {{"1", "weather", R"({"city":"Rome"})"}}});
  conversation.add({.role = "tool", .content = "sunny", .tool_call_id = "1", .name = "weather"});
  const std::string text = messages_json(all_messages(conversation)).dump();
  ASSERT_OK_AND_ASSIGN(const std::vector<Message> loaded, parse_messages(text, "The file x"));
  EXPECT_EQ(conversation_of(loaded).system, "Be brief.");
  EXPECT_EQ(conversation_of(loaded).messages().size(), 5u);
  EXPECT_EQ(messages_json(loaded).dump(), text);
  ASSERT_OK_AND_ASSIGN(const std::vector<Message> list,
                       parse_messages(R"([{"role": "user", "content": "hi"}])", "x"));
  EXPECT_EQ(list.size(), 1u);
}

TEST(ConversationJson, RefusesWhatIsNone) {
  const auto refused = [](std::string_view text, std::string_view part) {
    const auto loaded = parse_messages(text, "The file x");
    ASSERT_FALSE(loaded) << text;
    EXPECT_NE(loaded.error().message.find(part), std::string::npos) << loaded.error().message;
  };
  refused("", "The file x");
  refused("{", "The file x");
  refused("\"\xff\"", "The file x");
  refused(std::string(100000, '['), "The file x");
  refused("{}", "holds no conversation");
  refused(R"({"messages": 3})", "holds no conversation");
  refused(R"([3])", "message 1 is no object");
  refused(R"([{"content": "x"}])", "message 1 has no role");
  refused(R"([{"role": 3}])", "has a role that is no text");
  refused(R"([{"role": "user"}, {"role": "user", "content": 3}])", "message 2 has a content that is no text");
  refused(R"([{"role": "user", "content": [3]}])", "has a part that is no object");
  refused(R"([{"role": "user", "content": [{"type": "image_url"}]}])", "of the type image_url");
  refused(R"([{"role": "user", "tool_calls": 3}])", "has tool_calls that are no list");
  refused(R"([{"role": "user", "tool_calls": [{}]}])", "has a tool call without a function");
  refused(R"({"messages": [], "tools": [{}]})", "has tools");
}

TEST(ChatHistory, IsKeptInAPrivateFileAndReadAgain) {
  TempDir dir;
  const auto path = dir / "state" / "history";
  {
    ChatHistory history(path);
    ASSERT_OK(history.add("one"));
    ASSERT_OK(history.add("two\nlines \"quoted\" 熊"));
    ASSERT_OK(history.add("two\nlines \"quoted\" 熊"));
    ASSERT_OK(history.add(std::string(ChatHistory::kMostBytes + 1, 'x')));
  }
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const ChatHistory again(path);
  ASSERT_EQ(again.messages().size(), 2u);
  EXPECT_EQ(again.messages()[1], "two\nlines \"quoted\" 熊");
}

TEST(ChatHistory, SkipsWhatIsNoMessageAndForgetsTheOldest) {
  TempDir dir;
  std::string text = "no json\n3\n\"kept\"\n\xff\xfe\n\"unfinished";
  testing::write_file(dir / "history", text);
  EXPECT_EQ(ChatHistory(dir / "history").messages().size(), 1u);
  for (std::size_t i = 0; i < 2 * ChatHistory::kMostMessages; ++i) text += "\n\"" + std::to_string(i) + "\"";
  testing::write_file(dir / "history", text + "\n");
  const ChatHistory history(dir / "history");
  EXPECT_EQ(history.messages().size(), ChatHistory::kMostMessages);
  EXPECT_EQ(history.messages().back(), std::to_string(2 * ChatHistory::kMostMessages - 1));
  EXPECT_EQ(ChatHistory(dir / "history").messages().size(), ChatHistory::kMostMessages);
}

TEST(ChatHistory, SaysOnceThatItCannotBeKept) {
  TempDir dir;
  testing::write_file(dir / "file", "");
  ChatHistory history(dir / "file" / "history");
  EXPECT_FALSE(history.add("one"));
  ASSERT_OK(history.add("two"));
  EXPECT_EQ(history.messages().size(), 2u);
}

TEST(ChatCommands, AreFoundByNameByOthersNamesAndNearly) {
  for (const ChatCommand& each : all_chat_commands()) {
    ASSERT_OK_AND_ASSIGN(const ChatCommand* const found, find_chat_command(std::string(each.name) + " more"));
    EXPECT_EQ(found->name, each.name);
    EXPECT_FALSE(each.what.empty());
    // What /help prints fits a terminal of 80 columns.
    EXPECT_LE(each.name.size() + each.arguments.size() + 1, 22u) << each.name;
    EXPECT_LE(23 + each.what.size(), 80u) << each.name;
  }
  for (const char* other : {"/bye", "/quit", "/exit"}) {
    ASSERT_OK_AND_ASSIGN(const ChatCommand* const found, find_chat_command(other));
    EXPECT_EQ(found->name, "/exit") << other;
  }
  const auto wrong = find_chat_command("/hepl");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("Did you mean /help?"), std::string::npos) << wrong.error().message;
  EXPECT_NE(find_chat_command("/zzzzzzzz").error().message.find("/help lists them"), std::string::npos);
}

TEST(Completion, OffersCommandsWhatTheyTakeAndPaths) {
  const auto words = [](std::string_view typed) { return complete_line(typed).words; };
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("/s"), (Words{"/save ", "/set ", "/show ", "/stats", "/system "}));
  EXPECT_EQ(words("/und"), Words{"/undo"});
  EXPECT_EQ(words("/help und"), Words{"undo"});
  EXPECT_EQ(words("/show "), (Words{"messages", "model", "settings", "system", "template"}));
  EXPECT_EQ(words("/set wr"), Words{"wrap "});
  EXPECT_EQ(words("/set wrap o"), (Words{"wrap off", "wrap on"}));
  EXPECT_EQ(complete_line("/set wrap o").begin, 5u);
  EXPECT_EQ(words("/system a"), Words{}) << "any text";
  EXPECT_EQ(words("what"), Words{}) << "a message";
  EXPECT_EQ(words("/nothing a"), Words{});

  const testing::TempDir dir;
  for (const char* name : {"ä1", "ä2", ".hidden", "b"}) testing::write_file(dir / name, "");
  std::filesystem::create_directory(dir / "folder");
  const std::string in = dir.path().string() + "/";
  EXPECT_EQ(paths_from(in), (Words{in + "b", in + "folder/", in + "ä1", in + "ä2"}));
  EXPECT_EQ(paths_from(in + ".h"), Words{in + ".hidden"});
  EXPECT_EQ(paths_from(in + "none/x"), Words{});
  EXPECT_EQ(words("/file " + in + "f"), Words{in + "folder/"});
  EXPECT_EQ(listed(paths_from(in), 80), "b  folder/  ä1  ä2");
}

TEST(Completion, CommonBeginningsEndBetweenCharacters) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(common_beginning(Words{"aä", "aö"}), "a") << "ä and ö share a byte";
  EXPECT_EQ(common_beginning(Words{"ab", "abc"}), "ab");
  EXPECT_EQ(common_beginning(Words{}), "");
}

TEST(Parameters, AreSettingsByTheirNamesAndRanges) {
  Settings settings;
  GenerateOptions model;
  model.temperature = 0.6;
  model.seed = 42;
  Parameters parameters(settings, model);
  EXPECT_EQ(parameters.options().temperature, 0.6);
  EXPECT_EQ(parameters.options().seed, 42u);
  ASSERT_OK_AND_ASSIGN(const std::string said, parameters.set("temperature", "0.7"));
  EXPECT_EQ(said, "temperature is 0.7");
  for (const char* name : {"top-k", "topK", "top_k", "--top-k", "runtime.inference.sampling.topK"}) {
    ASSERT_TRUE(Parameters::has(name)) << name;
    ASSERT_OK(parameters.set(name, "7"));
  }
  EXPECT_EQ(parameters.options().top_k, 7u);
  ASSERT_OK(parameters.set("num_predict", "12"));
  EXPECT_EQ(parameters.options().max_tokens, 12u);
  ASSERT_OK(parameters.set("stop", "\"a\\nb\""));
  EXPECT_EQ(parameters.options().stop, std::vector<std::string>{"a\nb"});
  const auto wrong = parameters.set("top-p", "2");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("between 0 and 1"), std::string::npos) << wrong.error().message;
  EXPECT_EQ(parameters.options().top_p, 1);
  ASSERT_OK(parameters.set("temperature", "default"));
  EXPECT_EQ(parameters.options().temperature, 0.6);
  EXPECT_EQ(parameters.options().top_k, 7u);
  ASSERT_OK(parameters.set("seed", "5"));
  EXPECT_EQ(parameters.options().seed, 5u);
  EXPECT_FALSE(Parameters::has("backend"));
}

}  // namespace
}  // namespace doppler::cli
