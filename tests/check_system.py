"""What is the operating system's stands in src/system alone, so that a port is that folder."""

import pathlib
import sys

from source_lines import forbidden_lines, source_files, verdict

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
    files = []
    for folder in sys.argv[1:]:
        files += source_files(pathlib.Path(folder), lambda path: path.parts[0] == "system" or path.name in EXEMPT)
    return verdict(forbidden_lines(files, FORBIDDEN), files, "files leave the system to src/system")


sys.exit(main())
