"""Every #include of src/ must name a room that the including room may use (ARCHITECTURE.md, the tree), and of
include/doppler/ only what is a room's; public headers include nothing of src/, so that they install alone."""

import pathlib
import re
import sys

MAY_USE = {
    "system": [],
    "base": [],
    "config": ["base"],
    "quant": ["base"],
    "formats": ["base", "quant"],
    "hub": ["base", "formats"],
    "tokenizer": ["base", "formats"],
    "chat": ["base", "formats"],
    "model": ["base", "quant", "formats"],
    "plan": ["base", "quant", "model"],
    "backend": ["base", "quant", "model", "plan"],
    "engine": ["base", "quant", "formats", "tokenizer", "chat", "model", "plan", "backend"],
    "page": ["base"],
    "diagnosis": ["base", "quant", "formats", "tokenizer", "chat", "model", "plan", "backend", "engine", "page"],
    "convert": ["base", "quant", "formats", "tokenizer", "chat", "model"],
    "bench": ["base", "quant", "formats", "tokenizer", "chat", "model", "plan", "backend", "engine", "page",
              "diagnosis"],
    "cli": ["base", "config", "quant", "formats", "tokenizer", "chat", "model", "plan", "backend", "engine", "page", "diagnosis",
            "convert", "bench", "hub"],
}

# The values that the public interface has in common with the rooms below it. Whoever may use engine may use all.
SHARED_HEADERS = {
    "export.h": list(MAY_USE),
    "result.h": list(MAY_USE),
    "statistics.h": list(MAY_USE),
    "options.h": ["config", "backend"],
    "types.h": ["tokenizer", "backend"],
}


def may_include(room: str, header: str) -> bool:
    return room == "engine" or "engine" in MAY_USE[room] or room in SHARED_HEADERS.get(header, [])


def main() -> int:
    src = pathlib.Path(sys.argv[1])
    wrong = []
    checked = 0
    for path in sorted((src.parent / "include" / "doppler").iterdir()):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include (["<][^">]+)', line)
            if include and ("/" in include.group(1) or include.group(1)[0] == '"'):
                checked += 1
                if not include.group(1).startswith('"doppler/'):
                    wrong.append(f"include/doppler/{path.name}:{number}: includes what is not public")
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cpp"} or path.parent == src:
            continue
        room = path.relative_to(src).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include "([^"/]+)/([^"]+)"', line)
            if not include:
                continue
            checked += 1
            target = include.group(1)
            if target == "doppler" and not may_include(room, include.group(2)):
                wrong.append(f"{path.relative_to(src)}:{number}: the room {room} may not use doppler/{include.group(2)}")
            if target in (room, "system", "doppler", "hwy"):
                continue
            if target not in MAY_USE.get(room, []):
                wrong.append(f"{path.relative_to(src)}:{number}: the room {room} may not use {target}")
    print("\n".join(wrong) or f"{checked} includes follow the rooms")
    return 1 if wrong or checked == 0 else 0


sys.exit(main())
