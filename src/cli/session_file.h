// --session FILE: a conversation that goes on from one run of the program to the next.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "doppler/doppler.h"

namespace doppler::cli {

// Fills the engine's own sequence with what the file holds, and returns the conversation's messages; a file
// that is not there leaves the sequence empty. Plain text has tokens and no messages. Errors: those of
// Sequence::load; kCorrupt for messages that save_session does not write.
Result<std::vector<Message>> load_session(Engine& engine, const std::string& file);

// Keeps the engine's own sequence in the file, with the messages that it was made of.
Status save_session(const Engine& engine, const std::string& file, std::span<const Message> messages);

}  // namespace doppler::cli
