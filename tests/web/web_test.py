#!/usr/bin/env python3
"""The WebAssembly build in node and in a headless browser: the same tokens and sentences as the native program.

    python3 tests/web/web_test.py DOPPLER FOLDER [TEST...]

FOLDER is what `make web` made. Exit status 77 (skipped) without it, where sources are newer, or with neither node nor a browser.
"""

import functools
import gzip
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "browser"))
from browser import Browser, find  # noqa: E402

doppler = folder = None
DATA = ROOT / "tests/data"
TOKENS = 12
# For the browser, where each model costs a new worker: a file of each kind of block, and layers of each kind.
FAMILIES = {"gemma3", "llama", "mamba2", "gpt_oss", "deepseek_v3", "lfm2", "qwen3_next"}

def files_of(path, name=None):
    """{path in the page: path here} of a model's file or folder."""
    name = name or path.name
    if path.is_file():
        return {name: str(path)}
    return {f"{name}/{file.name}": str(file) for file in sorted(path.iterdir()) if file.is_file() and file.name != "reference.safetensors"}

def native(place, model, prompt, *flags, backend="cpu"):
    """What the program says of a model in a folder: {"ids", ...} or {"error"}."""
    command = [doppler, "run", model, *prompt, "--json", "--backend", backend, "--temperature", "0", *flags]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"{command}: status {done.returncode}: {done.stderr}") from None

def model_jobs():
    """Every small model and every type of block, each with what the program generates."""
    jobs = []
    models = sorted((DATA / "models").iterdir()) + sorted((DATA / "gguf").glob("*.gguf"))
    for path in models:
        job = {"name": path.name, "model": path.name, "files": files_of(path), "ids": [3, 14, 15, 9, 26, 53, 58, 97],
               "options": {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}}
        ids = ",".join(map(str, job["ids"]))
        job["native"] = native(path.parent, path.name, ["--prompt-ids", ids], "--max-tokens", str(TOKENS), "--ignore-eos")
        jobs.append(job)
    return jobs

def broken_files(place):
    """Models that lie, in files and folders of this place: their names."""
    choose = random.Random(17)
    gguf = (DATA / "gguf/llama.Q4_0.gguf").read_bytes()
    header = 4096
    for i, size in enumerate([0, 3, 8, 100, 1000, header, len(gguf) // 2, len(gguf) - 1]):
        (place / f"cut{i}.gguf").write_bytes(gguf[:size])
    for i in range(24):
        changed = bytearray(gguf)
        changed[choose.randrange(header)] = choose.randrange(256)
        (place / f"changed{i}.gguf").write_bytes(changed)
    for seed in sorted((ROOT / "fuzz/corpus/gguf_fuzz").iterdir()):
        shutil.copy(seed, place / f"{seed.name}.gguf")
    config = (DATA / "models/llama/config.json").read_text()
    weights = (DATA / "models/llama/model.safetensors").read_bytes()
    values = json.loads(config)
    texts = {"empty": "", "no_json": "{", "deep": "[" * 100000, "number": "1e999", "text": '"x"'}
    for key in ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "rms_norm_eps", "model_type"):
        for name, value in {"zero": 0, "huge": 2**40, "negative": -1, "text": "x", "null": None}.items():
            texts[f"{key}_{name}"] = json.dumps({**values, key: value})
    for name, text in texts.items():
        (place / name).mkdir()
        (place / name / "config.json").write_text(text)
        (place / name / "model.safetensors").write_bytes(weights)
    for i, size in enumerate([0, 7, 8, 100, len(weights) - 1]):
        (place / f"weights{i}").mkdir()
        (place / f"weights{i}" / "config.json").write_text(config)
        (place / f"weights{i}" / "model.safetensors").write_bytes(weights[:size])
    for i in range(12):
        changed = bytearray(weights)
        changed[choose.randrange(2000)] = choose.randrange(256)
        (place / f"header{i}").mkdir()
        (place / f"header{i}" / "config.json").write_text(config)
        (place / f"header{i}" / "model.safetensors").write_bytes(changed)
    for name, files in hostile_folders(config.encode(), weights):
        (place / name).mkdir()
        for file, content in files.items():
            (place / name / file).write_bytes(content)
    return sorted(path.name for path in place.iterdir())

def hostile_folders(config, weights):
    """(name, {file: bytes}) from what the native parsers are fuzzed with: as it is, and where it would be accepted, cut in its middle."""
    seeds = lambda parser: sorted((ROOT / f"fuzz/corpus/{parser}_fuzz").iterdir())
    llama = {"config.json": config, "model.safetensors": weights}
    for seed in seeds("safetensors"):
        yield f"seed_weights_{seed.name}", {**llama, "model.safetensors": seed.read_bytes()}
    for seed in seeds("spec")[::3]:
        yield f"seed_config_{seed.name}", {**llama, "config.json": seed.read_bytes().split(b"\0")[0]}
    for seed in seeds("rdrr"):
        parts = seed.read_bytes().split(b"\0", 1)
        yield f"seed_package_{seed.name}", dict(zip(["manifest.json", "tensors.json"], parts))
    for parser, file in [("tokenizer_json", "tokenizer.json"), ("sentencepiece", "tokenizer.model"), ("jinja", "chat_template.jinja")]:
        for seed in seeds(parser):
            content = seed.read_bytes()
            yield f"seed_{parser}_{seed.name}", {**llama, file: content}
            yield f"seed_{parser}_{seed.name}_cut", {**llama, file: content[:len(content) // 2]}

def broken_jobs(place):
    jobs = []
    for name in broken_files(place):
        job = {"name": name, "model": name, "files": files_of(place / name), "ids": [3, 4], "options": {"max_tokens": 2, "temperature": 0}}
        job["native"] = native(place, name, ["--prompt-ids", "3,4"], "--max-tokens", "2")
        jobs.append(job)
    return jobs

def package_jobs(place):
    """RDRR packages of models, made by the program."""
    jobs = []
    for name in sorted(FAMILIES):
        subprocess.run([doppler, "convert", DATA / "models" / name, "-o", place / "packages" / name, "--format", "rdrr", "--type", "keep"], check=True,
                       capture_output=True, timeout=120)
        job = {"name": name, "model": name, "files": files_of(place / "packages" / name), "ids": [3, 14, 15],
               "options": {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}}
        job["native"] = native(DATA / "models", name, ["--prompt-ids", "3,14,15"], "--max-tokens", str(TOKENS), "--ignore-eos")
        jobs.append(job)
    # The package of a .gguf file holds its description, and is found all the same where nobody says which of its files it is.
    name = "llama.Q4_0.gguf"
    subprocess.run([doppler, "convert", DATA / "gguf" / name, "-o", place / "packages/of_gguf", "--format", "rdrr", "--type", "keep"], check=True,
                   capture_output=True, timeout=120)
    job = {"name": name, "files": files_of(place / "packages/of_gguf"), "ids": [3, 14, 15],
           "options": {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}}
    job["native"] = native(DATA / "gguf", name, ["--prompt-ids", "3,14,15"], "--max-tokens", str(TOKENS), "--ignore-eos")
    return [*jobs, job]

def places_of(value, place=()):
    """Every place of a JSON text where a single value stands; of a list's entries only the first."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in places_of(inner, (*place, key))]
    if isinstance(value, list):
        return places_of(value[0], (*place, 0)) if value else []
    return [place]


def with_value(manifest, place, value):
    changed = json.loads(json.dumps(manifest))
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return json.dumps(changed)


LIES = [2**40, "x"]  # the first is wider than a module's addresses


def lying_jobs(place, lies):
    """A package whose manifest lies in each of its fields, with each of the lies, and what the program says of it."""
    source = place / "packages/llama"
    manifest = json.loads((source / "manifest.json").read_text())
    jobs = []
    for i, (at, lie) in enumerate((at, lie) for at in places_of(manifest) for lie in lies):
        folder = place / "lies" / str(i)
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(with_value(manifest, at, lie))
        for file in source.iterdir():
            if file.name != "manifest.json":
                (folder / file.name).symlink_to(file)
        job = {"name": f"{'.'.join(map(str, at))} = {lie}", "model": "llama", "files": files_of(folder, "llama"), "ids": [3, 14],
               "options": {"max_tokens": 2, "temperature": 0, "ignore_eos": True}}
        # Under the same name, so that sentences with a path in them are the same.
        (folder / "llama").symlink_to(folder)
        job["native"] = native(folder, "llama", ["--prompt-ids", "3,14"], "--max-tokens", "2", "--ignore-eos")
        jobs.append(job)
    return jobs


# Sets of kernels by which each type of block is computed.
KERNELS = {"plain": {"module": "doppler_plain.wasm"},
           "threads": {"module": "doppler_threads.wasm", "load": {"threads": 2}}, "relaxed": {"module": "doppler_relaxed.wasm"},
           "threads_relaxed": {"module": "doppler_threads_relaxed.wasm", "load": {"threads": 2}}}


def kernel_jobs(sets):
    task = {"ids": list(range(3, 40)), "options": {"max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": 0}}
    return [{"name": path.name, "set": name, "model": path.name, "files": files_of(path), **task, **KERNELS[name]}
            for path in sorted((DATA / "gguf").glob("*.*.gguf")) for name in sets]


def said(result):
    """An error's code and sentence, or the ids."""
    error = result.get("error")
    return [error["code"], error["message"]] if error else result["ids"]

class Site(http.server.SimpleHTTPRequestHandler):
    """The built folder at /web/, the tests at /tests/, any file of this machine below /file/: for this test's browser alone."""

    def translate_path(self, path):
        parts = path.split("?")[0].split("/", 2)
        base = {"web": folder, "tests": HERE, "alone": HERE, "file": pathlib.Path("/")}.get(parts[1], HERE)
        return str(base / http.server.urllib.parse.unquote(parts[2] if len(parts) > 2 else ""))

    # Pages share memory between threads only if nobody else can look into it; those below /alone/ may not.
    def end_headers(self):
        if not self.path.startswith("/alone/"):
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_):
        pass

Site.extensions_map = {**Site.extensions_map, ".js": "text/javascript", ".wasm": "application/wasm"}

# What a page downloads of a module, as servers send it.
MOST_COMPRESSED = 1_400_000
MOST_WITH_DIAGNOSIS = 2_300_000


class Size(unittest.TestCase):
    def test_modules_stay_small(self):
        for module in sorted(folder.glob("doppler_*.wasm")):
            most = MOST_WITH_DIAGNOSIS if "diagnosis" in module.name else MOST_COMPRESSED
            self.assertLess(len(gzip.compress(module.read_bytes())), most, module.name)


class Web:
    """The tests of one host, which `run(task)` runs."""

    load = {}
    sets = ["plain", "threads"]
    lies = LIES

    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.place.name)
        jobs = {"models": cls.chosen(model_jobs()), "broken": broken_jobs(cls.path), "packages": package_jobs(cls.path), "kernels": kernel_jobs(cls.sets)}
        jobs["lies"] = lying_jobs(cls.path, cls.lies)
        sky = native(ROOT, "demo", ["The color of the sky is"], "--raw", "--max-tokens", "40")
        jobs["demo"] = [{"name": "demo", "model": "demo", "files": files_of(ROOT / "demo"), "prompt": "The color of the sky is",
                         "options": {"max_tokens": 40, "temperature": 0}, "native": sky}]
        flat = [job for group in jobs.values() for job in group]
        sent = [{key: value for key, value in job.items() if key != "native"} for job in flat]
        answer = cls.run_task({"jobs": sent, "demo": files_of(ROOT / "demo"), "load": cls.load})
        for job, result in zip(flat, answer["results"]):
            job["result"] = result
        cls.jobs, cls.failed = jobs, answer["failed"]

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    @classmethod
    def chosen(cls, jobs):
        return jobs

    def compare(self, group):
        different = [f"{job['name']}: {said(job['result'])}, natively {said(job['native'])}"
                     for job in self.jobs[group] if said(job["result"]) != said(job["native"])]
        self.assertEqual(different, [])
        self.assertTrue(self.jobs[group])

    def test_models_generate_the_same_tokens(self):
        self.compare("models")

    def test_packages_generate_what_their_models_do(self):
        self.compare("packages")

    def test_the_demo_says_the_same(self):
        self.compare("demo")
        self.assertEqual(self.jobs["demo"][0]["result"]["text"], self.jobs["demo"][0]["native"]["text"])

    def test_files_that_lie_are_refused_in_the_same_words(self):
        self.compare("broken")
        self.assertGreater(sum("error" in job["result"] for job in self.jobs["broken"]), 50)

    def test_a_package_that_lies_in_any_field_is_met_in_the_same_words(self):
        self.compare("lies")
        self.assertGreater(sum("error" in job["result"] for job in self.jobs["lies"]), len(self.jobs["lies"]) / 3)

    def test_all_kernels_compute_the_same(self):
        values = {}
        for job in self.jobs["kernels"]:
            values.setdefault(job["name"], {})[job["set"]] = job["result"].get("logprobs", job["result"])
        for name, by_set in values.items():
            for same in by_set:
                self.assertEqual(by_set["plain"], by_set[same], f"{name}, {same}")

    def test_the_interface(self):
        self.assertEqual(self.failed, [])

@unittest.skipUnless(shutil.which("node"), "there is no node")
class Node(Web, unittest.TestCase):
    @classmethod
    def run_task(cls, task):
        file = cls.path / "task.json"
        file.write_text(json.dumps(task))
        done = subprocess.run(["node", str(HERE / "node.mjs"), str(folder), str(file)], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def test_the_example_of_the_docs_prints_what_they_show(self):
        page = (ROOT / "docs/web.md").read_text()
        code, shown = re.search(r"<!-- run by tests/web/web_test.py -->\n```js\n(.*?)```\n\n```text\n(.*?)```", page, re.S).groups()
        code = code.replace("./build/web/", f"{folder.as_uri()}/")
        done = subprocess.run(["node", "--input-type=module", "-"], input=code, cwd=ROOT, capture_output=True, text=True, timeout=120)
        self.assertEqual((done.stdout, done.stderr), (shown, ""))

    def load_in_node(self, old, new, model=DATA / "gguf/llama.Q4_0.gguf"):
        """What an engine of two threads says of itself, where the file of its threads reads otherwise, and how it ends."""
        changed = self.path / f"changed{len(list(self.path.glob('changed*')))}"
        shutil.copytree(folder, changed)
        source = (changed / "thread.js").read_text()
        self.assertIn(old, source)
        (changed / "thread.js").write_text(source.replace(old, new))
        code = f"""import {{ readFileSync }} from "node:fs";
            import {{ Doppler }} from "{changed.as_uri()}/index.js";
            const said = [];
            try {{
              const engine = await Doppler.load({{ "m.gguf": readFileSync("{model}") }}, {{ threads: 2 }});
              said.push(engine.info.notes);
              for (const _ of [0, 1]) await engine.generate([3, 4, 5], {{ max_tokens: 2 }}).result();
            }} catch ({{ code, message }}) {{ said.push([code, message]); }}
            console.log(JSON.stringify(said));"""
        done = subprocess.run(["node", "--input-type=module", "-"], input=code, cwd=self.path, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    @unittest.skipIf((os.cpu_count() or 1) < 2, "this machine has one processor")
    def test_threads_that_do_not_start_are_said(self):
        notes, = self.load_in_node("tell({ ready: true });", 'throw new Error("not today");')
        self.assertIn("The engine computes with 1 thread, because a worker for a thread cannot be started: not today.", notes)

    @unittest.skipIf((os.cpu_count() or 1) < 2, "this machine has one processor")
    def test_a_thread_that_stops_is_an_error(self):
        code, message = self.load_in_node("exports.serve_as_thread(number, room);", 'throw new Error("not today");')[-1]
        self.assertEqual(code, "lost")  # though nobody waited for it
        self.assertIn("A thread of the engine has stopped: not today.", message)
        # What is left of its stack holds what waits for work, but no work.
        subprocess.run([doppler, "synth", "gemma3-270m", "threads.gguf", "--layers", "1", "--vocab", "20000"], cwd=self.path, check=True,
                       capture_output=True, timeout=120)
        code, message = self.load_in_node("exports.serve_as_thread(", "exports.__stack_pointer.value = 512; exports.serve_as_thread(",
                                          self.path / "threads.gguf")[-1]
        self.assertEqual(code, "lost")
        self.assertIn("A thread of the engine has stopped: memory access out of bounds.", message)

    def test_weights_are_in_memory_once(self):
        subprocess.run([doppler, "synth", "gemma3-270m", "m.gguf", "--layers", "1", "--vocab", "100000"], cwd=self.path, check=True,
                       capture_output=True, timeout=120)
        code = f"""import {{ closeSync, fstatSync, openSync, readSync }} from "node:fs";
            import {{ Doppler }} from "{folder.as_uri()}/index.js";
            const file = openSync("m.gguf");
            let most = 0;
            const read = (at, into) => {{
              most = Math.max(most, into.length);
              return readSync(file, into, 0, into.length, at);
            }};
            const engine = await Doppler.load({{ "m.gguf": {{ size: fstatSync(file).size, read }} }}, {{ context: 64 }});
            await engine.generate([3, 4], {{ max_tokens: 2 }}).result();
            console.log(JSON.stringify([(await engine.inspect()).memory, fstatSync(file).size, most]));"""
        done = subprocess.run(["node", "--input-type=module", "-"], input=code, cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.stderr, "")
        memory, size, most = json.loads(done.stdout)
        self.assertGreater(size, 32e6)
        # Beside them the module itself, texts, and a piece of the file.
        self.assertLess(memory["module"] - memory["weights"] - memory["cache"] - memory["activations"], 16e6)
        self.assertLessEqual(most, 16 << 20)

@unittest.skipUnless(find(), "there is no browser (scripts/install_deps.sh browser)")
class Chromium(Web, unittest.TestCase):
    sets = list(KERNELS)
    lies = [2**40]  # each lie costs a worker

    @classmethod
    def chosen(cls, jobs):
        return [job for job in jobs if job["name"].endswith(".gguf") or job["name"] in FAMILIES]

    @classmethod
    def run_task(cls, task):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.address = f"http://127.0.0.1:{cls.server.server_port}"
        cls.browser = Browser(find())
        cls.browser.open(f"{cls.address}/tests/page.html", 1000)
        return cls.browser.run(f"runTask({json.dumps(task)})")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.shutdown()
        cls.server.server_close()
        super().tearDownClass()

    def test_a_page_that_is_not_isolated_says_that_it_has_one_thread(self):
        self.browser.open(f"{self.address}/alone/page.html", 1000)
        for worker in ("true", "false"):
            notes = self.browser.run(f"notesOf('/file{DATA}/gguf/llama.Q4_0.gguf', {{ worker: {worker} }})")
            self.assertIn("The engine computes with 1 thread, because the page is not cross-origin isolated, so that threads could not share memory.", notes)

    def test_the_pages_own_thread_has_no_others(self):
        self.browser.open(f"{self.address}/tests/page.html", 1000)
        notes = self.browser.run(f"notesOf('/file{DATA}/gguf/llama.Q4_0.gguf', {{ worker: false }})")
        self.assertIn("The engine computes with 1 thread, because it computes on the page's own thread, which may not wait for others.", notes)

def skip_unless_built():
    if not (folder / "index.js").exists():
        print(f"There is no {folder}/index.js. Run make web.")
        sys.exit(77)
    sources = [path for base in ("src", "web", "include") for path in (ROOT / base).rglob("*") if path.is_file()]
    if max(path.stat().st_mtime for path in sources) > (folder / "doppler_plain.wasm").stat().st_mtime:
        print(f"The sources are newer than {folder}/doppler_plain.wasm. Run make web.")
        sys.exit(77)


if __name__ == "__main__":
    doppler, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    skip_unless_built()
    if not shutil.which("node") and not find():
        print("There is neither node nor a browser.")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
