#!/usr/bin/env python3
"""Writes the table of families in docs/families.md from the sources and the tests, or checks it.

usage: families.py [--check]

What is said of a family is what the repository shows: its rule (src/model/families), the recordings in tests/data/models, and the
lists of the tests that run them.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "families.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


def rules():
    """Of each family its name, model types and GGUF architecture ("" if there is none)."""
    found = []
    for path in sorted((ROOT / "src/model/families").glob("*.cpp")):
        text = path.read_text()
        types = {name: re.findall(r'"([^"]+)"', body)
                 for name, body in re.findall(r"constexpr std::string_view (k\w+Types)\[\] = \{([^}]*)\}", text)}
        for body in re.findall(r"^const FamilyRule k\w+ = \{(.*?)\};$", text, re.DOTALL | re.MULTILINE):
            name, listed = re.match(r'\s*"([^"]+)",\s*(k\w+)', body).groups()
            architecture = re.search(r'(?:\.architecture = |_gguf\()"([^"]+)"', body)  # or by a function of the families' file
            found.append((name, types[listed], architecture.group(1) if architecture else ""))
    return found


def listed_in(path, pattern):
    """The words in the list that a test's pattern finds."""
    match = re.search(pattern, (ROOT / path).read_text(), re.DOTALL)
    if not match:
        sys.exit(f"families.py: {path} has no list as {pattern} finds it. Correct the pattern.")
    return set(re.findall(r'"([^"]+)"', match.group(1)))


def family_of(folder, families):
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    return next((name for name, types, _ in families if model_type in types), None)


def table():
    families = rules()
    recorded = listed_in("tests/diagnosis/fixtures_test.cpp", r"kFamilies = \{(.*?)\};")
    # Suites that name their models themselves.
    for values in re.findall(r"::testing::Values\(([^)]*)\)", (ROOT / "tests/diagnosis/fixtures_test.cpp").read_text()):
        recorded |= set(re.findall(r'"([^"]+)"', values))
    written = listed_in("tests/convert/convert_test.cpp", r"FoldersReadBackAsTheSameModel.*?:\s*\{(.*?)\}\)")
    written |= listed_in("tests/convert/convert_test.cpp", r"SameAsLlamaCpp,\s*::testing::Values\((.*?)\),\s*\[\]")
    written |= listed_in("tests/diagnosis/recurrent_files_test.cpp", r"kRecurrentFiles = \{(.*?)\};")
    read = {path.stem for path in (ROOT / "tests/data/gguf").glob("*.gguf") if "." not in path.stem}
    folders = {}
    for folder in sorted((ROOT / "tests/data/models").iterdir()):
        if folder.is_dir():
            folders.setdefault(family_of(folder, families), []).append(folder.name)
    lines = ["| family | `model_type` | GGUF `general.architecture` | agrees with transformers at every stage | GGUF of llama.cpp read | GGUF written and read again |",
             "|---|---|---|---|---|---|"]
    for name, types, architecture in sorted(families):
        own = folders.get(name, [])

        def mark(where, own=own):
            return ", ".join(folder for folder in own if folder in where)

        lines.append(f"| {name} | {', '.join(f'`{t}`' for t in types)} | {f'`{architecture}`' if architecture else ''} | "
                     f"{mark(recorded)} | {mark(read)} | {mark(written)} |")
    # Recorded models of no family: what they compute is guessed.
    guessed = listed_in("tests/diagnosis/fixtures_test.cpp", r"kGuessable = \{(.*?)\};")
    for name in folders.get(None, []):
        model_type = json.loads((ROOT / "tests/data/models" / name / "config.json").read_text())["model_type"]
        lines.append(f"| `--family guess` | `{model_type}` | | {name if name in guessed else ''} | | |")
    return "\n".join(lines) + "\n"


def main():
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    page = before + BEGIN + table() + END + after
    if "--check" not in sys.argv:
        PAGE.write_text(page)
    elif page != PAGE.read_text():
        sys.exit("docs/families.md is not what the sources and tests say. Run scripts/families.py.")


main()
