"""usage: check_streams.py SRC BENCH

Nothing but the writer of each stream names it: printing to a stream that is closed or full otherwise throws, or is lost unseen."""

import pathlib
import sys

from source_lines import forbidden_lines, source_files, verdict

FORBIDDEN = [
    (r"\bfmt::print\s*\(", "fmt::print throws when the stream is closed"),
    (r"\bstd::(cout|cerr|clog)\b", "a stream that nobody asks whether writing worked"),
    (r"\bstd(out|err)\b", "a stream beside its writer"),
    (r"\b(?:v?f?printf|puts|perror|putchar)\s*\(", "printing without asking whether it worked"),
]

# A measuring program prints its tables itself, but leaves stderr to its writer, too.
FORBIDDEN_IN_PROGRAMS = [(r"\bstderr\b|\bstd::(cerr|clog)\b", "a stream beside its writer, base/screen.h")]

# The writers: of stderr, of stdout, and the line editor, which is told on which of them it draws.
WRITERS = {"base/screen.cpp", "cli/streams.cpp", "cli/chat/line_editor_libedit.cpp"}
# Links nothing of ours, and says its sentences with printf, which does not throw.
FOREIGN = {"llama_cpp_driver.cpp"}


def main() -> int:
    src, bench = (pathlib.Path(argument) for argument in sys.argv[1:3])
    files = source_files(src, lambda path: path.parts[0] == "system" or path.as_posix() in WRITERS)
    programs = source_files(bench, lambda path: path.name in FOREIGN)
    wrong = forbidden_lines(files, FORBIDDEN) + forbidden_lines(programs, FORBIDDEN_IN_PROGRAMS)
    wrong = [f"{line} (base/screen.h and cli/command.h have what is needed)" for line in wrong]
    return verdict(wrong, files + programs, "files leave the streams to their writers")


sys.exit(main())
