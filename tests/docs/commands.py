"""What the program and the repository know of a command: whether it and its flags exist, and which are not run by a test."""

import re
import shlex
import subprocess

# Commands that no test runs, wherever they stand.
NOT_RUN = [
    (r"make (?!run\b)", "it builds"),
    (r"sudo ", "it installs"),
    (r"(cc|c\+\+) ", "tests/install builds it against an installed library"),
    (r"python3 tools/hf_record\.py", "it needs PyTorch and transformers"),
    (r"doppler pull ", "it asks the Hub"),
    (r"doppler web ", "it needs a browser and what make web builds; tests/web/harness_test.py runs it"),
    (r"scripts/|bench/|tests/", "a program of its own, for minutes"),
]


def why_not_run(command):
    return next((reason for pattern, reason in NOT_RUN if re.match(pattern, command)), None)


class Grammar:
    """Commands and flags as the completion for bash lists them, which the program makes of its own table."""

    def __init__(self, doppler, root):
        script = subprocess.run([doppler, "completion", "bash"], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.flags = {name: set(flags.split()) for name, flags in re.findall(r'^ +(\w+)\) flags="([^"]*)"', script, re.M)}
        self.valued = set(re.findall(r'^ +(\w+:-[-\w]+)\) values=', script, re.M))
        self.root = root
        self.makefile = (root / "Makefile").read_text()
        tools = [path for folder in ("scripts", "bench", "tools", "tests", "demo/training") for path in (root / folder).rglob("*")
                 if path.is_file() and path.suffix in ("", ".py", ".sh", ".cpp") and "data" not in path.parts]
        self.tools = "\n".join(path.read_text(errors="ignore") for path in tools) + self.makefile

    def mistake(self, text):
        """What is wrong with a command line, or ""."""
        try:
            words = shlex.split(text, comments=True)
        except ValueError as error:
            return str(error)
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        for start, word in enumerate(words):  # a line may hold several
            if word == "doppler" and (start == 0 or words[start - 1] in ("&&", "|", ";")):
                end = next((i for i in range(start, len(words)) if words[i] in ("&&", "|", ";", ">", "<", "2>&1")), len(words))
                found = self._doppler_mistake(words[start + 1:end])
                if found:
                    return found
        if words and words[0] == "make":
            for target in [word for word in words[1:] if "=" not in word]:
                if not re.search(rf"^{re.escape(target)}:", self.makefile, re.M):
                    return f"the Makefile has no target {target}"
        script = next((word for word in words[:2] if "/" in word and word.split("/")[0] in ("scripts", "bench", "tools", "tests", "demo")
                       and words[0] in (word, "python3")), None)
        if script:
            if not (self.root / script).is_file():
                return f"there is no {script}"
            text = (self.root / script).read_text(errors="ignore")
            for flag in [word.split("=")[0] for word in words if word.startswith("--")]:
                if flag not in text:
                    return f"{script} does not know {flag}"
        return ""

    def _doppler_mistake(self, words):
        if not words or words[0] in ("--help", "--version"):
            return ""
        command = words.pop(0)
        if command not in self.flags:
            return f"there is no command {command}"
        while words:
            word = words.pop(0)
            if not re.match(r"-[-a-zA-Z]", word):
                continue
            flag = word.split("=")[0]
            if flag not in self.flags[command]:
                return f"doppler {command} has no {flag}"
            if f"{command}:{flag}" in self.valued and "=" not in word and words:
                words.pop(0)
        return ""

    def span_mistake(self, command, code):
        """The same for code in the text: a command line, or a flag, of `command` if that is not empty."""
        if code.startswith("doppler "):
            return self.mistake(code.replace("[", "").replace("]", ""))
        if not re.match(r"--?[a-z]", code):
            return ""
        flag = re.split(r"[ =\[]", code)[0]
        if command in self.flags and flag not in self.flags[command]:
            return f"doppler {command} has no {flag}"
        if flag in self.tools or any(flag in flags for flags in self.flags.values()):
            return ""
        return f"nothing has the flag {flag}"
