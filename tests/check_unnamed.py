#!/usr/bin/env python3
"""Names in unnamed namespaces must differ within a folder, because a build without a compiler cache compiles the files of a
folder together (doppler_unite in cmake/compiler.cmake), where two definitions of one name are an error.

usage: check_unnamed.py FOLDER...   checks every folder below these; folders that are compiled file by file are left out
"""
import collections
import os
import re
import sys

TYPE = re.compile(r"(?:template <.*?> )?(?:struct|class|enum class|enum|union) (\w+)[^;]*$")
ALIAS = re.compile(r"(using \w+ = .*|namespace \w+ = .*);")
VALUE = re.compile(r"(?:static |inline |constexpr |constinit |const )*[\w:<>,&*\[\] ]+?[ &*](\w+)(?:\[\w*\])*(?: = |\{|;| =$)")
FUNCTION = re.compile(r"(?:template <.*?> ?)?(?:static |inline |constexpr |const )*[\w:<>,&*\[\] ]+?[ &*](\w+)\((.*)")
SIGNATURE = re.compile(r"<[^<>]*\([^()]*\)[^<>]*>")  # std::function<void(int)>: its brackets are no parameters
NO_NAMES = {"return", "if", "for", "else", "switch", "case", "while", "do", "namespace", "public", "private", "friend"}


def parameters(text):
    """The parameters' types of a declaration that begins here, as one text without names and default values."""
    depth, end = 1, 0
    while end < len(text) and depth > 0:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    inside = " ".join(text[: end - 1].split())
    # Without const: where two differ by that alone, a call may take the other file's.
    return ",".join(re.sub(r"(?<=[\w>&*]) ?\b\w+( = .*)?$", "", part.strip().removeprefix("const ")) for part in inside.split(","))


def definitions(path):
    """What the file's unnamed namespaces define: (name, what must differ between two definitions), by enclosing namespace."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    inside, around = False, ""
    for number, line in enumerate(lines):
        line = SIGNATURE.sub("<>", line)
        if named := re.match(r"namespace ([\w:]+) \{", line):
            around = named.group(1)
        if line == "namespace {":
            inside = True
        elif line == "}  // namespace":
            inside = False
        if not inside or not line or not (line[0].isalpha() or line[0] == "_") or line.split()[0] in NO_NAMES:
            continue
        if ALIAS.match(line) or line.startswith("using "):
            continue  # the same alias twice is none too many, and another is an error that the compiler names well
        if found := TYPE.match(line):
            yield found.group(1), around
        elif found := FUNCTION.match(line):
            text = "\n".join([found.group(2), *lines[number + 1 : number + 12]])
            yield found.group(1), f"{around}: {parameters(text)}"
        elif found := VALUE.match(line):
            yield found.group(1), around


def clashes(folder):
    places = collections.defaultdict(set)
    for name in sorted(os.listdir(folder)):
        if name.endswith(".cpp"):
            for key in definitions(os.path.join(folder, name)):
                places[key].add(name)
    return [(name, sorted(files)) for (name, _), files in sorted(places.items()) if len(files) > 1]


def main():
    alone = {"quant", "reference", "cpu", "panel"}  # DOPPLER_COMPILED_ALONE, and what has options of its own
    found = 0
    for root in sys.argv[1:]:
        for folder, _, _ in os.walk(root):
            if os.path.basename(folder) in alone and "tests" not in folder.split(os.sep):
                continue
            for name, files in clashes(folder):
                print(f"{folder}: {name} is defined in {', '.join(files)}. Give each a name of its own, or share one.")
                found += 1
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
