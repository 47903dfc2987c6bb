"""A page of Markdown: its fenced blocks, the commands in them with what is printed below each, and the code in its text.

In a block whose lines begin with "$ ", that is a command, and what follows is its output. A block without any is a list of commands
if its first word is a program's. A line that is "…" stands for any lines, "…" in a line for any words. A comment in front of a
block says why none of its commands is run:   <!-- not run: it needs the network -->
"""

import dataclasses
import re

LANGUAGES = {"", "console", "sh", "bash"}
PROGRAMS = re.compile(r"(doppler|make|sudo|python3|cc|c\+\+|(bench|scripts|tests|tools)/\S+)(\s|$)")


@dataclasses.dataclass
class Command:
    text: str    # without "$ ", with the comment that may follow it
    line: int    # counted from 1
    shown: list  # the lines below it


@dataclasses.dataclass
class Block:
    not_run: str  # why, or ""
    commands: list


def commands_of(lines, first):
    """The commands of one block whose lines begin at line `first` of the page."""
    commands = []
    if any(line.startswith("$ ") for line in lines):
        for number, line in enumerate(lines, first):
            if line.startswith("$ "):
                commands.append(Command(line[2:], number, []))
            elif commands:
                commands[-1].shown.append(line)
    elif lines and PROGRAMS.match(lines[0]):
        commands = [Command(line, number, []) for number, line in enumerate(lines, first) if line.strip()]
    return commands


def read(text):
    """The blocks that hold commands, and the code that stands in the text: (line, code)."""
    blocks, spans = [], []
    inside, first, language, comment = None, 0, "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            if inside is None:
                inside, first, language = [], number + 1, line[3:].strip()
                continue
            commands = commands_of(inside, first) if language in LANGUAGES else []
            if commands:
                blocks.append(Block(comment, commands))
            inside, comment = None, ""
        elif inside is not None:
            inside.append(line)
        elif line.strip():
            said = re.fullmatch(r"<!-- not run: (.+) -->", line)
            comment = said.group(1) if said else ""
            row = re.match(r"\| `doppler (\w+)", line)
            for code in re.findall(r"`([^`]+)`", line):
                spans.append((number, row.group(1) if row else "", code))
    return blocks, spans


def rewritten(text, changes):
    """The page with other lines below its commands: changes is {line of the command: (number of lines shown, new lines)}."""
    lines = text.split("\n")
    for line in sorted(changes, reverse=True):
        count, new = changes[line]
        lines[line:line + count] = new
    return "\n".join(lines)
