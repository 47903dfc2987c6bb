#!/usr/bin/env python3
"""`doppler web`: the WebAssembly build in a Chromium, examined from the command line.

    python3 tests/web/harness_test.py DOPPLER FOLDER [TEST...]

FOLDER is what `make web` made. Exit status 77 (skipped) without it, where sources are newer, or without a browser.
"""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import web_test  # noqa: E402
from web_test import DATA, ROOT, find  # noqa: E402

MODEL = "demo"
PROMPT = ["The color of the sky is", "--raw"]
PROBE = ["--probe", "stage=q_rope,layers=0:1,tokens=-1,dims=0:3"]
DIFFERENCE = 0.02  # of a probed value, between two sets of kernels that round activations to 8 bits alike and sum in another order


def alive(word):
    """Programs of this machine whose command line holds the word."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes() and folder.name != str(os.getpid()):
                found.append(folder.name)
        except OSError:
            pass
    return found


class Harness(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.path = pathlib.Path(cls.place.name)
        cls.profile = str(cls.path / "profile")

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def command(self, *words, profile=None, web=None):
        return [web_test.doppler, "web", *map(str, words), "--web", str(web or web_test.folder), "--profile", profile or self.profile]

    def web(self, *words, environment=None, **places):
        """(status, its JSON, stderr) of a command."""
        done = subprocess.run([*self.command(*words, **places), "--json"], cwd=ROOT, capture_output=True, text=True, timeout=300,
                              env={**os.environ, **(environment or {})})
        return done.returncode, json.loads(done.stdout), done.stderr

    def refused(self, *words, **more):
        status, answer, err = self.web(*words, **more)
        self.assertEqual(status, answer["error"]["status"], err)
        return status, answer["error"]["message"]

    def script(self, name, text):
        file = self.path / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return str(file)

    def test_the_browser_says_what_the_program_says(self):
        status, answer, err = self.web("test", MODEL, *PROMPT, "--max-tokens", "12", *PROBE, "--trace", "sample")
        self.assertEqual(status, 0, err)
        self.assertTrue(answer["same"])
        self.assertTrue(answer["isolated"], "threads need an isolated page")
        self.assertEqual([run["cold"] for run in answer["runs"]], [True, False])
        for run in answer["runs"]:
            self.assertEqual(run["generations"][0]["ids"], answer["native"]["ids"])
        # Looked at as at home: the same places, and nearly the same values.
        here = subprocess.run([web_test.doppler, "run", MODEL, *PROMPT, "--max-tokens", "12", "--temperature", "0", *PROBE, "--json", "--backend", "cpu"],
                              cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
        probes = json.loads(here.stdout)["probes"]
        seen = answer["runs"][1]["generations"][0]["probes"]
        self.assertEqual([{**hit, "values": list(hit["values"])} for hit in seen], [{**hit, "values": list(hit["values"])} for hit in probes])
        for ours, theirs in zip(seen, probes):
            for dim, value in theirs["values"].items():
                self.assertAlmostEqual(ours["values"][dim], value, delta=DIFFERENCE * max(1, abs(value)))
        self.assertEqual(len([line for line in err.splitlines() if line.startswith("PROBE stage=q_rope")]), 2 * len(probes))
        self.assertIn("[TRACE:sample]", err)
        self.assertEqual(alive(self.profile), [], "the browser has ended with the program")

    def test_a_probe_that_cannot_fire_is_said_as_at_home(self):
        status, message = self.refused("test", MODEL, *PROMPT, "--probe", "stage=nothing,dims=0")
        self.assertEqual(status, 2)
        self.assertIn("In the browser: ", message)
        self.assertIn("nothing", message)

    def test_loads_prompts_and_decoding_are_timed_cold_and_warm(self):
        status, answer, err = self.web("bench", DATA / "gguf/llama.Q4_0.gguf", "--prefill", "20", "--decode", "8", "--repetitions", "2", "--threads", "1")
        self.assertEqual(status, 0, err)
        self.assertEqual(answer["suite"], "web")
        self.assertEqual(answer["warm"]["decode_tokens_per_second"]["count"], 2)
        for kind in ("cold", "warm"):
            for figure in ("ready_seconds", "prefill_tokens_per_second", "decode_tokens_per_second"):
                self.assertGreater(answer[kind][figure]["median"], 0, f"{kind} {figure}")
        self.assertGreater(answer["cold"]["download_seconds"]["median"], 0)
        self.assertIn("The engine computes with 1 thread", answer["notes"][0])

    def test_a_model_that_has_changed_is_another_one(self):
        model = self.path / "model.gguf"
        for source in ("llama.Q4_0.gguf", "llama.Q8_0.gguf"):
            shutil.copy(DATA / "gguf" / source, model)
            status, answer, err = self.web("test", model, "--prompt-ids", "3,14,15", "--max-tokens", "8", "--ignore-eos")
            self.assertEqual(status, 0, err)
            self.assertEqual(answer["runs"][1]["generations"][0]["ids"], answer["native"]["ids"])

    def test_a_browser_that_says_something_else_is_status_1(self):
        other = self.path / "other"
        shutil.copytree(web_test.folder, other)
        source = (other / "generation.js").read_text()
        line = "const { rest, ...result } = this.#result;"
        self.assertIn(line, source)
        (other / "generation.js").write_text(source.replace(line, f"{line} result.ids[3] = 7;"))
        status, answer, _ = self.web("test", MODEL, *PROMPT, "--max-tokens", "8", web=other)
        self.assertEqual((status, answer["same"]), (1, False))
        self.assertIn("token 3 is 7 where the program has", answer["runs"][0]["said"])

    def test_a_hostile_model_is_refused_in_the_programs_words(self):
        broken = self.path / "broken.gguf"
        broken.write_bytes((DATA / "gguf/llama.Q4_0.gguf").read_bytes()[:1000])
        status, message = self.refused("bench", broken)
        self.assertEqual(status, 3)
        self.assertNotIn("In the browser", message)

    def test_what_is_missing_is_said(self):
        status, message = self.refused("test", MODEL, *PROMPT, web=self.path)
        self.assertEqual(status, 3)
        self.assertIn("make web", message)
        status, message = self.refused("test", MODEL, *PROMPT, environment={"DOPPLER_BROWSER": "/no/such"})
        self.assertEqual(status, 3)
        self.assertIn("The browser /no/such is no program that can be run. Check DOPPLER_BROWSER.", message)
        taken = self.path / "taken"
        taken.mkdir(exist_ok=True)
        (taken / "notes.txt").write_text("mine")
        status, message = self.refused("test", MODEL, *PROMPT, profile=str(taken))
        self.assertEqual(status, 3)
        self.assertIn("is no profile of doppler web", message)
        (taken / "doppler-profile.json").write_text('{"port": 70000, "secret": "../.."}')
        self.assertEqual(self.refused("test", MODEL, *PROMPT, profile=str(taken))[0], 3)

    def test_a_browser_that_ends_or_never_ends_is_said(self):
        status, message = self.refused("test", MODEL, *PROMPT, "--browser", self.script("ends", "#!/bin/sh\nexit 7\n"))
        self.assertEqual(status, 3)
        self.assertIn("The browser has ended with status 7", message)
        sleeps = self.script("sleeps", "#!/bin/sh\nsleep 1000\n")
        status, message = self.refused("test", MODEL, *PROMPT, "--browser", sleeps, "--timeout", "0.2")
        self.assertEqual(status, 3)
        self.assertIn("has come to no result in 0 s", message)
        self.assertEqual(alive(sleeps), [])

    def test_a_signal_ends_the_browser_too(self):
        begun = self.path / "begun"
        sleeps = self.script("waits", f"#!/bin/sh\necho > {begun}\nexec sleep 1000\n")
        process = subprocess.Popen(self.command("test", MODEL, *PROMPT, "--browser", sleeps), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not begun.exists() and process.poll() is None:
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), -signal.SIGINT)
        self.assertEqual(alive(self.profile), [])


if __name__ == "__main__":
    web_test.doppler, web_test.folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    web_test.skip_unless_built()
    if not find():
        print("There is no browser.")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
