#!/usr/bin/env python3
"""The package and the examples of examples/web, as a page author has them: packed, installed, opened in a browser, and offline.

    python3 tests/web/examples_test.py DOPPLER FOLDER [TEST...]

FOLDER is what `make web` made. Exit status 77 (skipped) where tests/web/web_test.py would be.
"""

import functools
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import web_test  # noqa: E402
from web_test import ROOT, Browser, find  # noqa: E402

SAYS = "Once upon a time"


class Server(http.server.SimpleHTTPRequestHandler):
    """The examples at /, with the package in each as doppler-web/, without headers of its own, as static hosts are; /demo.gguf."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript", ".wasm": "application/wasm"}
    down = False
    demo = None

    def translate_path(self, path):
        path = http.server.urllib.parse.unquote(path.split("?")[0]).lstrip("/")
        if path == "demo.gguf":
            return str(Server.demo)
        example, _, file = path.partition("/doppler-web/")
        return str(web_test.folder / file if file else ROOT / "examples/web" / example)

    def do_GET(self):
        if Server.down:
            self.close_connection = True
            self.connection.close()
        elif self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def end_headers(self):
        self.send_header("Cache-Control", "no-store")  # so that nothing but the service worker keeps anything
        super().end_headers()

    def log_message(self, *_):
        pass


def expected(place):
    """What the program goes on with, greedily."""
    return web_test.native(place, "demo.gguf", [SAYS, "--raw"], "--max-tokens", "12")["text"]


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.place.name)
        Server.demo = path / "demo.gguf"
        subprocess.run([web_test.doppler, "convert", ROOT / "demo", "-o", Server.demo, "--type", "Q8_0"], check=True, capture_output=True, timeout=120)
        cls.goes_on = expected(path)

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()


class Package(Examples):
    @unittest.skipUnless(shutil.which("npm") and shutil.which("node"), "npm is not installed")
    def test_it_installs_and_runs_in_node(self):
        place = pathlib.Path(self.place.name)
        packed = subprocess.run(["npm", "pack", "--json", "--pack-destination", place], cwd=web_test.folder, check=True, capture_output=True,
                                text=True, timeout=120)
        told = json.loads(packed.stdout)[0]
        names = {file["path"] for file in told["files"]}
        self.assertEqual([name for name in names if name.startswith(("page", "report", "service_worker"))], [])
        self.assertEqual({name for name in names if name.endswith(".wasm")}, {file.name for file in web_test.folder.glob("*.wasm")})
        for name in names:  # whatever a file names beside itself is there, too
            if name.endswith(".js"):
                text = (web_test.folder / name).read_text()
                for other in re.findall(r'(?:from|import\(|URL\()\s*"\./([\w.]+)"', text):
                    self.assertIn(other, names, f"{name} needs it")
        manifest = json.loads((web_test.folder / "package.json").read_text())
        self.assertFalse({"dependencies", "peerDependencies", "scripts"} & manifest.keys())
        with tarfile.open(place / told["filename"]) as archive:
            archive.extractall(place / "node_modules", filter="data")
        (place / "node_modules/package").rename(place / "node_modules/doppler-web")
        (place / "main.mjs").write_text(f"""
          import {{ readFileSync }} from "node:fs";
          import {{ Doppler }} from "doppler-web";
          const engine = await Doppler.load(readFileSync("demo.gguf"), {{ threads: 1 }});
          console.log((await engine.generate({json.dumps(SAYS)}, {{ max_tokens: 12, temperature: 0 }}).result()).text);
          engine.close();""")
        ran = subprocess.run(["node", "main.mjs"], cwd=place, capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.stdout.rstrip("\n"), self.goes_on, ran.stderr)


@unittest.skipUnless(find(), "there is no browser")
class Pages(Examples):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory="/"))
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.address = f"http://127.0.0.1:{cls.server.server_port}"
        cls.browser = Browser(find())

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.shutdown()
        cls.server.server_close()
        super().tearDownClass()

    def until(self, condition):
        return self.browser.run(f"""new Promise((done) => {{
          const look = () => {{ const found = {condition}; if (found) {{ watch.disconnect(); done(found); }} }};
          const watch = new MutationObserver(look);
          watch.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
          look();
        }})""")

    def ready(self, page):
        """What the page says once it is ready; it may load itself once more before."""
        asks = "/^Ready/.test(document.getElementById('status')?.textContent) && document.getElementById('status').textContent"
        opened = False
        for _ in range(10):
            try:
                if not opened:
                    opened = True
                    self.browser.open(page, 420)
                return self.until(asks)
            except RuntimeError as error:
                if "navigated" not in str(error) and "context was destroyed" not in str(error):
                    raise
        raise AssertionError("The page loads itself again and again.")

    def test_a_script_tag_is_enough(self):
        browser = self.browser
        browser.open(f"{self.address}/script-tag/index.html", 420)
        node = browser.ask("Runtime.evaluate", expression="document.getElementById('file')")["result"]["objectId"]
        browser.ask("DOM.setFileInputFiles", objectId=node, files=[str(Server.demo)])
        browser.run("document.getElementById('ask').requestSubmit()")
        text = self.until("document.getElementById('answer').textContent.length > 40 && document.getElementById('answer').textContent")
        self.assertTrue(text.startswith(SAYS), text)
        self.assertEqual(browser.complaints(), [])

    def test_a_service_worker_gives_threads_and_keeps_the_page(self):
        page = f"{self.address}/service-worker/index.html"
        self.assertEqual(self.ready(page), "Ready, with threads.")
        generate = f"""(async () => {{
          const engine = await load(new Blob([await (await fetch(URL_OF_MODEL)).arrayBuffer()]), {{ threads: 2 }});
          const {{ text }} = await engine.generate({json.dumps(SAYS)}, {{ max_tokens: 12, temperature: 0 }}).result();
          engine.close();
          return [text, engine.info.notes.join(" ")];
        }})()""".replace("URL_OF_MODEL", json.dumps(f"{self.address}/demo.gguf"))
        text, notes = self.browser.run(generate)
        self.assertEqual(text, self.goes_on)
        self.assertIn("2 threads", notes)
        Server.down = True
        try:
            self.assertEqual(self.ready(page), "Ready, with threads.")
            self.assertEqual(self.browser.run("typeof load"), "function")
        finally:
            Server.down = False


if __name__ == "__main__":
    web_test.doppler, web_test.folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    web_test.skip_unless_built()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
