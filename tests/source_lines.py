"""The code of source files, line by line, for the tests that forbid words in it."""

import re

SUFFIXES = {".h", ".cpp", ".c"}


def source_files(folder, exempt=lambda path: False):
    return [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES and not exempt(path.relative_to(folder))]


def forbidden_lines(files, forbidden):
    """What of (pattern, what it is) stands in which line; texts in quotes and comments do not count."""
    found = []
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"|//.*', "", line)
            found += [f"{path}:{number}: {what}: {line.strip()}" for pattern, what in forbidden if re.search(pattern, code)]
    return found


def verdict(wrong, files, good):
    """Prints it and returns the exit status."""
    print("\n".join(wrong) or f"{len(files)} {good}")
    return 1 if wrong or not files else 0
