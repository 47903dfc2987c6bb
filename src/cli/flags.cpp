#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <sstream>

namespace doppler::cli {
namespace {

// CLI11 expects an exception from a callback that refuses its value.
void refuse_errors(const std::string& name, const Status& status) {
  if (!status) throw CLI::ValidationError(name, status.error().message);
}

}  // namespace

Option Option::required() {
  return Option(option_->required());
}
Option Option::describe(const std::string& text) {
  return Option(option_->description(text));
}
Option Option::group(const std::string& title) {
  return Option(option_->group(title));
}
Option Option::value_name(const std::string& name) {
  return Option(option_->type_name(name));
}
Option Option::show_default() {
  return Option(option_->capture_default_str());
}
Option Option::positive() {
  return Option(option_->check(CLI::PositiveNumber));
}
Option Option::not_negative() {
  return Option(option_->check(CLI::NonNegativeNumber));
}
Option Option::between(std::int64_t least, std::int64_t most) {
  return Option(option_->check(CLI::Range(least, most)));
}
Option Option::separator(char character) {
  return Option(option_->delimiter(character));
}
Option Option::one_value_each() {
  return Option(option_->allow_extra_args(false));
}
Option Option::repeated() {
  return Option(option_->take_all()->expected(1));
}
bool Option::given() const {
  return option_->count() > 0;
}

Option Command::add_option(const std::string& name, std::string& to, const std::string& what) {
  return Option(app_->add_option(name, to, what));
}
Option Command::add_option(const std::string& name, std::uint32_t& to, const std::string& what) {
  return Option(app_->add_option(name, to, what));
}
Option Command::add_option(const std::string& name, std::uint64_t& to, const std::string& what) {
  return Option(app_->add_option(name, to, what));
}
Option Command::add_option(const std::string& name, double& to, const std::string& what) {
  return Option(app_->add_option(name, to, what));
}
Option Command::add_option(const std::string& name, std::vector<std::string>& to, const std::string& what) {
  return Option(app_->add_option(name, to, what));
}
Option Command::add_option(const std::string& name, std::vector<std::uint64_t>& to, const std::string& what) {
  return Option(app_->add_option(name, to, what));
}
Option Command::add_flag(const std::string& name, bool& to, const std::string& what) {
  return Option(app_->add_flag(name, to, what));
}

Option Command::call_option(const std::string& name, OnText on_text, const std::string& what) {
  return Option(app_->add_option_function<std::string>(
      name, [name, on_text](const std::string& text) { refuse_errors(name, on_text(text)); }, what));
}
Option Command::call_list_option(const std::string& name, OnTexts on_texts, const std::string& what) {
  return Option(app_->add_option_function<std::vector<std::string>>(
      name, [name, on_texts](const std::vector<std::string>& texts) { refuse_errors(name, on_texts(texts)); },
      what));
}
Option Command::call_flag(const std::string& name, std::function<void()> on_flag, const std::string& what) {
  return Option(app_->add_flag_callback(name, std::move(on_flag), what));
}

Command Command::add_part(const std::string& name, const std::string& what) {
  return Command(app_->add_subcommand(name, what)->fallthrough());
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

std::vector<Command::Words> Command::all_words() const {
  std::vector<Words> all;
  for (const CLI::App* command : app_->get_parent()->get_subcommands({})) {
    Words words{command->get_name(), {}};
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) words.flags.push_back("--" + name);
      for (const std::string& name : option->get_snames()) words.flags.push_back("-" + name);
    }
    all.push_back(std::move(words));
  }
  return all;
}

CommandLine::CommandLine(const std::string& name, const std::string& what, const std::string& version,
                         const std::string& footer)
    : app_(std::make_unique<CLI::App>(what, name)) {
  app_->footer(footer);
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
}
CommandLine::~CommandLine() = default;

Command CommandLine::add_command(std::string_view name, std::string_view what) {
  return Command(app_->add_subcommand(std::string(name), std::string(what)));
}

Result<std::optional<std::string>> CommandLine::parse(int argc, char** argv) {
  try {  // the parser's exceptions end here
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    app_->exit(success, text, text);
    return text.str();
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kUsage, "{}", error.what());
  }
}

}  // namespace doppler::cli
