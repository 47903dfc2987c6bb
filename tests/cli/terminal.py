"""A program on a pseudo-terminal, driven as a person drives it: type, wait for what appears, type on."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

# How long a machine under load may take for one answer of the demo model; a test that passes never waits for it.
PATIENCE = int(os.environ.get("DOPPLER_PATIENCE", "120"))


def set_size(file, columns, rows):
    fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    def __init__(self, command, columns=80, rows=24, cwd=None, **environment):
        self.output = b""
        self.seen = 0
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            set_size(1, columns, rows)  # here: the program may ask for it before the parent runs again
            if cwd:
                os.chdir(cwd)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a script in the background ignores it
            kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "LSAN_OPTIONS")
                    if name in os.environ}
            os.execvpe(command[0], command, {**kept, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment})

    def resize(self, columns, rows=24):
        set_size(self.file, columns, rows)

    def type(self, text):
        rest = text if isinstance(text, bytes) else text.encode()
        while rest:
            readable, writable, _ = select.select([self.file], [self.file], [], PATIENCE)
            if readable:
                self._read()
            if writable:
                rest = rest[os.write(self.file, rest[:512]):]

    def expect(self, text):
        """Waits until `text` (or a compiled pattern of bytes) has appeared; returns what came before it and the text itself."""
        if isinstance(text, re.Pattern):
            pattern = text
        else:  # words may stand on two lines of a narrow terminal
            pattern = re.compile(rb"\s+".join(re.escape(word) for word in text.encode().split(b" ")))
        deadline = time.monotonic() + PATIENCE
        while True:
            match = pattern.search(self.output, self.seen)
            if match:
                before = self.output[self.seen:match.end()]
                self.seen = match.end()
                return before.decode(errors="replace")
            if time.monotonic() > deadline or not self._wait(deadline):
                raise AssertionError(f"{pattern.pattern!r} does not appear in {self.output[self.seen:]!r}")

    def end(self):
        """Waits for the end; returns the exit status, 128 + the signal's number after a signal."""
        deadline = time.monotonic() + PATIENCE
        while self._wait(deadline):
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.file)
        return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

    def rest(self):
        return self.output[self.seen:].decode(errors="replace")

    def _wait(self, deadline):
        readable, _, _ = select.select([self.file], [], [], max(0, deadline - time.monotonic()))
        return bool(readable) and self._read()

    def _read(self):
        try:
            piece = os.read(self.file, 65536)
        except OSError:  # Linux' way to say that the other end is closed
            return False
        self.output += piece
        return bool(piece)
