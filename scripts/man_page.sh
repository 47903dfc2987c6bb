#!/usr/bin/env bash
# man_page.sh PROGRAM: writes doppler's man page, doppler(1), from what PROGRAM --help and each command's --help say. The same
# program gives the same page. Options that several commands share stand once, in sections of their own.
set -euo pipefail
program=${1:?"usage: scripts/man_page.sh PROGRAM"}
export COLUMNS=10000  # the lines below are read whole

# The names below "Subcommands:" in a command's help.
subcommands() { "$program" "$@" --help | awk '/^[^ ]|^$/ {inside = /^Subcommands:/} inside && /^  [^ ]/ {print $1}'; }

# help NAME...: that command's help behind a line with its name, then its subcommands'.
help() {
  local name
  echo "@command doppler $*"
  "$program" "$@" --help
  for name in $(subcommands "$@"); do help "$@" "$name"; done
}

help | awk -v version="$("$program" --version)" '
# A text with what roff would take for its own made harmless.
function plain(text) {
  gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); gsub(/\047/, "\\(aq", text); gsub(/`/, "\\(ga", text)
  gsub(/\^/, "\\(ha", text); gsub(/~/, "\\(ti", text); sub(/^\./, "\\\&.", text)
  return text
}
# A name with its type as CLI11 writes them, "--steps UINT:POSITIVE=10 REQUIRED", and what it means.
function entry(name, what) {
  sub(/ REQUIRED/, "", name); gsub(/:[A-Z]+/, "", name); gsub(/\{false\}/, "", name)
  return ".TP\n.B " plain(name) "\n" plain(what) "\n"
}
function sentence(text) { return plain(toupper(substr(text, 1, 1)) substr(text, 2)) "." }

# An option is two spaces, its name, and what it does from column 31 on or in the next lines.
function finish() {
  if (name == "") return
  if (group == "Positionals") { sub(/ .*/, "", name); own[command] = own[command] entry(name, what) }
  else if (group == "Options") { if (name !~ /^-h,/) own[command] = own[command] entry(name, what) }
  else if (group == "Subcommands") table[command] = table[command] entry(command_name(command) name, what)
  else {
    if (!((group, name) in seen)) shared[group] = shared[group] entry(name, what)
    if (!(group in seen)) groups[++group_count] = group
    seen[group, name] = seen[group] = 1
    if (!((command, group) in uses)) used[command] = used[command] (used[command] == "" ? "" : ", ") group
    uses[command, group] = 1
  }
  name = what = ""
}
function command_name(command) { sub(/^doppler ?/, "", command); return command == "" ? "" : command " " }

/^@command / { finish(); command = substr($0, 10); sub(/ $/, "", command); commands[++count] = command; group = ""; next }
group == "" && about[command] == "" { about[command] = $0; next }
/^Usage: / { usage[command] = substr($0, 8); next }
/^Examples:$/ { finish(); group = ""; if (command != "doppler") notes[command] = notes[command] ".PP\n" $0 "\n.PP\n"; next }
/^[A-Z][a-z ]*:$/ { finish(); group = substr($0, 1, length($0) - 1); next }
/^  [^ ]/ && group != "" {
  finish()
  if (length($0) <= 30 || substr($0, 30, 1) != " ") { name = substr($0, 3); what = "" }
  else { name = substr($0, 3, 27); what = substr($0, 31) }
  sub(/ +$/, "", name)
  next
}
/^   / && name != "" { line = $0; sub(/^ +/, "", line); what = what (what == "" ? "" : " ") line; next }
/^$/ { finish(); group = ""; next }
# What follows the last group is said of all commands, or is an example.
command == "doppler" { footer = footer $0 "\n"; next }
!index(footer, $0) { notes[command] = notes[command] plain($0) "\n" }

END {
  finish()
  print ".TH DOPPLER 1 \"\" \"" plain(version) "\" \"User commands\""
  print ".SH NAME\ndoppler \\- run language models, and see inside\n.SH SYNOPSIS\n.B doppler\n.I COMMAND\n.RI [ OPTIONS ]"
  print ".SH DESCRIPTION\n" plain(about["doppler"])
  count_lines = split(footer, lines, "\n")
  for (i = 1; i <= count_lines; ++i)
    if (lines[i] ~ /^  /) examples = examples plain(substr(lines[i], 3)) "\n"
    else if (lines[i] ~ /^Exit status: /) status = substr(lines[i], 14)
    else if (lines[i] != "") print ".PP\n" plain(lines[i])
  printf ".SH COMMANDS\n%s", table["doppler"]
  printf ".SH OPTIONS WITHOUT A COMMAND\n%s", own["doppler"]
  for (c = 2; c <= count; ++c) {
    command = commands[c]
    print ".SH " toupper(command) "\n.B " plain(usage[command]) "\n.PP\n" sentence(about[command])
    printf "%s%s", table[command], own[command]
    if (used[command] != "") print ".PP\nAlso the options under " toupper(plain(used[command])) "."
    if (notes[command] != "") printf ".PP\n.nf\n%s.fi\n", notes[command]
  }
  for (g = 1; g <= group_count; ++g) printf ".SH %s\n%s", toupper(plain(groups[g])), shared[groups[g]]
  print ".SH EXIT STATUS\n" plain(status) "\n.SH EXAMPLES\n.nf\n" examples ".fi"
}'
