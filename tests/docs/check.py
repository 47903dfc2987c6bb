"""Runs every command that the pages show and compares what it prints with what is shown.

usage: check.py DOPPLER [--update] [PAGE ...]     --update writes into the pages what is printed now
"""

import collections
import concurrent.futures
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import commands  # noqa: E402
import output  # noqa: E402
import page  # noqa: E402
import place  # noqa: E402

ROOT = place.ROOT
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "demo/README.md"]


def try_page(blocks, doppler, folder, has_gpu):
    """Runs the commands of a page in their order, in one folder; returns for each (why it was not run, status, lines printed)."""
    results = []
    place.make_folder(folder, doppler)
    for block, command in [(block, command) for block in blocks for command in block.commands]:
        reason = block.not_run or commands.why_not_run(command.text)
        if not reason and not has_gpu and place.ASKS_FOR_GPU.search(command.text):
            reason = "there is no software GPU here"
        if reason:
            results.append((reason, 0, []))
            continue
        status, printed = place.run(folder, command.text, command.shown)
        results.append(("", status, output.tidied(printed, command.shown)))
    return results


def judge(command, status, printed):
    """What is wrong, or ""."""
    shown = output.without_end(command.shown)
    if shown and not output.agree(shown, printed):
        return output.difference(shown, printed)
    # 1 is an answer; what fails says so in the page.
    if status > 1 and not any(line.startswith("doppler: ") for line in shown):
        return f"It ends with status {status}:\n" + "\n".join(printed[-5:])
    return ""


def has_software_gpu(doppler, folder):
    place.make_folder(folder, doppler)
    status, printed = place.run(folder, "doppler inspect demo --gpu", [])
    return status == 0 and "llvmpipe" in printed


def main():
    arguments = [word for word in sys.argv[1:] if word != "--update"]
    doppler = pathlib.Path(arguments[0]).resolve()
    names = arguments[1:] or PAGES + sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
    texts = {name: (ROOT / name).read_text() for name in names}
    grammar = commands.Grammar(doppler, ROOT)
    problems, blocks = [], {}
    for name, text in texts.items():
        found, spans = page.read(text)
        if found:
            blocks[name] = found
        for line, command, code in spans:
            mistake = grammar.span_mistake(command, code)
            if mistake:
                problems.append(f"{name}:{line}: `{code}`: {mistake}.")
        for command in [command for block in found for command in block.commands]:
            mistake = grammar.mistake(command.text)
            if mistake:
                problems.append(f"{name}:{command.line}: {command.text}\n{mistake}.")

    ran = compared = 0
    left_out = collections.Counter()
    changes = collections.defaultdict(dict)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "cache").mkdir()
        has_gpu = has_software_gpu(doppler, scratch / "any adapter")
        with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
            longest_first = sorted(blocks, key=lambda name: -sum(len(block.commands) for block in blocks[name]))
            tried = {name: pool.submit(try_page, blocks[name], doppler, scratch / str(number), has_gpu)
                     for number, name in enumerate(longest_first)}
            for name in blocks:
                listed = [command for block in blocks[name] for command in block.commands]
                for command, (reason, status, printed) in zip(listed, tried[name].result()):
                    if reason:
                        left_out[reason] += 1
                        continue
                    ran += 1
                    compared += bool(command.shown)
                    wrong = judge(command, status, printed)
                    if wrong:
                        problems.append(f"{name}:{command.line}: $ {command.text}\n{wrong}")
                    if wrong and command.shown:
                        blank = len(command.shown) - len(output.without_end(command.shown))
                        new = output.updated(output.without_end(command.shown), printed) + [""] * blank
                        changes[name][command.line] = (len(command.shown), new)
    if "--update" in sys.argv:
        for name, lines in changes.items():
            (ROOT / name).write_text(page.rewritten(texts[name], lines))
            print(f"{name}: written anew below {len(lines)} command{'s' * (len(lines) > 1)}.")
    if problems:
        print("\n\n".join(problems) + "\n")
    print(f"{len(names)} pages: {ran} commands run, {compared} of them compared with what is shown; not run:")
    for reason, count in left_out.most_common():
        print(f"  {count}  {reason}")
    if problems:
        print(f"{len(problems)} places are not as they say. {sys.argv[0]} DOPPLER --update writes what is printed into the pages.")
    return 1 if problems or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
