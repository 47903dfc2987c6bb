#!/usr/bin/env python3
"""The gpu backend in a headless Chromium, on its software GPU: the native program's tokens, and errors that are never missed.

    python3 tests/web/gpu_test.py DOPPLER FOLDER [TEST...]

FOLDER is what `make web` made. Exit status 77 (skipped) without it, where sources are newer, or where the browser has no WebGPU.
"""

import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import web_test  # noqa: E402
from web_test import DATA, ROOT, Browser, Site, files_of, find, native  # noqa: E402

# Without these a Chromium on a machine without a GPU has no adapter at all.
FLAGS = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"]
PROMPT = [3, 14, 15, 9, 26, 53, 58, 97]
TOKENS = 12
# Floats, and blocks of four bits. Each load compiles and checks its kernels, many seconds on a software GPU.
MODELS = [DATA / "models/llama", DATA / "gguf/llama.Q4_0.gguf"]


class OnGpu(unittest.TestCase):
    """A browser with a GPU, and a page in it, for all the tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.browser = Browser(find(), flags=FLAGS)
        cls.browser.open(f"http://127.0.0.1:{cls.server.server_port}/tests/page.html", 1000)
        if not cls.browser.run("navigator.gpu?.requestAdapter().then(Boolean) ?? false"):
            raise unittest.SkipTest("the browser has no WebGPU")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.shutdown()
        cls.server.server_close()

    def call(self, function, task):
        return self.browser.run(f"""Promise.all([import("/web/index.js"), import("/tests/gpu.js")]).then(
            ([api, tests]) => tests.{function}(api, {json.dumps(task)}))""")


class Gpu(OnGpu):
    def generate(self, path, prompt=PROMPT, load=None, **options):
        task = {"files": files_of(path), "model": path.name, "prompt": prompt, "load": {"backend": "gpu", **(load or {})},
                "options": {"temperature": 0, "max_tokens": TOKENS, **options}}
        return self.call("runJob", task)

    def test_models_generate_the_native_tokens(self):
        # Those of blocks are the program's on a GPU: a processor rounds otherwise, which decides where random weights leave two tokens as
        # likely (families_gpu_test.py compares these, too, and looks whether a token that differs was such a tie).
        for path, backend in zip(MODELS, ["cpu", "gpu"], strict=True):
            with self.subTest(path.name):
                ids = ",".join(map(str, PROMPT))
                said = native(path.parent, path.name, ["--prompt-ids", ids], "--max-tokens", str(TOKENS), "--ignore-eos", backend=backend)
                result = self.generate(path, ignore_eos=True)
                self.assertEqual(result.get("ids", result), said.get("ids", said))
                self.assertEqual(result["backend"], "gpu")

    def test_the_demo_says_the_same(self):
        said = native(ROOT, "demo", ["The color of the sky is"], "--raw", "--max-tokens", "40")
        result = self.generate(ROOT / "demo", "The color of the sky is", max_tokens=40)
        self.assertEqual(result.get("ids", result), said["ids"])
        self.assertIn("swiftshader", result["device"])
        self.assertTrue(any("software" in note for note in result["notes"]), result["notes"])

    def test_checks_of_kernels_are_kept(self):
        self.browser.run('caches.delete("doppler-kept")')
        times, said = [], []
        for _ in range(2):
            begin = time.monotonic()
            said.append(self.generate(MODELS[0], load={"context": 64}, max_tokens=2))
            times.append(time.monotonic() - begin)
            files = self.browser.run('caches.open("doppler-kept").then((cache) => cache.keys()).then((keys) => keys.map(({ url }) => url))')
            self.assertTrue(any(url.endswith(".json") for url in files), files)
        self.assertEqual(said[0].get("ids", said[0]), said[1].get("ids", said[1]))
        if "-v" in sys.argv:
            print(times)

    def test_a_software_gpu_is_not_chosen_by_itself(self):
        result = self.generate(MODELS[0], load={"backend": "auto"}, max_tokens=1)
        self.assertEqual(result.get("backend", result), "cpu")
        self.assertTrue(any("not on a GPU" in note for note in result["notes"]), result["notes"])

    def test_weights_pass_through_memory_in_pieces(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([web_test.doppler, "synth", "gemma3-270m", "m.gguf", "--layers", "1", "--vocab", "50000"], cwd=folder,
                           check=True, capture_output=True, timeout=120)
            result = self.generate(pathlib.Path(folder) / "m.gguf", [3, 4], {"context": 64}, max_tokens=2)
        memory = result.get("memory", result)
        self.assertGreater(memory["weights"], 32e6)
        # The module itself, texts, 16 MB of codes, and their scales.
        self.assertLess(memory["module"], 32e6)

    def test_it_is_looked_into_and_compared(self):
        model = MODELS[0]
        said = self.call("runLook", {"files": files_of(model), "model": model.name, "prompt": PROMPT, "reference": str(model / "reference.safetensors"),
                                     "request": {"stages": ["q_rope", "layer_out", "logits"]}})
        self.assertGreater(len(said["shares"]), 4)
        for stage, layer, same_size, share in said["shares"]:
            self.assertTrue(same_size)
            self.assertLess(share, 1e-4, f"{stage} of layer {layer}")  # float32 on both sides, sums in another order
        self.assertEqual((said["agrees"], said["backend"]), (True, "gpu"))

    def test_what_fails_is_said(self):
        said = self.call("runFailures", {"files": files_of(MODELS[0]), "model": MODELS[0].name})
        wanted = {
            "no_adapter": ("not_found", "No GPU adapter is found"),
            "no_device": ("unsupported", "not today"),
            "no_pipeline": ("unsupported", "not today"),
            "no_memory": ("limit", "has no memory left"),
            "thrown": ("limit", "has no memory for the buffer"),
            "no_result": ("internal", "does not give its results back"),
            "late_error": ("internal", "WebGPU reports: wrong"),
            "lost": ("lost", "The GPU is lost: "),
        }
        for name, (code, text) in wanted.items():
            with self.subTest(name):
                self.assertEqual(said[name][0], code, said[name])
                self.assertIn(text, said[name][1])
        self.assertEqual(said["no_adapter_auto"][0], "cpu")
        self.assertIn("not on a GPU", " ".join(said["no_adapter_auto"]))
        self.assertEqual(said["after"], said["before"])
        self.assertEqual(said["after_loss"], said["before"])
        self.assertTrue(any("loaded again" in note and "The GPU is lost" in note for note in said["notes"]), said["notes"])


def main(arguments):
    web_test.doppler, web_test.folder = (pathlib.Path(argument).resolve() for argument in arguments[:2])
    web_test.skip_unless_built()
    if not find():
        print("There is no browser (scripts/install_deps.sh browser).")
        sys.exit(77)
    done = unittest.main(argv=[sys.argv[0], *arguments[2:]], exit=False).result
    sys.exit(77 if done.skipped and done.testsRun == 0 else not done.wasSuccessful())


if __name__ == "__main__":
    main(sys.argv[1:])
