// doppler completion: scripts for shells, made from the command table itself so that they cannot go stale.
#include <fmt/core.h>

#include "base/text.h"
#include "cli/command.h"

namespace doppler::cli {
namespace {

using Commands = std::vector<CommandWords>;

std::vector<std::string> names_of(const CommandWords& command) {
  std::vector<std::string> names;
  for (const CommandWords::Flag& flag : command.flags) names.push_back(flag.name);
  return names;
}

// "run:--backend) words="auto gpu" ;;" for every flag whose values are known; one that takes any value is a
// file.
std::string value_cases(const Commands& commands, std::string_view line) {
  std::string cases;
  for (const CommandWords& command : commands) {
    for (const CommandWords::Flag& flag : command.flags) {
      if (flag.takes_value)
        cases += fmt::format(fmt::runtime(line), command.command, flag.name, join(flag.values, " "));
    }
  }
  return cases;
}

std::string names_and_cases(const Commands& commands, std::string_view line, std::string& cases) {
  std::vector<std::string> names;
  for (const CommandWords& command : commands) {
    names.push_back(command.command);
    cases += fmt::format(fmt::runtime(line), command.command, join(names_of(command), " "),
                         join(command.values, " "));
  }
  return join(names, " ");
}

std::string bash_script(const Commands& commands) {
  std::string cases;
  const std::string names = names_and_cases(commands, "    {}) flags=\"{}\" words=\"{}\" ;;\n", cases);
  return fmt::format(R"(_doppler() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" flags="" words="" values=""
  # Bash divides stage=q_rope at the sign.
  if [ "$current" = "=" ]; then before="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
  if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "{} --help --version" -- "$current")); return; fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  case "${{COMP_WORDS[1]}}:$before" in
{}    *) values="-" ;;
  esac
  if [ "$values" != "-" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
    [ "${{#COMPREPLY[@]}}" -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))
    return
  fi
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current")) ;;
  esac
}}
complete -o filenames -F _doppler doppler
)",
                     names, cases, value_cases(commands, "    {}:{}) values=\"{}\" ;;\n"));
}

// For a folder of $fpath, from where it is loaded as the function itself, or to be sourced.
std::string zsh_script(const Commands& commands) {
  std::string cases;
  const std::string names = names_and_cases(commands, "    {}) flags=({}) words_=({}) ;;\n", cases);
  return fmt::format(R"(#compdef doppler
_doppler() {{
  local -a flags words_ values
  local any=1
  if (( CURRENT == 2 )); then compadd -- {} --help --version; return; fi
  case $words[2] in
{}  esac
  case $words[2]:$words[CURRENT-1] in
{}    *) any=0 ;;
  esac
  if (( any )); then
    if (( $#values )); then compadd -S '' -- $values; else _files; fi
  elif [[ $PREFIX == -* ]]; then compadd -- $flags
  else compadd -- $words_; _files; fi
}}
if [[ $funcstack[1] == _doppler ]]; then _doppler "$@"; else compdef _doppler doppler; fi
)",
                     names, cases, value_cases(commands, "    {}:{}) values=({}) ;;\n"));
}

std::string fish_script(const Commands& commands) {
  std::string text = "complete -c doppler -n __fish_use_subcommand -f\n";
  for (const CommandWords& command : commands) {
    text += fmt::format("complete -c doppler -n __fish_use_subcommand -a {}\n", command.command);
    if (!command.values.empty())
      text += fmt::format("complete -c doppler -n '__fish_seen_subcommand_from {}' -a '{}'\n",
                          command.command, join(command.values, " "));
    for (const CommandWords::Flag& flag : command.flags) {
      const bool is_long = flag.name.starts_with("--");
      text +=
          fmt::format("complete -c doppler -n '__fish_seen_subcommand_from {}' -{} {}{}{}\n", command.command,
                      is_long ? "l" : "s", flag.name.substr(is_long ? 2 : 1), flag.takes_value ? " -r" : "",
                      flag.values.empty() ? "" : fmt::format(" -f -a '{}'", join(flag.values, " ")));
    }
  }
  return text;
}

}  // namespace

Run add_completion(Command& command, SettingFlags&) {
  auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "bash, zsh or fish").required().values({"bash", "zsh", "fish"});
  return [shell, command]() -> Result<int> {
    const Commands commands = command.all_words();
    if (*shell == "bash")
      DOPPLER_TRY(print(bash_script(commands)));
    else if (*shell == "zsh")
      DOPPLER_TRY(print(zsh_script(commands)));
    else if (*shell == "fish")
      DOPPLER_TRY(print(fish_script(commands)));
    else
      return fail(ErrorCode::kUsage,
                  "There is no completion for the shell {}. Shells are bash, zsh and fish.",
                  printable(*shell));
    return kDone;
  };
}

}  // namespace doppler::cli
