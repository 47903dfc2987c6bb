#!/usr/bin/env python3
"""Looking inside, in node and in a headless browser: values, comparisons and diagnoses are the program's, and an engine that stops is
there again for the next call.

    python3 tests/web/look_test.py DOPPLER FOLDER [TEST...]

FOLDER is what `make web` made. Exit status 77 (skipped) without it, where sources are newer, or with neither node nor a browser.
"""

import http.server
import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import web_test  # noqa: E402
from web_test import DATA, HERE, ROOT, Browser, Site, files_of, find  # noqa: E402

PROMPT = "The color of the sky is"
REQUEST = {"stages": ["embed_out", "q_rope", "attn_scores", "layer_out", "logits"], "layers": [0, 5], "tokens": [1, -1]}
# So far two machines' floats may lie apart, as a share of a stage's largest value: their vectors have other widths, and their sums
# another order.
APART = 2e-4


def doppler(*arguments, cwd=ROOT):
    done = subprocess.run([web_test.doppler, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"{arguments}: status {done.returncode}: {done.stderr}") from None


def error_of(result):
    return [result["error"][key] for key in ("code", "message")] if "error" in result else None


def read_safetensors(path):
    """{name: (shape, values)} of its floats and ids."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, about in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            kind = {"F32": "f", "I32": "i", "I64": "q"}[about["dtype"]]
            tensors[name] = (about["shape"], struct.unpack(f"<{math.prod(about['shape'])}{kind}", data[8 + size + begin:8 + size + end]))
    return tensors


def copies(place):
    """Models with something wrong, in folders of this place: the demo with another scale, with another width, which is refused, and
    with a head that it does not have, which is refused, too, and repaired to look further."""
    for name, old, new in [("scale", '"query_pre_attn_scalar": 64', '"query_pre_attn_scalar": 256'), ("head", '"hidden_size": 256', '"hidden_size": 320'),
                           ("tied", '"tie_word_embeddings": true', '"tie_word_embeddings": false')]:
        shutil.copytree(ROOT / "demo", place / name, ignore=shutil.ignore_patterns("training", "reference.safetensors"))
        config = (place / name / "config.json").read_text()
        assert old in config, old
        (place / name / "config.json").write_text(config.replace(old, new))
    return place / "scale", place / "head"


# Put into the module's only way in, so that a request whose text asks for it stops the engine.
FAULTS = """async #exchange(request) {
    const asked = JSON.stringify(request);
    if (request.call === "begin") this.late = /\\[late (\\w+)\\]/.exec(asked)?.[1];
    const now = (fault) => asked.includes(`[${fault}]`) || (request.call === "next" && this.late === fault);
    if (now("trap")) await this.#call(-16, 4096);
    if (now("memory")) this.#exports.allocate(0xfff00000);
    if (asked.includes("[kill]")) {
      globalThis.close();
      await new Promise(() => {});
    }
"""
ENDS = {"[trap]": ("lost", "The engine has stopped: "), "[late trap]": ("lost", "The engine has stopped: "),
        "[late memory]": ("limit", "more memory than the module can have"), "[memory]": ("limit", "more memory than the module can have"), "[kill]": ("lost", "The engine's worker has ended")}


def faulty(place):
    """A copy of the built folder whose engine can be stopped."""
    shutil.copytree(web_test.folder, place / "faulty")
    source = (place / "faulty/module.js").read_text()
    assert source.count("async #exchange(request) {\n") == 1
    (place / "faulty/module.js").write_text(source.replace("async #exchange(request) {\n", FAULTS))
    return place / "faulty"


class Inside:
    """The tests of one host, which `run_task(function, task)` runs."""

    load = {}
    faults = ["", "[trap]", "[late trap]", "[memory]", "[late memory]"]

    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.place.name)
        cls.demo = files_of(ROOT / "demo")
        cls.scale, cls.head = copies(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def check_values(self, stage, recorded):
        shape, floats = recorded
        width = math.prod(shape[1:])
        for row, token in enumerate(stage["tokens"]):
            wanted = floats[token * width:(token + 1) * width]
            if stage["stage"] == "attn_scores":  # as many positions as the last of the tokens sees
                positions = stage["shape"][2]
                wanted = [wanted[head * shape[2] + i] for head in range(shape[1]) for i in range(positions)]
            got = [float(x.replace("Infinity", "inf")) if isinstance(x, str) else x for x in
                   stage["values"][row * len(wanted):(row + 1) * len(wanted)]]
            self.assertEqual(len(got), len(wanted), stage["stage"])
            largest = max(abs(x) for x in floats if math.isfinite(x))
            for a, b in zip(got, wanted):
                if a != b:
                    self.assertLess(abs(a - b), APART * largest, f"{stage['stage']} of layer {stage['layer']}")

    def test_stages_are_those_of_the_program(self):
        record = self.path / "demo.safetensors"
        subprocess.run([web_test.doppler, "record", "demo", PROMPT, "--backend", "cpu", "--attn-scores", "-o", record], cwd=ROOT, check=True, capture_output=True,
                       timeout=120)
        recorded = read_safetensors(record)
        said = self.run_task("runLooks", {"files": self.demo, "prompt": PROMPT, "request": REQUEST, "load": self.load})
        places = [["embed_out", None], ["q_rope", 0], ["attn_scores", 0], ["layer_out", 0], ["q_rope", 5], ["attn_scores", 5], ["layer_out", 5], ["logits", None]]
        self.assertEqual([[s["stage"], s["layer"]] for s in said["stages"]], places)
        self.assertEqual(said["names"], places)
        for stage in said["stages"]:
            key = stage["stage"] if stage["layer"] is None else f"layers.{stage['layer']}.{stage['stage']}"
            self.assertEqual((stage["kind"], math.prod(stage["shape"])), ("Float32Array", len(stage["values"])), key)
            self.assertEqual(stage["tokens"], [1, len(said["ids"]) - 1], key)
            self.check_values(stage, recorded[key])
        codes = {name: value.get("error", {}).get("code") for name, value in said["refused"].items()}
        self.assertEqual(codes, {"stage": "usage", "layer": "usage", "token": "usage", "bytes": "limit", "option": "usage"})
        self.assertIn("Stages of this model are", said["refused"]["stage"]["error"]["message"])
        self.assertEqual(said["watched"], said["alone"])
        shown = sorted(token for seen in said["seen"] for token in seen["tokens"])
        self.assertEqual(shown, list(range(shown[0], shown[-1] + 1)))
        self.assertTrue(all(seen["count"] == 256 * len(seen["tokens"]) for seen in said["seen"]), said["seen"])
        self.assertEqual((said["measured"]["statistics"]["count"], said["measured"]["values"]), (256 * len(said["ids"]), []))
        self.assertEqual([len(token["top"]) for token in said["score"]["logprobs"]], [3] * (len(said["ids"]) - 1))
        self.assertEqual([token["id"] for token in said["score"]["logprobs"]], said["ids"][1:])
        self.assertIn({"name": "attn_scores", "width": 0}, [{"name": s["name"], "width": s["width"]} for s in said["known"]])

    def test_comparisons_and_diagnoses_are_those_of_the_program(self):
        truth = ROOT / "demo/reference.safetensors"
        scale, head = files_of(self.scale), files_of(self.head)
        jobs = [
            ({"files": self.demo, "call": "compare", "reference": str(truth)}, ["compare", "demo", "--reference", truth]),
            ({"files": scale, "call": "compare", "reference": str(truth)}, ["compare", self.scale, "--reference", truth]),
            ({"files": self.demo, "call": "compare", "other": {"with": "reference", "prompt": PROMPT}, "options": {"steps": 3}},
             ["compare", "demo", PROMPT, "--with", "reference", "--steps", "3"]),
            ({"files": self.demo, "call": "compare", "reference": str(truth), "options": {"quick": True, "tolerance": 1e-9}},
             ["compare", "demo", "--reference", truth, "--quick", "--tolerance", "1e-9"]),
            ({"files": self.demo, "call": "doctor", "reference": str(truth)}, ["doctor", "demo", "--reference", truth]),
            ({"files": scale, "call": "doctor", "reference": str(truth)}, ["doctor", self.scale, "--reference", truth]),
            ({"files": scale, "call": "doctor", "options": {"check": ["spec", "ops", "tied_head"]}}, ["doctor", self.scale, "--check", "spec,ops,tied_head"]),
            ({"files": head, "call": "doctor of a source"}, ["doctor", self.head]),
            ({"files": files_of(self.path / "tied"), "call": "doctor of a source", "options": {"check": ["files", "spec", "ops"]}},
             ["doctor", self.path / "tied", "--check", "files,spec,ops"]),
        ]
        results = self.run_task("runDiagnoses", {"jobs": [job for job, _ in jobs], "load": self.load})
        for (job, command), result in zip(jobs, results):
            with self.subTest(" ".join(map(str, command))):
                wanted = doppler(*command, "--json", "--backend", "cpu")
                shares = result.pop("shares", [0, 1])
                self.assertEqual(shares, sorted(shares))
                self.assertEqual(result.keys(), wanted.keys(), result)
                if job["call"] == "compare":
                    self.same_comparison(result, wanted)
                else:
                    self.same_diagnosis(result, wanted)

    def test_recordings_that_lie_are_refused_in_the_same_words(self):
        model = DATA / "models/llama"
        truth = (model / "reference.safetensors").read_bytes()
        files = {f"cut{size}": truth[:size] for size in (0, 7, 1000, len(truth) - 1)}
        files.update((f"changed{at}", truth[:at] + bytes([truth[at] ^ 8]) + truth[at + 1:]) for at in (3, 9, 700))
        files.update((seed.name, seed.read_bytes()) for seed in sorted((ROOT / "fuzz/corpus/recording_fuzz").iterdir()))
        # The program names the file, and a page has another place for it.
        place = self.path / "doppler-reference"
        place.mkdir(exist_ok=True)
        jobs, wanted = [], []
        for name, content in files.items():
            (self.path / name).write_bytes(content)
            shutil.copy(self.path / name, place / "recording.safetensors")
            jobs.append({"files": files_of(model), "call": "compare", "reference": str(self.path / name), "options": {"quick": True}})
            wanted.append(doppler("compare", model, "--reference", "doppler-reference/recording.safetensors", "--quick", "--json", "--backend", "cpu", cwd=self.path))
        results = self.run_task("runDiagnoses", {"jobs": jobs, "load": self.load})
        for name, result, said in zip(files, results, wanted):
            self.assertEqual(error_of(result), error_of(said), name)
        self.assertGreater(sum("error" in result for result in results), 7)

    def same_comparison(self, result, wanted):
        for key in ("agrees", "backend", "found", "expected", "not_shared", "stages_compared"):
            self.assertEqual(result[key], wanted[key], key)
        self.assertEqual(result["decode"].keys(), wanted["decode"].keys())
        self.assertEqual(result["decode"]["top1_equal"], wanted["decode"]["top1_equal"])
        for got, stage in zip(result["stages"], wanted["stages"]):
            self.assertEqual(got.keys(), stage.keys())
            for key in ("key", "stage", "layer", "phase", "computed", "agrees", "why", "tokens", "tolerance"):
                self.assertEqual(got[key], stage[key], f"{stage['key']}: {key}")
            self.assertLess(abs(got["error"] - stage["error"]), APART, stage["key"])
        first = [side["first_divergence"] and side["first_divergence"]["key"] for side in (result, wanted)]
        self.assertEqual(*first)

    def same_diagnosis(self, result, wanted):
        self.assertEqual(result["healthy"], wanted["healthy"])
        told = lambda side: [[f.get(key) for key in ("cause", "stage", "layer", "repair", "places", "check")] for f in side["findings"]]
        self.assertEqual(told(result), told(wanted))
        states = lambda side: [[check["name"], check["state"]] for check in side["checks"]]
        self.assertEqual(states(result), states(wanted))
        places = lambda side: [[op["check"], op["stage"], op["layer"], op["excess"] is None or op["excess"] > 1] for op in side["ops"]]
        self.assertEqual(places(result), places(wanted))
        self.assertEqual(result["untested"], wanted["untested"])

    def test_an_engine_that_stops_is_there_for_the_next_call(self):
        said = self.run_task("runFaults", {"files": self.demo, "faults": self.faults, "load": self.load}, faulty(self.path))
        healthy = said[""]
        self.assertIn("content", healthy["next"])
        self.assertFalse(any("loaded again" in note for note in healthy["notes"]))
        for fault in self.faults[1:]:
            with self.subTest(fault):
                code, sentence = ENDS[fault]
                error = said[fault]["stopped"].get("error", said[fault]["stopped"])
                self.assertEqual(error.get("code"), code, error)
                self.assertIn(sentence, error["message"])
                self.assertEqual(said[fault]["next"], healthy["next"])
                self.assertEqual(said[fault]["ids"], healthy["ids"])
                self.assertEqual([note for note in said[fault]["notes"] if "loaded again" in note],
                                 [f"The model was loaded again, and computes its next prompt from the start, because: {error['message']}"])
                self.assertEqual(said[fault]["closed"], "lost")


@unittest.skipUnless(shutil.which("node"), "there is no node")
class Node(Inside, unittest.TestCase):
    def run_task(self, function, task, built=None):
        file = self.path / "task.json"
        file.write_text(json.dumps({"run": function, **task}))
        done = subprocess.run(["node", str(HERE / "look.mjs"), str(built or web_test.folder), str(file)], capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)


@unittest.skipUnless(find(), "there is no browser (scripts/install_deps.sh browser)")
class Chromium(Inside, unittest.TestCase):
    faults = [*Inside.faults, "[kill]"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.browser = Browser(find())
        cls.browser.open(f"http://127.0.0.1:{cls.server.server_port}/tests/page.html", 1000)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.shutdown()
        cls.server.server_close()
        super().tearDownClass()

    def run_task(self, function, task, built=None):
        index = f"/file{built}/index.js" if built else "/web/index.js"
        return self.browser.run(f"""Promise.all([import("{index}"), import("/tests/look.js")]).then(([api, tests]) =>
            tests.{function}(api, async (path) => (await fetch(`/file${{path}}`)).blob(), {json.dumps(task)}))""")


if __name__ == "__main__":
    web_test.doppler, web_test.folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    web_test.skip_unless_built()
    if not shutil.which("node") and not find():
        print("There is neither node nor a browser.")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
