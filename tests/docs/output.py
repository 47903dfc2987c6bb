"""Compares what a page shows with what a command prints. What differs from machine to machine and from run to run is told here."""

import difflib
import re

NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"

# What is never compared, and why.
MASKS = [
    # Time, and what follows from it.
    (rf"\[{NUMBER}ms\]", "[TIME]"),
    (rf"\b{NUMBER}(?: ?(?:ns|us|ms|s|min)\b|/s\b| ?(?:tok|GB|MB)/s)", "TIME"),
    (r"\b(ok|finding|skipped|failed)(\s+)\d+\.\d{3}\b", r"\1\2TIME"),
    # How an error compares with what rounding explains depends on the order of sums, so on the instruction set.
    (rf"\b{NUMBER}(\s+)times(\s+)the(\s+)allowed(\s+)error", r"ERROR\1times\2the\3allowed\4error"),
    (rf"\b{NUMBER}(\s+)times(\s+)what(\s+)rounding", r"ERROR\1times\2what\3rounding"),
    (r"\bworst(\s+)of(\s+)the(\s+)others,\s+\S+,\s+uses\s+\d+\s+%", r"worst\1of\2the\3others"),
    (rf"×{NUMBER}[kMG]?", "×ERROR"),
    (rf"\b(differ|differs)(\s+)by(\s+)(at\s+most\s+)?{NUMBER}", r"\1\2by\3ERROR"),
    (rf"\bnearest ×ERROR at \S+", "nearest ×ERROR"),
    (rf"\b(error|allowed|inherited)(\s+){NUMBER}", r"\1\2ERROR"),
    (r"\b(AVX2|AVX3\w*|SSE\w*|NEON\w*|SVE\w*)\b", "INSTRUCTIONS"),
    (r"\bcpu: (there is no GPU|this doppler was built without GPU support)", "cpu: NO GPU"),
    # The adapter: its name, its limits, and the shapes of kernels that rank best on it.
    (r"\bllvmpipe \([^)]*\) \(Vulkan, driver [^)]*\)\),?", "ADAPTER"),
    (r"\bwgpu(-native)? [\d.]+( with tensor cores)?", "LIBRARY"),
    (r"\bsubgroups of \d+", "SUBGROUPS"),
    (r"\blimits: .*?in a dimension", "LIMITS"),
    (r"\b(R|LANES|UNITS)=\d+", r"\1=SHAPE"),
]

# Sums of floats end in other digits on other instruction sets: so much may a number with a point differ, of itself or in its last
# digit. Ids, counts and sizes are whole numbers and may not.
RELATIVE, LAST_DIGIT = 2e-3, 2.5

# The figures on stderr with which an answer ends; a page shows them or not.
FIGURES = re.compile(r"^(?:cpu|gpu|reference): loaded in .*?stopped\s+by\s+\S+\n", re.M | re.S)


def masked(text):
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text, flags=re.DOTALL)
    return text


def near(shown, printed):
    """Equal, or texts whose decimal numbers are near."""
    if shown == printed:
        return True
    decimal = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
    if decimal.sub("#", shown) != decimal.sub("#", printed):
        return False
    for a, b in zip(decimal.findall(shown), decimal.findall(printed)):
        unit = 10.0 ** -len(re.search(r"\.(\d+)", a).group(1))
        if "e" in a:
            unit *= 10.0 ** int(a.split("e")[1])
        if abs(float(a) - float(b)) > max(RELATIVE * abs(float(a)), LAST_DIGIT * unit):
            return False
    return True


def tokens(text, strict):
    return re.findall(r"\n| +|[^ \n]+" if strict else r"\S+", text)


def agree(shown, printed):
    """Whether the words that are shown are those that are printed, "…" being any. Where figures are masked, which have another width
    on another day, words may stand on other lines; else every space counts."""
    shown_text, printed_text = "\n".join(shown), "\n".join(printed)
    strict = masked(shown_text) == shown_text
    want, have = tokens(masked(shown_text), strict), tokens(masked(printed_text), strict)
    pieces, piece = [], []
    for word in want:
        if word in ("…", "..."):
            pieces.append(piece)
            piece = []
        else:
            piece.append(word)
    pieces.append(piece)

    def fits(piece, at):
        return at >= 0 and at + len(piece) <= len(have) and all(near(a, b) for a, b in zip(piece, have[at:]))

    if len(pieces) == 1:
        return len(have) == len(want) and fits(want, 0)
    if not fits(pieces[0], 0):
        return False
    at = len(pieces[0])
    for piece in pieces[1:-1]:
        while not fits(piece, at):
            at += 1
            if at > len(have):
                return False
        at += len(piece)
    end = len(have) - len(pieces[-1])
    return end >= at and fits(pieces[-1], end)


def tidied(printed, shown):
    """The lines as a terminal shows them in the end: without what was overwritten, and without figures that the page leaves out."""
    text = "\n".join(line.split("\033[K")[-1].split("\r")[-1].rstrip() for line in printed.replace("\r\n", "\n").split("\n"))
    if not FIGURES.search("\n".join(shown) + "\n"):
        text = FIGURES.sub("", text)
    return without_end(text.split("\n"))


def without_end(lines):
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def is_gap(line):
    return line.strip() in ("…", "...")


def updated(shown, printed):
    """What a page should show now: everything if it left nothing out, else for each group of lines the lines most like its first to
    those most like its last."""
    groups = [[]]
    for line in shown:
        if is_gap(line):
            groups.append([])
        else:
            groups[-1].append(line)
    if len(groups) == 1:
        return printed

    def most_like(line, start):
        def likeness(at):  # a line that was not wrapped then may be now
            return difflib.SequenceMatcher(None, masked(line)[:len(printed[at])], masked(printed[at])).ratio() if printed[at] else 0
        return max(range(start, len(printed)), key=likeness, default=start)

    result, at = [], 0
    for number, group in enumerate(groups):
        if number:
            result.append("…")
        if not group:
            continue
        begin = most_like(group[0], at) if number else 0
        at = most_like(group[-1], begin) + 1 if number < len(groups) - 1 else len(printed)
        start = indent(printed[at - 1])
        while at < len(printed) and indent(printed[at]) > start:
            at += 1
        result += printed[begin:at]
    return result


def indent(line):
    return len(line) - len(line.lstrip())


def difference(shown, printed):
    new = updated(shown, printed)
    return "\n".join(difflib.unified_diff(shown, new, "shown", "printed", lineterm="", n=1)) or "\n".join(printed)
