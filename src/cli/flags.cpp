#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/layout.h"
#include "base/text.h"

namespace doppler::cli {

struct OptionFacts {
  std::map<const CLI::Option*, std::vector<std::string>> values;
  std::map<const CLI::Option*, std::vector<const CLI::Option*>> needs;
  std::vector<std::pair<const CLI::Option*, const CLI::Option*>> clashes;
};

namespace {

// CLI11 expects an exception from a callback that refuses its value.
void refuse_errors(const std::string& name, const Status& status) {
  if (!status) throw CLI::ValidationError(name, status.error().message);
}

// "--json" of an option, "PROMPT" of an argument.
std::string name_of(const CLI::Option& option) {
  return option.get_name(/*positional=*/false, /*all_options=*/false);
}

// Flags and arguments that would have no effect, or two that exclude each other.
Status check_together(const OptionFacts& facts) {
  for (const auto& [option, others] : facts.needs) {
    const bool needless = option->count() == 0 || std::ranges::any_of(others, [](const CLI::Option* other) {
                            return other->count() > 0;
                          });
    if (needless) continue;
    std::vector<std::string> names;
    for (const CLI::Option* other : others) names.push_back(name_of(*other));
    return fail(ErrorCode::kUsage, "{} has no effect without {}. Give both, or neither", name_of(*option),
                join(names, " or "));
  }
  for (const auto& [one, other] : facts.clashes) {
    if (one->count() > 0 && other->count() > 0) {
      return fail(ErrorCode::kUsage, "{} has no effect with {}. Give one of them", name_of(*one),
                  name_of(*other));
    }
  }
  return {};
}

void add_words(const CLI::App& app, const OptionFacts& facts, CommandWords& to) {
  for (const CLI::Option* option : app.get_options()) {
    const auto found = facts.values.find(option);
    const std::vector<std::string> values =
        found == facts.values.end() ? std::vector<std::string>() : found->second;
    const bool takes_value = option->get_items_expected_max() > 0;
    for (const std::string& name : option->get_lnames())
      to.flags.push_back({"--" + name, takes_value, values});
    for (const std::string& name : option->get_snames())
      to.flags.push_back({"-" + name, takes_value, values});
    if (option->get_positional() && to.values.empty()) to.values = values;
  }
  for (const CLI::App* part : app.get_subcommands({})) {
    to.values.push_back(part->get_name());
    add_words(*part, facts, to);
  }
}

std::vector<CommandWords> words_below(const CLI::App& root, const OptionFacts& facts) {
  std::vector<CommandWords> all;
  for (const CLI::App* command : root.get_subcommands({})) {
    CommandWords words{command->get_name(), {}, {}};
    add_words(*command, facts, words);
    std::set<std::string> seen;  // an option of a command and of its part is one word
    std::erase_if(words.flags,
                  [&](const CommandWords::Flag& flag) { return !seen.insert(flag.name).second; });
    all.push_back(std::move(words));
  }
  return all;
}

// The parser's help, which knows no width: an option's name begins at column 2, and what it does at kAt.
constexpr std::size_t kAt = 30;
std::string fit_help(const std::string& help, std::size_t width) {
  const bool narrow = width < kAt + 40;
  std::string fitted;
  std::istringstream lines(help);
  for (std::string line, before; std::getline(lines, line); before = line) {
    if (line.empty() && before.empty()) continue;
    const bool option =
        line.size() > kAt && line.starts_with("  ") && line[kAt - 1] == ' ' && line[kAt] != ' ';
    if (option && narrow) {
      const std::string name = line.substr(0, kAt);
      const std::size_t end = name.find_last_not_of(' ') + 1;
      if (end > 0) fitted += wrap(name.substr(0, end), width, 4) + "\n";
      fitted += wrap("      " + line.substr(kAt), width, 6) + "\n";
    } else {
      fitted += wrap(line, width, option ? kAt : 4) + "\n";
    }
  }
  return fitted;
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}
Option Option::describe(const std::string& text) {
  option_->description(text);
  return *this;
}
Option Option::group(const std::string& title) {
  option_->group(title);
  return *this;
}
Option Option::value_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}
Option Option::show_default() {
  option_->capture_default_str();
  return *this;
}
Option Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}
Option Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}
Option Option::between(std::int64_t least, std::int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
Option Option::separator(char character) {
  option_->delimiter(character);
  return *this;
}
Option Option::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}
Option Option::values(std::vector<std::string> values) {
  facts_->values[option_] = std::move(values);
  return *this;
}
Option Option::only_with(std::vector<Option> others) {
  for (const Option& other : others) facts_->needs[option_].push_back(other.option_);
  return *this;
}
Option Option::not_with(const std::vector<Option>& others) {
  for (const Option& other : others) facts_->clashes.emplace_back(option_, other.option_);
  return *this;
}
bool Option::given() const {
  return option_->count() > 0;
}

Option Command::add_option(const std::string& name, std::string& to, const std::string& what) {
  CLI::Option* const option = app_->add_option(name, to, what);
  if (!name.starts_with('-')) option->type_name("");  // that an argument is a text goes without saying
  return Option(option, facts_);
}
Option Command::add_option(const std::string& name, std::uint32_t& to, const std::string& what) {
  return Option(app_->add_option(name, to, what), facts_);
}
Option Command::add_option(const std::string& name, std::uint64_t& to, const std::string& what) {
  return Option(app_->add_option(name, to, what), facts_);
}
Option Command::add_option(const std::string& name, double& to, const std::string& what) {
  return Option(app_->add_option(name, to, what), facts_);
}
Option Command::add_option(const std::string& name, std::vector<std::string>& to, const std::string& what) {
  return Option(app_->add_option(name, to, what), facts_);
}
Option Command::add_option(const std::string& name, std::vector<std::uint64_t>& to, const std::string& what) {
  return Option(app_->add_option(name, to, what), facts_);
}
Option Command::add_flag(const std::string& name, bool& to, const std::string& what) {
  return Option(app_->add_flag(name, to, what), facts_);
}

Option Command::call_option(const std::string& name, OnText on_text, const std::string& what) {
  return Option(
      app_->add_option_function<std::string>(
          name, [name, on_text](const std::string& text) { refuse_errors(name, on_text(text)); }, what),
      facts_);
}
Option Command::call_list_option(const std::string& name, OnTexts on_texts, const std::string& what) {
  return Option(
      app_->add_option_function<std::vector<std::string>>(
          name,
          [name, on_texts](const std::vector<std::string>& texts) { refuse_errors(name, on_texts(texts)); },
          what),
      facts_);
}
Option Command::call_flag(const std::string& name, std::function<void()> on_flag, const std::string& what) {
  return Option(app_->add_flag_callback(name, std::move(on_flag), what), facts_);
}

Command Command::add_part(const std::string& name, const std::string& what) {
  return Command(app_->add_subcommand(name, what)->fallthrough(), facts_);
}
void Command::require_part() {
  app_->require_subcommand(1);
}
void Command::footer(const std::string& text) {
  app_->footer(text);
}
bool Command::chosen() const {
  return app_->parsed();
}

std::vector<CommandWords> Command::all_words() const {
  return words_below(*app_->get_parent(), *facts_);
}
std::vector<CommandWords> CommandLine::all_words() const {
  return words_below(*app_, *facts_);
}

CommandLine::CommandLine(const std::string& name, const std::string& what, const std::string& version,
                         const std::string& footer)
    : app_(std::make_unique<CLI::App>(what, name)), facts_(std::make_unique<OptionFacts>()) {
  app_->footer(footer);
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
}
CommandLine::~CommandLine() = default;

Command CommandLine::add_command(std::string_view name, std::string_view what) {
  return Command(app_->add_subcommand(std::string(name), std::string(what)), facts_.get());
}

Result<std::optional<std::string>> CommandLine::parse(int argc, char** argv, std::size_t width) {
  try {  // the parser's exceptions end here
    app_->parse(argc, argv);
    DOPPLER_TRY(check_together(*facts_));
    return std::nullopt;
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    app_->exit(success, text, text);
    return fit_help(text.str(), width);
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kUsage, "{}", error.what());
  }
}

}  // namespace doppler::cli
