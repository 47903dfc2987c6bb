"""Nothing but the writer of each stream names it: printing to a stream that is closed or full otherwise throws, or is lost unseen."""

import pathlib
import re
import sys

FORBIDDEN = [
    (r"\bfmt::print\s*\(", "fmt::print throws when the stream is closed"),
    (r"\bstd::(cout|cerr|clog)\b", "a stream that nobody asks whether writing worked"),
    (r"\bstd(out|err)\b", "a stream beside its writer"),
    (r"\b(?:v?f?printf|puts|perror|putchar)\s*\(", "printing without asking whether it worked"),
]

# The writers: of stderr, of stdout, and the line editor, which is told on which of them it draws.
WRITERS = {"base/screen.cpp", "cli/streams.cpp", "cli/chat/line_editor_libedit.cpp"}


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    wrong = []
    checked = 0
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in {".h", ".cpp"} or name.startswith("system/") or name in WRITERS:
            continue
        checked += 1
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"|//.*', "", line)
            for pattern, what in FORBIDDEN:
                if re.search(pattern, code):
                    wrong.append(f"{path}:{number}: {what}; base/screen.h and cli/command.h have what is needed: {line.strip()}")
    print("\n".join(wrong) or f"{checked} files leave the streams to their writers")
    return 1 if wrong or checked == 0 else 0


sys.exit(main())
