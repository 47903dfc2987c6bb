// Where the system's console edits lines by itself.
#include "cli/chat/line_editor.h"

namespace doppler::cli {

std::unique_ptr<LineEditor> LineEditor::open(Completer) {
  return nullptr;
}

}  // namespace doppler::cli
