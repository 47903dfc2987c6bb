"""Where the commands of a page are run: a folder with stand-ins for what a reader would have there, and a terminal of 80 columns."""

import json
import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from terminal import Terminal  # noqa: E402

SOFTWARE_DRIVER = pathlib.Path("/usr/share/vulkan/icd.d")
# What is run instead of what a reader types: make's second half, the answer to a question, and less of what takes long; and all that the
# doctor would try within its time on a machine that has nothing else to do.
INSTEAD = [
    (r"^make run\b", "make --silent --old-file=build run"),
    (r"^doppler rm \S+", r"\g<0> --yes"),
    (r"^doppler doctor (?!--list)", r"\g<0>--seconds 600 "),
    (r"--documents 1024", "--documents 8"),
    (r"--depth 2000", "--depth 8"),
    (r"^doppler bench MODEL(?= --(save|baseline))",
     r"\g<0> --prefill 2 --decode 2 --depths 0 --repetitions 1 --warm-up 0 --loads 1"),
]
ASKS_FOR_GPU = re.compile(r"--backend (gpu|auto)|--gpu\b|(bench|test) kernels")


def make_folder(folder, doppler):
    """Makes the folder with what the pages' commands find: the repository, MODEL, FILE, which is a recording, and org/name as if downloaded."""
    folder.mkdir()
    for name in ("tools", "bench", "Makefile"):
        (folder / name).symlink_to(ROOT / name)
    # Copies, which commands may change.
    shutil.copytree(ROOT / "demo", folder / "demo", ignore=shutil.ignore_patterns("training"))
    (folder / "demo/training").symlink_to(ROOT / "demo/training")
    shutil.copytree(ROOT / "tests/data/models", folder / "tests/data/models")
    (folder / "MODEL").symlink_to("demo")
    for name in ("reference.safetensors", "recording.safetensors", "text.safetensors", "FILE"):
        shutil.copy(ROOT / "demo/reference.safetensors", folder / name)
    for program in (folder / "bin/doppler", folder / "build/release/doppler"):
        program.parent.mkdir(parents=True)
        program.symlink_to(doppler)
    write_hidden_states(ROOT / "demo/reference.safetensors", folder / "hidden.safetensors")
    (folder / "home").mkdir()
    model = folder / "huggingface/hub/models--org--name"
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs/main").write_text("0" * 40)
    for file in (ROOT / "demo").iterdir():
        if file.is_file() and file.name not in ("README.md", "reference.safetensors"):
            (snapshot / file.name).symlink_to(file)


def write_hidden_states(recording, to):
    """Of a recording what transformers' output_hidden_states has: the embedding and each layer's output, the last one normed."""
    data = recording.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors = {name: entry for name, entry in json.loads(data[8:begin]).items() if name != "__metadata__"}
    layers = sum(name.endswith(".layer_out") for name in tensors)
    kept = {"prompt_ids": "prompt_ids", "embed_out": "embed_out", f"layers.{layers - 1}.layer_out": "final_norm"}
    kept |= {f"layers.{i}.layer_out": f"layers.{i}.layer_out" for i in range(layers - 1)}
    header, body = {}, b""
    for name, source in kept.items():
        first, last = tensors[source]["data_offsets"]
        header[name] = tensors[source] | {"data_offsets": [len(body), len(body) + last - first]}
        body += data[begin + first:begin + last]
    text = json.dumps(header).encode()
    to.write_bytes(len(text).to_bytes(8, "little") + text + body)


def environment(folder, gpu):
    """`gpu`: Mesa's software adapter is there, and no other; else there is none at all."""
    drivers = ":".join(str(path) for path in SOFTWARE_DRIVER.glob("lvp_icd*.json")) if gpu else ""
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder.parent / "cache"),  # kernels that are checked once
        "HF_HOME": str(folder / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "VK_DRIVER_FILES": drivers or "/nowhere",
        "VK_ICD_FILENAMES": drivers or "/nowhere",
        "TERM": "dumb",  # lines as they are typed, without what an editor sends to redraw them, and no colours
    }


def typed_lines(shown):
    """What a reader types into the chat that is shown."""
    return [line[2:] for line in shown if line.startswith(("> ", "… "))]


def run(folder, command, shown):
    """Runs one command line; returns (exit status, what the terminal shows)."""
    text = command
    for pattern, other in INSTEAD:
        text = re.sub(pattern, other, text)
    keys = typed_lines(shown) if " chat " in command else []
    stdin = "" if keys else "exec </dev/null\n"
    terminal = Terminal(["bash", "-c", stdin + text], cwd=folder, **environment(folder, bool(ASKS_FOR_GPU.search(command))))
    prompt = re.compile(rb"(?:^|\n|\x1b\[K)(?:> |\xe2\x80\xa6 )$")
    try:
        for key in keys:
            terminal.expect(prompt)
            terminal.type(key + "\n")
        if keys and "/exit" not in keys:
            terminal.expect(prompt)
            terminal.type("\x04")
    except (AssertionError, OSError):  # it has ended before: the page shows another chat
        pass
    status = terminal.end()
    return status, terminal.output.decode(errors="replace")
