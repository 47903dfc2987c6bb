// Chat: a conversation with a model in the terminal, and what its commands may change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/chat/answer.h"
#include "cli/chat/conversation.h"
#include "cli/chat/kept_files.h"
#include "cli/chat/message_reader.h"
#include "cli/chat/parameters.h"
#include "cli/looking.h"
#include "cli/settings.h"
#include "doppler/doppler.h"

namespace doppler::cli {

struct ChatArguments {
  std::string model, system;
  std::string session = {};  // the file that keeps the conversation and its cache; empty: none
  std::string on_full = "shift";
  bool keep_nothing = false;  // neither history nor the last conversation
  LookFlags look;
};
// The whole command, for `chat`, and for `run` without a prompt. Returns the exit status.
Result<int> hold_chat(const ChatArguments& arguments, const SettingFlags& given);

// Lines that a command was asked for, on stderr.
void tell(std::string_view lines);

class Chat {
 public:
  // What a command leads to.
  enum class Next : std::uint8_t { kListen, kAnswer, kLeave };

  Chat(Engine& engine, Looking& looking, Parameters parameters, const ChatArguments& arguments);

  // --- what commands read and change
  Engine& engine;
  const std::string model;  // as the user named it
  Conversation conversation;
  Parameters parameters;
  OnFull on_full = OnFull::kShift;
  ViewOptions view;
  bool shows_stats = false;
  bool has_terminal = false;  // a person types
  std::string attached;       // the text of files that goes with the next message

  // Puts the user's words, and what is attached to them, at the end of the conversation.
  void add_message(const std::string& text);
  // Answers the last message: shows, keeps and counts. A message that cannot be answered is taken back, and
  // what was attached to it is attached again.
  Status answer();
  // The next answer to the same message is drawn with another seed.
  void draw_again() { ++draws_; }
  // The exit status after the signal that stopped the last answer; 0: none did.
  int signalled() const { return signalled_; }

  // The figures of the last answer, and of all.
  std::string last_figures() const;
  std::string total_figures() const;

 private:
  void add_to_total(const Answer& answer);
  void take_back_message();
  void tell_about(const Answer& answer) const;
  Answerer answerer_;
  std::optional<Answer> last_;
  Timings total_;
  std::string sent_along_;  // what was attached to the message that is being answered
  std::size_t answers_ = 0;
  std::uint64_t draws_ = 0;
  std::uint64_t last_seed_ = 0;
  int signalled_ = 0;
};

}  // namespace doppler::cli
