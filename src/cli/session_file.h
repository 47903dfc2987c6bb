// --session FILE: a conversation or a text that goes on from one run of the program to the next.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/chat/conversation.h"
#include "doppler/doppler.h"

namespace doppler::cli {

// Fills the engine's own sequence with what the file holds and returns the conversation; where there is no
// file, one begins, with this system text. Errors: those of Sequence::load and parse_conversation; kUsage for
// a file of plain text, or a system text for a conversation that has begun.
Result<Conversation> resume_conversation(Engine& engine, const std::string& file, const std::string& system);
// The same for plain text: returns its tokens so far. Errors: kUsage for a file of a conversation.
Result<std::vector<TokenId>> resume_text(Engine& engine, const std::string& file);

// Keeps the engine's own sequence in the file, with the conversation that it belongs to; without messages it
// is plain text.
Status keep_session(const Engine& engine, const std::string& file, const Conversation& conversation);

}  // namespace doppler::cli
