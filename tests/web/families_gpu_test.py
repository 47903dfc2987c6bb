#!/usr/bin/env python3
"""Every small model and every type of block on the browser's software GPU: the native program's tokens, and the same at every stage.

    python3 tests/web/families_gpu_test.py DOPPLER FOLDER [--share] [-v] [MODEL...]

FOLDER is what `make web` made. MODELs are names below tests/data/models and tests/data/gguf, or demo; none: all of them, --share: those
of SHARE. Exit status 77 (skipped) as gpu_test.py's.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_test  # noqa: E402
import web_test  # noqa: E402
from look_test import read_safetensors  # noqa: E402
from web_test import DATA, ROOT, files_of  # noqa: E402

# Prompts up to here have kernels of their own, which take a software GPU longer to compile than all others. Comparing runs them: most
# recordings are as short. Generating begins further on, with the kernels that the checks at load have made.
FEW = 16
# One of each kind of kernel, since a software GPU compiles those of each model for many seconds.
SHARE = {
    "gemma4_ple": "floats, windows, embeddings for each layer",
    "llama.Q4_0.gguf": "blocks of four bits",
    "deepseek_v3": "a latent, experts in groups",
    "qwen3_next": "the delta rule, convolutions, gates",
    "mamba2": "a scan over states",
}

# Of architectures that the program does not know by name.
GUESSED = {"arcee", "gpt_bigcode", "vaultgemma"}


def models():
    """{name: path}: every family, every mix of types, the demo. A file of floats is to a GPU what its family's folder is."""
    found = [*(DATA / "models").iterdir(), *(DATA / "gguf").glob("*.*.gguf"), ROOT / "demo"]
    return {path.name: path for path in sorted(found)}


def doppler(*arguments):
    done = subprocess.run([web_test.doppler, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"{arguments}: status {done.returncode}: {done.stderr}") from None


class Families(gpu_test.OnGpu):
    names = []

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()
        super().tearDownClass()

    def reference_of(self, path):
        """A recording by transformers, or, of a file of blocks, by the program's plain loops."""
        if path.is_dir():
            return path / "reference.safetensors"
        made = pathlib.Path(self.place.name) / f"{path.name}.safetensors"
        doppler("record", path, "--prompt-ids", ",".join(map(str, range(3, 23))), "--backend", "reference", "-o", made, "--json")
        return made

    def check(self, path):
        reference = self.reference_of(path)
        recorded = read_safetensors(reference)
        prompt, greedy = recorded["prompt_ids"][1], recorded["greedy_ids"][1]
        begun = max(0, FEW + 1 - len(prompt))
        prompt += greedy[:begun]
        family = ["--family", "guess"] if path.name in GUESSED else []
        said = doppler("run", path, *family, "--prompt-ids", ",".join(map(str, prompt)), "--max-tokens", len(greedy), "--ignore-eos",
                       "--temperature", 0, "--backend", "cpu", "--json")
        wanted = doppler("compare", path, *family, "--reference", reference, "--backend", "cpu", "--json")
        result = self.call("runFamily", {"files": files_of(path), "model": path.name, "prompt": prompt, "reference": str(reference),
                                         "family": "guess" if family else "", "options": {"max_tokens": len(said["ids"]), "temperature": 0, "ignore_eos": True}})
        self.assertNotIn("error", result)
        compared, first = result["compared"], result["compared"]["first_divergence"]
        if "-v" in sys.argv:
            print(path.name, " ".join(f"{part:.1f}" for part in result["seconds"]), result["said"], flush=True)
        self.assertEqual((result["backend"], compared["backend"]), ("gpu", "gpu"))
        self.assertTrue(compared["agrees"], first and {key: first[key] for key in ("key", "why", "error", "tolerance", "token")})
        self.assertEqual([stage["key"] for stage in compared["stages"]], [stage["key"] for stage in wanted["stages"]])
        self.assertEqual(compared["not_shared"], wanted["not_shared"])
        known = list(greedy[:begun])
        self.check_ids(known + result["ids"], known + said["ids"], recorded, max(side["decode"]["error"] for side in (compared, wanted)))

    def check_ids(self, ids, wanted, recorded, error):
        """The same, up to a place where the recording holds both tokens for as likely as the two sides' logits can tell."""
        at = next((i for i, pair in enumerate(zip(ids, wanted)) if pair[0] != pair[1]), None)
        self.assertEqual(len(ids), len(wanted))
        if at is None:
            return
        greedy = recorded["greedy_ids"][1]
        self.assertTrue(at < len(greedy) and list(greedy[:at]) == wanted[:at], f"token {at} is {ids[at]} and natively {wanted[at]}")
        key, row = ("logits_final" if "logits_final" in recorded else "logits", -1) if at == 0 else ("decode_logits", at - 1)
        (rows, width), values = recorded[key]
        logits = values[row % rows * width:][:width]
        margin = abs(logits[ids[at]] - logits[wanted[at]])
        told = f"token {at} is {ids[at]} and natively {wanted[at]}, {margin:.2g} apart in the recorded logits"
        self.assertLess(margin, 2 * error * max(map(abs, logits)), told)
        print(f"a tie: {told}", flush=True)

    def test_tokens_and_stages_are_the_programs(self):
        known = models()
        for name in self.names or known:
            with self.subTest(name):
                self.check(known[name])


if __name__ == "__main__":
    given = sys.argv[1:]
    Families.names = [*SHARE] if "--share" in given else [name for name in given[2:] if not name.startswith("-")]
    gpu_test.main([*given[:2], *(flag for flag in given[2:] if flag == "-v")])
