// Conversation: a system text and the messages after it, in turns.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "doppler/chat.h"

namespace doppler::cli {

// A turn is a message of the user and what follows it up to the next one. The oldest turns may be left out of
// what the model reads; they stay in the conversation, and in what is saved of it.
class Conversation {
 public:
  std::string system;  // empty: none

  std::span<const Message> messages() const { return messages_; }
  // What the model reads: the system text, and the messages that are not left out.
  std::vector<Message> sent() const;
  std::size_t turns() const;
  std::size_t turns_left_out() const;
  const Message* last_of_user() const;  // null: the user has said nothing

  void add(Message message) { messages_.push_back(std::move(message)); }
  // Removes all messages; the system text stays.
  void clear();
  // Removes the last turn and returns the user's message. Nothing if there is no turn.
  std::optional<Message> take_back_turn();
  // Removes what follows the user's last message.
  void take_back_answer();
  // Leaves out one turn more. False if only the newest is left.
  bool leave_out_oldest_turn();

 private:
  std::size_t begin_of_last_turn() const;
  std::vector<Message> messages_;
  std::size_t first_sent_ = 0;
};

// A system message at the beginning becomes the system text.
Conversation conversation_of(std::vector<Message> messages);
// All of it, also what is left out.
std::vector<Message> all_messages(const Conversation& conversation);

// {"messages": [...]}, as chat services and `tokenize --messages` read it.
Json messages_json(std::span<const Message> messages);
// The messages of such an object or of the bare list. `what` names the source in errors ("The file x").
// Errors: kCorrupt for anything else; kUnsupported for tools and parts that are no text.
Result<std::vector<Message>> parse_messages(std::string_view json, std::string_view what);

}  // namespace doppler::cli
