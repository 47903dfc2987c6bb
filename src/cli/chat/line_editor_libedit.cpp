// LineEditor with libedit, which knows keys, wide characters and redrawing, but not pastes: while a line is
// read the terminal is asked to put marks around them (bracketed paste), the first mark is bound to a
// function here, and that reads up to the last one.
#include <histedit.h>
#include <langinfo.h>

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <optional>

#include "base/layout.h"
#include "base/text.h"
#include "base/unicode.h"
#include "cli/chat/completion.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/paste.h"
#include "cli/command.h"
#include "system/process.h"
#include "system/terminal.h"

namespace doppler::cli {
namespace {

static_assert(sizeof(wchar_t) == 4, "a wide character is a code point");

std::wstring wide(std::string_view text) {
  std::wstring result;
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    result += static_cast<wchar_t>(c.value);
    text.remove_prefix(c.length);
  }
  return result;
}

std::string narrow(std::wstring_view text) {
  std::string result;
  for (const wchar_t c : text) append_utf8(result, static_cast<char32_t>(c));
  return result;
}

// libedit writes characters as the locale has them, and the terminal takes UTF-8.
bool use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) == "UTF-8") return true;
  return std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr;
}

// How many rows of a terminal the text takes; one that fills its last row stands at the beginning of the
// next.
std::size_t rows_of(std::string_view text, std::size_t width) {
  std::size_t rows = 0;
  for (;;) {
    const std::size_t end = text.find('\n');
    rows += text_columns(text.substr(0, end)) / std::max<std::size_t>(width, 1) + 1;
    if (end == std::string_view::npos) return rows;
    text.remove_prefix(end + 1);
  }
}

class LibeditEditor : public LineEditor {
 public:
  // `draws`: the stream that is the terminal.
  LibeditEditor(std::FILE* draws, Completer completer)
      : draws_(draws),
        completer_(std::move(completer)),
        history_(::history_winit()),
        editor_(::el_init("doppler", stdin, draws, stderr)) {
    HistEventW event;
    ::history_w(history_, &event, H_SETSIZE, kRemembered);
    ::history_w(history_, &event, H_SETUNIQUE, 1);
    set(EL_CLIENTDATA, this);
    set(EL_EDITOR, L"emacs");
    set(EL_SIGNAL, 1);  // a new size, Ctrl-Z and back
    set(EL_HIST, ::history_w, history_);
    set(EL_PROMPT, &prompt_of);
    set(EL_GETCFN, &next_character);
    bind_keys();
  }
  ~LibeditEditor() override {
    ::el_end(editor_);
    ::history_wend(history_);
  }

  Typed read(const std::string& prompt, const std::function<bool()>& ended) override {
    prompt_ = wide(prompt);
    ended_ = &ended;
    interrupted_ = false;
    set(EL_PREP_TERM, 1);  // first, so that whoever sees the prompt types into the editor
    send(kPasteOn);
    int count = 0;
    const wchar_t* const line = ::el_wgets(editor_, &count);
    std::wstring text(line == nullptr ? L"" : std::wstring_view(line, static_cast<std::size_t>(count)));
    send(kPasteOff);
    if (interrupted_) return {Typed::Kind::kInterrupt, narrow(dropped_)};
    if (line == nullptr || count <= 0) return {Typed::Kind::kEnd};
    if (text.back() == L'\n') text.pop_back();
    return {Typed::Kind::kLine, pastes_.expand(narrow(text))};
  }

  void remember(const std::string& line) override {
    // A long message would be redrawn at every key.
    HistEventW event;
    ::history_w(history_, &event, H_ENTER, wide(pastes_.shown(line, "message")).c_str());
  }

 private:
  static constexpr int kRemembered = 1000;

  template <typename... Values>
  void set(int what, Values... values) {
    ::el_wset(editor_, what, values...);
  }
  template <typename... Words>
  void bind(Words... words) {
    ::el_wset(editor_, EL_BIND, words..., static_cast<wchar_t*>(nullptr));
  }

  void bind_keys() {
    ::el_source(editor_, nullptr);  // the user's own ~/.editrc first
    set(EL_ADDFN, L"doppler-paste", L"Takes a paste", &on_paste);
    set(EL_ADDFN, L"doppler-interrupt", L"Drops the line", &on_interrupt);
    set(EL_ADDFN, L"doppler-newline", L"Begins a new line of the message", &on_newline);
    set(EL_ADDFN, L"doppler-stop", L"Goes back to the shell", &on_stop);
    // Ctrl-C and Ctrl-Z are keys while a line is read, and signals else.
    ::el_wset(editor_, EL_SETTY, L"-d", L"-isig", static_cast<wchar_t*>(nullptr));
    set(EL_ADDFN, L"doppler-complete", L"Completes a command or a path", &on_complete);
    bind(L"^I", L"doppler-complete");
    bind(L"^C", L"doppler-interrupt");
    bind(L"^Z", L"doppler-stop");
    bind(L"\\e[200~", L"doppler-paste");
    bind(L"\\e\\r", L"doppler-newline");
    bind(L"\\e\\n", L"doppler-newline");
    bind(L"^R", L"em-inc-search-prev");
    bind(L"^W", L"ed-delete-prev-word");
    // What terminals send beyond what their descriptions say.
    bind(L"\\e[H", L"ed-move-to-beg");
    bind(L"\\e[F", L"ed-move-to-end");
    bind(L"\\e[1~", L"ed-move-to-beg");
    bind(L"\\e[4~", L"ed-move-to-end");
    bind(L"\\e[3~", L"ed-delete-next-char");
    bind(L"\\e[1;5C", L"em-next-word");
    bind(L"\\e[1;5D", L"ed-prev-word");
  }

  static LibeditEditor& self(EditLine* editor) {
    void* data = nullptr;
    ::el_wget(editor, EL_CLIENTDATA, &data);
    return *static_cast<LibeditEditor*>(data);
  }

  static wchar_t* prompt_of(EditLine* editor) { return self(editor).prompt_.data(); }

  // A byte of the terminal; nothing at its end, or when a signal asks to end.
  std::optional<char> next_byte() const {
    for (;;) {
      errno = 0;
      const int byte = std::getc(stdin);
      if (byte != EOF) return static_cast<char>(byte);
      std::clearerr(stdin);  // the end that Ctrl-D makes in a terminal is not for ever
      if (errno != EINTR || (*ended_)()) return std::nullopt;
    }
  }

  static int next_character(EditLine* editor, wchar_t* to) {
    const LibeditEditor& here = self(editor);
    std::string bytes;
    do {
      const std::optional<char> byte = here.next_byte();
      if (!byte) return 0;
      bytes += *byte;
    } while (incomplete_utf8_suffix(bytes) == bytes.size());
    // A byte that breaks a character off is dropped with it.
    *to = static_cast<wchar_t>(first_code_point(bytes).value);
    return 1;
  }

  static unsigned char on_paste(EditLine* editor, wint_t) {
    LibeditEditor& here = self(editor);
    PasteCollector collector;
    for (;;) {
      const std::optional<char> byte = here.next_byte();
      if (!byte) return CC_EOF;
      if (collector.take(*byte)) break;
    }
    const std::wstring shown = wide(here.pastes_.shown(collector.text(), "paste"));
    if (collector.cut()) ::el_beep(editor);
    return ::el_winsertstr(editor, shown.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  // Adds what all candidates have in common, or lists them if that is there already.
  static unsigned char on_complete(EditLine* editor, wint_t) {
    const LibeditEditor& here = self(editor);
    const LineInfoW* const line = ::el_wline(editor);
    const std::string typed = narrow({line->buffer, static_cast<std::size_t>(line->cursor - line->buffer)});
    const Completion found = here.completer_(typed);
    if (found.words.empty()) return CC_ERROR;
    const std::string more = common_beginning(found.words).substr(typed.size() - found.begin);
    if (!more.empty()) return ::el_winsertstr(editor, wide(more).c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    if (found.words.size() == 1) return CC_ERROR;
    here.send("\n" + listed(found.words, table_columns()) + "\n");
    return CC_REDISPLAY;
  }

  static unsigned char on_newline(EditLine* editor, wint_t) {
    return ::el_winsertstr(editor, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  // libedit gives the terminal back while the program is stopped, and takes it again (EL_SIGNAL).
  static unsigned char on_stop(EditLine*, wint_t) {
    system::stop_for_shell();
    return CC_REDISPLAY;
  }

  static unsigned char on_interrupt(EditLine* editor, wint_t) {
    LibeditEditor& here = self(editor);
    const LineInfoW* const line = ::el_wline(editor);
    here.dropped_.assign(line->buffer, static_cast<std::size_t>(line->lastchar - line->buffer));
    const std::wstring shown = here.prompt_ + std::wstring(line->buffer, line->cursor);
    // The whole line once more, from where it begins, since the cursor may stand anywhere in it.
    const std::size_t rows = rows_of(narrow(shown), table_columns()) - 1;
    here.send(fmt::format("\r{}\033[J", rows > 0 ? fmt::format("\033[{}A", rows) : ""));
    ::el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));
    ::el_wset(editor, EL_REFRESH);
    here.send("^C\n");
    here.interrupted_ = true;
    return CC_EOF;
  }

  void send(std::string_view text) const {
    std::fwrite(text.data(), 1, text.size(), draws_);
    std::fflush(draws_);
  }

  std::FILE* const draws_;
  const Completer completer_;
  HistoryW* const history_;
  EditLine* const editor_;
  std::wstring prompt_;
  const std::function<bool()>* ended_ = nullptr;
  bool interrupted_ = false;
  std::wstring dropped_;  // the line in which Ctrl-C was pressed
  PasteMarks pastes_;
};

}  // namespace

std::unique_ptr<LineEditor> LineEditor::open(Completer completer) {
  using system::Stream;
  const std::string terminal = system::environment_variable("TERM").value_or("");
  if (terminal.empty() || terminal == "dumb" || !system::is_terminal(Stream::kInput)) return nullptr;
  const bool on_output = system::is_terminal(Stream::kOutput);
  if ((!on_output && !system::is_terminal(Stream::kError)) || !use_utf8()) return nullptr;
  return std::make_unique<LibeditEditor>(on_output ? stdout : stderr, std::move(completer));
}

}  // namespace doppler::cli
