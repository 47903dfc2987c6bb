// The texts and conversations that recordings hold: tools/text_probes.json, which hf_record.py reads, too.
#pragma once

#include <span>
#include <string_view>

#include "chat/chat_template.h"

namespace doppler::diagnosis {

struct ProbeFile {
  std::string_view name, text;
};
// cmake/embed_texts.cmake writes the table.
std::span<const ProbeFile> probe_files();

// {"texts": [...], "conversations": [{"name", "conversation"}, ...]}
const chat::OrderedJson& text_probes();

}  // namespace doppler::diagnosis
