"""What is the operating system's stands in src/system alone, so that a port is that folder."""

import pathlib
import re
import sys

FORBIDDEN = [
    (r"#\s*include <(sys/|asm/|unistd|fcntl|c?signal\b|windows|winsock|pthread|dlfcn|termios|poll|sched|spawn|dirent|io\.h"
     r"|direct\.h|process\.h|openssl/|bcrypt)", "a header of one system"),
    (r"#\s*include <(mutex|shared_mutex|thread|condition_variable|semaphore|latch|barrier|future|stop_token)>",
     "a header that a system without threads lacks (system/threads.h has what is needed)"),
    (r"#\s*include <fstream>|\bfopen\s*\(", "a way to open files beside system/files.h"),
    (r"\b(__linux__|__unix__|__APPLE__|__wasi__|__EMSCRIPTEN__|_WIN32|_WIN64|__MINGW32__|__FreeBSD__)\b",
     "a choice by system"),
    (r"\b(?:std::)?filesystem::(?!path\b)\w|\bfs::(?!path\b)\w", "a function of std::filesystem (system/files.h has them)"),
    (r"\b(getenv|setenv|putenv|isatty|ioctl|sysconf|madvise|mmap|getpid|getrusage|localtime\w*|gmtime\w*|sigaction|mkstemp"
     r"|popen|dlopen|getauxval)\s*\(|\bstd::(signal|system)\s*\(", "a call of one system"),
]

# Which symbols a library shows is a matter of the linker's format, not of anything that the system does.
EXEMPT = {"export.h"}


def main() -> int:
    wrong = []
    checked = 0
    for folder in (pathlib.Path(argument) for argument in sys.argv[1:]):
        for path in sorted(folder.rglob("*")):
            if path.suffix not in {".h", ".cpp", ".c"} or path.relative_to(folder).parts[0] == "system" or path.name in EXEMPT:
                continue
            checked += 1
            for number, line in enumerate(path.read_text().splitlines(), 1):
                code = re.sub(r'"(\\.|[^"\\])*"|//.*', "", line)
                for pattern, what in FORBIDDEN:
                    if re.search(pattern, code):
                        wrong.append(f"{path}:{number}: {what}: {line.strip()}")
    print("\n".join(wrong) or f"{checked} files leave the system to src/system")
    return 1 if wrong or checked == 0 else 0


sys.exit(main())
