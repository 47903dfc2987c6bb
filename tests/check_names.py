"""Names below src/ (ARCHITECTURE.md, "Namespaces"): every file declares its room's namespace, and no type stands twice in one
namespace, which compiles and links and is undefined behaviour."""

import pathlib
import re
import sys

# Rooms that others use through a few names have a namespace of their own; all others share doppler.
OWN = ["bench", "chat", "cli", "config", "convert", "diagnosis", "hub", "page", "tokenizer"]

IGNORED = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.)*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                     re.MULTILINE | re.DOTALL)
NAMESPACE = re.compile(r"namespace\s*([\w:]*)$")
TYPE = re.compile(r"(?:^|[;>}\s])(?:class|struct|union|enum(?:\s+class|\s+struct)?)\s+(?:\[\[\w+\]\]\s*)?(\w+)\s*(?:final\s*)?(?::[^:].*)?$",
                  re.DOTALL)
ALIAS = re.compile(r"using\s+(\w+)\s*=[^;]*$")


def names_of(text: str):
    """The namespaces that a file opens at its top, and (namespace, name, line) of each type that it defines there."""
    text = IGNORED.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)) or " ", text)
    opened, types, scopes = [], [], []  # a scope: a namespace's name, "" for an unnamed one, None for anything else
    begin = 0
    for match in re.finditer(r"[{};]", text):
        head = text[begin:match.start()].strip()
        begin = match.end()
        line = text.count("\n", 0, match.start()) + 1
        visible = scopes and all(scopes)  # all scopes around are namespaces with names; -inl.h files have none of their own
        if match.group(0) == "}":
            if scopes:
                scopes.pop()
            continue
        inside = "::".join(scopes) if visible else ""
        if match.group(0) == ";":
            alias = ALIAS.match(head)
            if alias and visible:
                types.append((inside, alias.group(1), line))
            continue
        namespace = NAMESPACE.search(head)
        if namespace:
            if not scopes:
                opened.append((namespace.group(1), line))
            scopes.append(namespace.group(1))
            continue
        defined = TYPE.search(head)
        if defined and visible and "(" not in head.split(defined.group(1))[0]:
            types.append((inside, defined.group(1), line))
        scopes.append(None)
    return opened, types


def belongs(namespace: str, room: str) -> bool:
    if namespace.split("::")[0] != "doppler":  # unnamed, or declares what is somebody else's
        return True
    wanted = f"doppler::{room}" if room in OWN else "doppler"
    if namespace != wanted and not namespace.startswith(wanted + "::"):
        return False
    return room in OWN or namespace.split("::")[1:2] not in [[own] for own in OWN]


def main() -> int:
    src = pathlib.Path(sys.argv[1])
    wrong, places = [], {}
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cpp"} or path.parent == src:
            continue
        room = path.relative_to(src).parts[0]
        opened, types = names_of(path.read_text())
        for namespace, line in opened:
            # A file of C functions has an unnamed one at its top; libraries' namespaces are there for declarations alone.
            if namespace.startswith("doppler") and not belongs(namespace, room):
                wrong.append(f"{path.relative_to(src)}:{line}: the room {room} may not declare the namespace {namespace}")
        for namespace, name, line in types:
            if not namespace.startswith("doppler"):
                wrong.append(f"{path.relative_to(src)}:{line}: {namespace}::{name} is not in doppler")
            places.setdefault((namespace, name), []).append(f"{path.relative_to(src)}:{line}")
    for (namespace, name), found in sorted(places.items()):
        if len(found) > 1:
            wrong.append(f"{namespace}::{name} is defined in {' and '.join(found)}")
    print("\n".join(wrong) or f"{len(places)} types have one definition each, in their rooms' namespaces")
    return 1 if wrong or not places else 0


sys.exit(main())
