"""Every #include of src/ must name a room that the including room may use (ARCHITECTURE.md, the tree)."""

import pathlib
import re
import sys

MAY_USE = {
    "system": [],
    "base": [],
    "config": ["base"],
    "quant": ["base"],
    "formats": ["base", "quant"],
    "tokenizer": ["base", "formats"],
    "chat": ["base", "formats"],
    "model": ["base", "quant", "formats"],
    "plan": ["base", "quant", "model"],
    "backend": ["base", "quant", "model", "plan"],
    "engine": ["base", "quant", "formats", "tokenizer", "chat", "model", "plan", "backend"],
    "diagnosis": ["base", "quant", "formats", "tokenizer", "chat", "model", "plan", "backend", "engine"],
    "convert": ["base", "quant", "formats", "tokenizer", "chat", "model"],
    "bench": ["base", "quant", "formats", "tokenizer", "chat", "model", "plan", "backend", "engine", "diagnosis"],
    "cli": ["base", "config", "quant", "formats", "tokenizer", "chat", "model", "plan", "backend", "engine", "diagnosis",
            "convert", "bench"],
}


def main() -> int:
    src = pathlib.Path(sys.argv[1])
    wrong = []
    checked = 0
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cpp"} or path.parent == src:
            continue
        room = path.relative_to(src).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include "([^"/]+)/', line)
            if not include:
                continue
            checked += 1
            target = include.group(1)
            if target in (room, "system", "doppler", "hwy"):
                continue
            if target not in MAY_USE.get(room, []):
                wrong.append(f"{path.relative_to(src)}:{number}: the room {room} may not use {target}")
    print("\n".join(wrong) or f"{checked} includes follow the rooms")
    return 1 if wrong or checked == 0 else 0


sys.exit(main())
