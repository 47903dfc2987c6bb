#include "cli/session_file.h"

#include "base/json.h"
#include "base/text.h"
#include "cli/chat/conversation.h"
#include "system/files.h"

namespace doppler::cli {
namespace {

struct Held {
  std::vector<TokenId> tokens;
  std::string text;  // the conversation as JSON; empty for plain text
};

Result<Held> load_session(Engine& engine, const std::string& file) {
  Held held;
  if (!system::exists(file)) return held;
  DOPPLER_ASSIGN(Sequence own, engine.sequence());
  if (Status loaded = own.load(file, &held.text); !loaded) {
    Error error = std::move(loaded).error();
    error.message += " Or name another file with --session, to begin anew.";
    return std::unexpected(std::move(error));
  }
  held.tokens = own.tokens();
  return held;
}

}  // namespace

Result<Conversation> resume_conversation(Engine& engine, const std::string& file, const std::string& system) {
  DOPPLER_ASSIGN(const Held held, load_session(engine, file));
  Conversation conversation;
  conversation.system = system;
  if (held.tokens.empty() && held.text.empty()) return conversation;
  if (held.text.empty()) {
    return fail(
        ErrorCode::kUsage,
        "The file {} holds plain text and no messages. Go on with it by run --raw, or name another file "
        "with --session.",
        printable(file, 200));
  }
  if (!system.empty()) {
    return fail(
        ErrorCode::kUsage,
        "The conversation in the file {} has begun already, so that --system comes too late. Leave it "
        "out, or name another file with --session.",
        printable(file, 200));
  }
  DOPPLER_ASSIGN(std::vector<Message> messages,
                 parse_messages(held.text, "The text in the file " + printable(file, 200)));
  return conversation_of(std::move(messages));
}

Result<std::vector<TokenId>> resume_text(Engine& engine, const std::string& file) {
  DOPPLER_ASSIGN(Held held, load_session(engine, file));
  if (held.text.empty()) return std::move(held.tokens);
  return fail(ErrorCode::kUsage,
              "The file {} holds a conversation. Leave out --raw and --prompt-ids, or name another file with "
              "--session.",
              printable(file, 200));
}

Status keep_session(const Engine& engine, const std::string& file, const Conversation& conversation) {
  DOPPLER_ASSIGN(const Sequence own, engine.sequence());
  if (conversation.messages().empty()) return own.save(file);
  return own.save(file, dump_json(messages_json(all_messages(conversation))));
}

}  // namespace doppler::cli
