// doppler completion: scripts for shells, made from the command table itself so that they cannot go stale.
#include <fmt/core.h>

#include <map>

#include "base/text.h"
#include "cli/command.h"

namespace doppler::cli {
namespace {

using Words = std::map<std::string, std::vector<std::string>>;  // command: its flags

Words collect(const Command& completion) {
  Words words;
  for (Command::Words& each : completion.all_words()) words[each.command] = std::move(each.flags);
  return words;
}

std::string bash_script(const Words& words) {
  std::string names, cases;
  for (const auto& [command, flags] : words) {
    names += (names.empty() ? "" : " ") + command;
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command, join(flags, " "));
  }
  return fmt::format(R"(_doppler() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "{} --help --version" -- "$current")); return; fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=($(compgen -f -- "$current")) ;;
  esac
}}
complete -o filenames -F _doppler doppler
)",
                     names, cases);
}

// For a folder of $fpath, from where it is loaded as the function itself, or to be sourced.
std::string zsh_script(const Words& words) {
  std::string names, cases;
  for (const auto& [command, flags] : words) {
    names += (names.empty() ? "" : " ") + command;
    cases += fmt::format("    {}) flags=({}) ;;\n", command, join(flags, " "));
  }
  return fmt::format(R"(#compdef doppler
_doppler() {{
  local -a flags
  if (( CURRENT == 2 )); then compadd -- {} --help --version; return; fi
  case $words[2] in
{}  esac
  if [[ $PREFIX == -* ]]; then compadd -- $flags; else _files; fi
}}
if [[ $funcstack[1] == _doppler ]]; then _doppler "$@"; else compdef _doppler doppler; fi
)",
                     names, cases);
}

std::string fish_script(const Words& words) {
  std::string text = "complete -c doppler -n __fish_use_subcommand -f\n";
  for (const auto& [command, flags] : words) {
    text += fmt::format("complete -c doppler -n __fish_use_subcommand -a {}\n", command);
    for (const std::string& flag : flags) {
      const bool is_long = flag.starts_with("--");
      text += fmt::format("complete -c doppler -n '__fish_seen_subcommand_from {}' -{} {}\n", command,
                          is_long ? "l" : "s", flag.substr(is_long ? 2 : 1));
    }
  }
  return text;
}

}  // namespace

Run add_completion(Command& command, SettingFlags&) {
  auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "bash, zsh or fish").required();
  command.footer("\n  doppler completion bash > ~/.local/share/bash-completion/completions/doppler");
  return [shell, command]() -> Result<int> {
    const Words words = collect(command);
    if (*shell == "bash")
      DOPPLER_TRY(print(bash_script(words)));
    else if (*shell == "zsh")
      DOPPLER_TRY(print(zsh_script(words)));
    else if (*shell == "fish")
      DOPPLER_TRY(print(fish_script(words)));
    else
      return fail(ErrorCode::kUsage,
                  "There is no completion for the shell {}. Shells are bash, zsh and fish.",
                  printable(*shell));
    return kDone;
  };
}

}  // namespace doppler::cli
