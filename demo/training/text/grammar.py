"""A small template language: `[a|b]` picks one, `{slot}` fills in, `{Slot}` capitalises, `{a:slot}` adds an article."""

_cache = {}


def article(phrase):
    """`a` or `an` before the phrase, by the sound of its first word."""
    word = phrase.split(" ")[0].lower()
    if word in ("hour", "honest", "heir") or (word[0] in "aeiou" and not word.startswith(("uni", "use", "one", "eu"))):
        return "an " + phrase
    return "a " + phrase


def capital(text):
    return text[:1].upper() + text[1:]


def _parse(text, at, inside):
    """Parses up to the end, or to `|` or `]` inside a choice; returns the parts and the position after them."""
    parts, plain = [], []

    def flush():
        if plain:
            parts.append("".join(plain))
            plain.clear()

    while at < len(text):
        char = text[at]
        if inside and char in "|]":
            break
        if char == "[":
            flush()
            options = []
            while True:
                option, at = _parse(text, at + 1, True)
                options.append(option)
                if text[at] == "]":
                    break
            parts.append(("choice", options))
        elif char == "{":
            flush()
            end = text.index("}", at)
            name = text[at + 1 : end]
            with_article = name[:2] in ("a:", "A:")
            upper = name[0].isupper()
            slot = name[2:] if with_article else name[0].lower() + name[1:]
            parts.append(("slot", slot, upper, with_article))
            at = end
        else:
            plain.append(char)
        at += 1
    flush()
    return parts, at


def _expand(parts, slots, rng, out):
    for part in parts:
        if part.__class__ is str:
            out.append(part)
        elif part[0] == "choice":
            options = part[1]
            _expand(options[int(rng.random() * len(options))], slots, rng, out)
        else:
            value = slots[part[1]]
            if callable(value):
                value = value()
            if part[3]:
                value = article(value)
            out.append(capital(value) if part[2] else value)


def fill(rng, template, slots=None):
    """One text of the template; a `|` outside of brackets is a choice too."""
    parts = _cache.get(template)
    if parts is None:
        parts = _cache[template] = _parse("[" + template + "]", 0, False)[0]
    out = []
    _expand(parts, slots or {}, rng, out)
    return "".join(out).replace("  ", " ")


def join_and(items):
    """`a, b and c`."""
    items = list(items)
    if len(items) == 1:
        return items[0]
    return ", ".join(items[:-1]) + " and " + items[-1]
