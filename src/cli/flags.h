// The command line as commands declare it: each option's name, the variable it fills, and its allowed values.
// CLI11 parses it behind this header, because its own headers take longer to compile than any command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace doppler::cli {

// What the parser does not keep of options.
struct OptionFacts;

// A declared option, flag or argument: a handle, as cheap to copy as two pointers. Its modifiers return it
// again.
class Option {
 public:
  Option() = default;  // empty: only to be assigned to
  Option(CLI::Option* option, OptionFacts* facts) : option_(option), facts_(facts) {}

  Option required();
  Option describe(const std::string& text);    // replaces the description it was declared with
  Option group(const std::string& title);      // the heading under which --help lists it
  Option value_name(const std::string& name);  // in --help
  Option show_default();                       // in --help: the variable's initial value
  // Other values are wrong usage; in a list, each value is checked.
  Option positive();
  Option not_negative();
  Option between(std::int64_t least, std::int64_t most);
  // For lists: values may be joined by this character; each use of the option takes one value.
  Option separator(char character);
  Option one_value_each();
  // For completion: its values, or how some of them begin ("stage=q_rope,"). The command checks them itself.
  Option values(std::vector<std::string> values);
  // Wrong usage: with none of the others, since it would have no effect; with one of them.
  Option only_with(std::vector<Option> others);
  Option not_with(const std::vector<Option>& others);

  bool given() const;  // once parsed

 private:
  CLI::Option* option_ = nullptr;
  OptionFacts* facts_ = nullptr;
};

// The words that a command takes.
struct CommandWords {
  struct Flag {
    std::string name;  // "--json", "-o"
    bool takes_value = false;
    std::vector<std::string> values;  // some; empty: any
  };
  std::string command;
  std::vector<Flag> flags;          // those of its subcommands, too
  std::vector<std::string> values;  // its subcommands, or values of its first positional argument
};

// A command, or a subcommand of one; a handle, too.
class Command {
 public:
  Command(CLI::App* app, OptionFacts* facts) : app_(app), facts_(facts) {}

  // NAME is "--long", "-s,--long", or a word for a positional argument. The variable must live as long as the
  // command line.
  Option add_option(const std::string& name, std::string& to, const std::string& what = "");
  Option add_option(const std::string& name, std::uint32_t& to, const std::string& what = "");
  Option add_option(const std::string& name, std::uint64_t& to, const std::string& what = "");
  Option add_option(const std::string& name, double& to, const std::string& what = "");
  Option add_option(const std::string& name, std::vector<std::string>& to, const std::string& what = "");
  Option add_option(const std::string& name, std::vector<std::uint64_t>& to, const std::string& what = "");
  // "!--no-x" makes the variable false.
  Option add_flag(const std::string& name, bool& to, const std::string& what = "");

  // Instead of filling a variable; an error is wrong usage of this option.
  using OnText = std::function<Status(const std::string& text)>;
  using OnTexts = std::function<Status(const std::vector<std::string>& texts)>;
  Option call_option(const std::string& name, OnText on_text, const std::string& what);
  Option call_list_option(const std::string& name, OnTexts on_texts, const std::string& what);
  Option call_flag(const std::string& name, std::function<void()> on_flag, const std::string& what);

  // Adds a subcommand; the command's own options may follow it.
  Command add_part(const std::string& name, const std::string& what);
  void require_part();                   // a subcommand must be given
  void footer(const std::string& text);  // the end of --help; lines that begin with two spaces are examples

  bool chosen() const;  // once parsed

  // Every command beside this one as completion scripts and messages need it.
  std::vector<CommandWords> all_words() const;

 private:
  CLI::App* app_;
  OptionFacts* facts_;
};

// The whole command line: the program's name and texts, its commands, and the parsed arguments.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& what, const std::string& version,
              const std::string& footer);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command add_command(std::string_view name, std::string_view what);
  std::vector<CommandWords> all_words() const;
  // The text that --help or --version asks for, for a terminal of `width` columns; nothing if a command is to
  // run. Errors: kUsage, in the parser's words.
  Result<std::optional<std::string>> parse(int argc, char** argv, std::size_t width);

 private:
  std::unique_ptr<CLI::App> app_;
  std::unique_ptr<OptionFacts> facts_;
};

}  // namespace doppler::cli
