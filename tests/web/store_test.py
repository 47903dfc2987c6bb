#!/usr/bin/env python3
"""The store in a headless browser: downloads from servers that cut, lie and change, kills, tabs, quotas, what is kept.

    python3 tests/web/store_test.py FOLDER [TEST...]

FOLDER is what `make web` made. Exit status 77 (skipped) without it or without a browser.
"""

import hashlib
import http.server
import json
import pathlib
import random
import struct
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "browser"))
from browser import Browser, find  # noqa: E402

folder = None
GGUF = ROOT / "tests/data/gguf/llama.Q4_0.gguf"
FAMILY = ROOT / "tests/data/models/llama"
SIZE = 700_001  # of the server's own file: eleven pieces
BYTES = random.Random(17).randbytes(SIZE)
OTHER = random.Random(18).randbytes(SIZE)
TYPES = {".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html", ".json": "application/json"}
COMMIT = "c" * 40


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def large_gguf():
    """The start of a GGUF file of Llama 3.1 8B's shape in Q8_0, and how large the whole is; behind it come weights."""
    hidden, ffn, kv, layers, vocab = 4096, 14336, 1024, 32, 128256
    text = lambda value: struct.pack("<Q", len(value)) + value.encode()  # noqa: E731
    keys = {"general.architecture": "llama", "llama.block_count": layers, "llama.context_length": 4096, "llama.embedding_length": hidden,
            "llama.feed_forward_length": ffn, "llama.attention.head_count": 32, "llama.attention.head_count_kv": 8,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 5e5, "tokenizer.ggml.eos_token_id": 2}
    kinds = {str: (8, text), int: (4, lambda value: struct.pack("<I", value)), float: (6, lambda value: struct.pack("<f", value))}
    pairs = b"".join(text(key) + struct.pack("<I", kinds[type(value)][0]) + kinds[type(value)][1](value) for key, value in keys.items())
    shapes = {"token_embd": [hidden, vocab], "output": [hidden, vocab], "output_norm": [hidden]}
    for i in range(layers):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in {
            "attn_norm": [hidden], "attn_q": [hidden, hidden], "attn_k": [hidden, kv], "attn_v": [hidden, kv], "attn_output": [hidden, hidden],
            "ffn_norm": [hidden], "ffn_gate": [hidden, ffn], "ffn_up": [hidden, ffn], "ffn_down": [ffn, hidden]}.items()}
    infos, offset = b"", 0
    for name, shape in shapes.items():
        dtype, size = (0, 4 * shape[0]) if len(shape) == 1 else (8, shape[0] * shape[1] // 32 * 34)
        infos += text(f"{name}.weight") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, dtype, offset)
        offset += -(-size // 32) * 32
    start = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + pairs + infos
    start += bytes(-len(start) % 32)
    return start, len(start) + offset


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.log, self.count, self.lock, self.gate = [], {}, threading.Lock(), threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):  # the browser hangs up when it has what it wants
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    """/web/ and /tests/ for the page; /f/BEHAVIOUR/NAME for a file; /m/ for models; /hub/ for a Hub."""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET(head=True)

    def do_GET(self, head=False):
        path = self.path.split("?")[0]
        parts = path.split("/")
        asked = self.headers.get("Range")
        with self.server.lock:
            self.server.count[path] = n = self.server.count.get(path, 0) + 1
            if not head:
                self.server.log.append((path, asked))
        if parts[1] in ("web", "tests"):
            base = folder if parts[1] == "web" else HERE
            file = base / "/".join(parts[2:])
            return self.give(200, file.read_bytes(), {"Content-Type": TYPES.get(file.suffix, "text/plain")}, head)
        if parts[1] == "f":
            return getattr(self, parts[2])(n, asked, head)
        if parts[1] == "hub":
            return self.hub("/".join(parts[2:]), asked, head)
        if parts[1] == "package":
            file = self.package().get("/".join(parts[3:]))
            return self.give(404, b"", {}, head) if file is None else self.ranges(file, asked, head)
        if parts[1] == "large":
            return self.large(asked, head)
        if parts[1] == "m":
            file = (ROOT / "tests/data" / "/".join(parts[2:]))
            return self.ranges(file.read_bytes(), asked, head) if file.is_file() else self.give(404, b"", {}, head)
        return self.give(404, b"", {}, head)

    def give(self, status, data, headers, head=False, cut=None, length=None):
        self.send_response(status)
        for name, value in {"Content-Length": len(data) if length is None else length, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if not head:
            self.wfile.write(data if cut is None else data[:cut])

    def ranges(self, data, asked, head=False, cut=None, etag='"one"', total=None, start=0, more=0):
        headers = {"ETag": etag} if etag else {}
        if asked is None:
            return self.give(200, data, headers, head, cut)
        begin, last = (int(x) for x in asked.removeprefix("bytes=").split("-"))
        if begin >= len(data):
            return self.give(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        piece = data[begin:last + 1 + more]
        headers["Content-Range"] = f"bytes {begin + start}-{begin + start + len(piece) - 1}/{total or len(data)}"
        return self.give(206, piece, headers, head, cut)

    # How servers behave: the number of requests for this address so far, its range, whether only the head is wanted.
    def plain(self, n, asked, head):
        self.ranges(BYTES, asked, head)

    def cuts(self, n, asked, head):
        self.ranges(BYTES, asked, head, cut=9973)

    def cuts_at_once(self, n, asked, head):
        self.ranges(BYTES, asked, head, cut=0)

    def without_ranges(self, n, asked, head):
        self.give(200, BYTES, {"ETag": '"one"'}, head)

    def without_ranges_cut(self, n, asked, head):
        self.give(200, BYTES, {"ETag": '"one"'}, head, cut=min(SIZE, 250_001 * n))

    def without_ranges_or_length(self, n, asked, head):
        self.send_response(200)
        self.end_headers()
        if not head:
            self.wfile.write(BYTES)

    def gives_more(self, n, asked, head):
        self.ranges(BYTES, asked, head, more=5000)

    def says_more(self, n, asked, head):
        self.ranges(BYTES, asked, head, total=SIZE + 1000)

    def says_less(self, n, asked, head):
        self.ranges(BYTES, asked, head, total=SIZE - 1000)

    def length_lies(self, n, asked, head):
        self.give(200, BYTES, {}, head, length=SIZE + 1000)

    def begins_elsewhere(self, n, asked, head):
        self.ranges(BYTES, asked, head, start=10 if n in (2, 4) else 0)

    def changes(self, n, asked, head):
        self.ranges(BYTES if n <= 5 else OTHER, asked, head, etag='"one"' if n <= 5 else '"two"')

    def shrinks(self, n, asked, head):
        self.ranges(BYTES if n <= 5 else OTHER[:200_000], asked, head, etag=None)

    def keeps_changing(self, n, asked, head):
        self.ranges(BYTES, asked, head, etag=f'"{n}"')

    def flips(self, n, asked, head):
        data = bytearray(BYTES)
        data[SIZE // 2] ^= 1
        self.ranges(bytes(data), asked, head)

    def is_busy(self, n, asked, head):
        self.give(503, b"", {}, head) if n in (1, 3, 5, 6) else self.ranges(BYTES, asked, head)

    def stalls(self, n, asked, head):
        if n % 4 != 2:
            return self.ranges(BYTES, asked, head)
        self.send_response(206)
        self.send_header("Content-Length", 65536)
        self.end_headers()
        self.wfile.write(b"x" * 0)
        self.wfile.flush()
        self.server.gate.wait(20)  # until the test ends

    def is_empty(self, n, asked, head):
        self.ranges(b"", asked, head)

    def refuses(self, n, asked, head):
        self.give(403, b"", {}, head)

    def is_slow(self, n, asked, head):
        """Gives the first pieces, and then nothing until the gate opens."""
        if n > 6:
            self.server.gate.wait(20)
        self.ranges(BYTES, asked, head)

    def large(self, asked, head):
        start, size = large_gguf()
        if asked is None:
            return self.give(200, b"", {"Content-Length": size}, True)
        begin, last = (int(x) for x in asked.removeprefix("bytes=").split("-"))
        piece = start[begin:last + 1]
        self.give(206, piece + bytes(last + 1 - begin - len(piece)), {"Content-Range": f"bytes {begin}-{last}/{size}"})

    def package(self):
        """An RDRR package's files; of the one named wrong, a shard that is another than the manifest says."""
        shards = {f"shard_{i:05}.bin": BYTES[i * 300_000:(i + 1) * 300_000] for i in range(3)}
        files = {"tokenizer.json": b"{}"}
        entry = lambda name, data: {"filename": name, "size": len(data), "hash": sha256(data)}  # noqa: E731
        manifest = {"hashAlgorithm": "sha256", "tensorsFile": "tensors.json", "shards": [entry(*shard) for shard in shards.items()],
                    "files": [entry(*file) for file in files.items()]}
        if "/wrong/" in self.path:
            shards["shard_00001.bin"] = OTHER[:300_000]
        return {**shards, **files, "manifest.json": json.dumps(manifest).encode(), "tensors.json": b"{}"}

    def hub(self, path, asked, head):
        files = {"org/gguf": {"README.md": b"x", "a.Q8_0.gguf": GGUF.read_bytes(), "a.Q4_0.gguf": GGUF.read_bytes(), "mmproj-a.gguf": b"x"},
                 "org/folder": {file.name: file.read_bytes() for file in FAMILY.iterdir() if file.name != "reference.safetensors"},
                 "org/none": {"pytorch_model.bin": b"x"}}
        if path.startswith("api/models/"):
            _, _, org, name, _, revision = path.split("/")
            if f"{org}/{name}" not in files or revision != "main":
                return self.give(404, b"", {}, head)
            siblings = [{"rfilename": name, "size": len(data), **({"lfs": {"sha256": sha256(data), "size": len(data)}}
                         if name.endswith(("gguf", "safetensors")) else {})} for name, data in files[f"{org}/{name}"].items()]
            return self.give(200, json.dumps({"sha": COMMIT, "siblings": siblings}).encode(), {"Content-Type": "application/json"})
        org, name, _, commit, file = path.split("/")
        return self.ranges(files[f"{org}/{name}"][file], asked, head) if commit == COMMIT else self.give(404, b"", {}, head)


class Pages(unittest.TestCase):
    """One browser for all tests, one folder for what it keeps."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.start()

    @classmethod
    def start(cls):
        # Else estimate() says 10 GB whatever there is, so that pages cannot tell browsers apart.
        cls.browser = Browser(find(), cls.place.name, ["--disable-features=StaticStorageQuota"])
        cls.open()

    @classmethod
    def open(cls):
        cls.browser.open(f"{cls.server.address}/tests/store.html", 1000)

    @classmethod
    def tearDownClass(cls):
        cls.server.gate.set()
        cls.browser.close()
        cls.server.shutdown()
        cls.server.server_close()
        cls.place.cleanup()

    def setUp(self):
        self.server.log.clear()
        self.server.count.clear()
        self.server.gate.clear()

    def run_js(self, name, *given):
        return self.browser.run(f"test({', '.join(map(json.dumps, [name, *given]))})")

    def asked(self, path):
        """Bytes of each range that was asked for."""
        ranges = [asked.removeprefix("bytes=").split("-") for at, asked in list(self.server.log) if at == path and asked]
        return [(int(begin), int(last) + 1) for begin, last in ranges]


class Downloads(Pages):
    WHOLE = ["ok", sha256(BYTES)]

    def fetch(self, behaviour, file=None):
        return self.run_js("fetchOne", f"/f/{behaviour}/x", file or {})

    def test_hashes_go_on_from_what_was_saved(self):
        for length in [0, 1, 55, 56, 63, 64, 65, 119, 128, 1000]:
            text = "a" * length
            self.assertEqual(self.run_js("hash", text, []), sha256(text.encode()), length)
        text = "".join(chr(97 + i % 26) for i in range(5000))
        self.assertEqual(self.run_js("hash", text, [64, 100, 128, 1280, 1281, 4096]), sha256(text.encode()))

    def test_ranges_join_and_tell_their_gaps(self):
        self.assertEqual(self.run_js("ranges", []), [[], 0, 0, [0, 50]])
        self.assertEqual(self.run_js("ranges", [[100, 200], [0, 50], [50, 60], [300, 1000]]),
                         [[[0, 60], [100, 200], [300, 1000]], 60, 860, [60, 100]])
        self.assertEqual(self.run_js("ranges", [[5, 10], [0, 1000], [7, 7]]), [[[0, 1000]], 1000, 1000, None])

    def test_several_ranges_at_once_make_the_file(self):
        self.assertEqual(self.fetch("plain"), self.WHOLE)
        pieces = self.asked("/f/plain/x")
        self.assertEqual(len(pieces), 11)
        self.assertEqual(sum(end - begin for begin, end in pieces if end < SIZE), SIZE // 65536 * 65536)

    def test_servers_that_misbehave_give_the_file_all_the_same(self):
        for behaviour in ["cuts", "without_ranges", "without_ranges_cut", "without_ranges_or_length", "gives_more", "begins_elsewhere",
                          "is_busy", "stalls"]:
            self.assertEqual(self.fetch(behaviour), self.WHOLE, behaviour)
        self.assertEqual(self.fetch("is_empty"), ["ok", sha256(b"")])

    def test_what_cannot_be_had_is_said(self):
        cases = {"cuts_at_once": ("io", "The connection was cut"), "refuses": ("io", "refuses access (403)"),
                 "keeps_changing": ("io", "changes while it is downloaded"), "length_lies": ("io", "The connection was cut"),
                 "says_more": ("io", "")}
        for behaviour, (code, words) in cases.items():
            (got, message), _ = self.fetch(behaviour)
            self.assertEqual(got, code, message)
            self.assertIn(words, message)
        (code, message), _ = self.run_js("fetchOne", "/nowhere", {})
        self.assertEqual(code, "not_found", message)

    def test_a_file_that_changes_is_begun_anew(self):
        self.assertEqual(self.fetch("changes"), ["ok", sha256(OTHER)])
        self.assertEqual(self.fetch("shrinks"), ["ok", sha256(OTHER[:200_000])])

    def test_a_flipped_byte_and_a_wrong_size_are_found(self):
        (code, message), left = self.fetch("flips", {"sha256": sha256(BYTES)})
        self.assertEqual((code, left), ("corrupt", sha256(b"")), message)
        self.assertIn(sha256(BYTES), message)
        self.assertEqual(self.fetch("plain", {"sha256": sha256(BYTES), "size": SIZE}), self.WHOLE)
        for behaviour in ["plain", "says_less", "without_ranges"]:
            (code, message), _ = self.fetch(behaviour, {"size": SIZE - 1 if behaviour != "says_less" else SIZE})
            self.assertEqual(code, "mismatch", f"{behaviour}: {message}")

    def test_a_kill_anywhere_costs_little(self):
        for every, behaviour in [(1, "plain"), (33_333, "plain"), (100_000, "cuts"), (250_000, "without_ranges")]:
            self.server.log.clear()
            kills, left = self.run_js("killed", f"/f/{behaviour}/x?{every}", every, {"sha256": sha256(BYTES)})
            self.assertEqual(left, sha256(BYTES), f"{behaviour} every {every}: {left}")
            if behaviour == "plain":
                self.assertGreaterEqual(kills, 2)
            if behaviour == "plain" and every > 1:
                asked = sum(min(end, SIZE) - begin for begin, end in self.asked("/f/plain/x"))
                # What is asked for again: at most the rest of the three pieces under way.
                self.assertLess(asked, SIZE + (kills + 1) * 4 * 65536)


class Names(Pages):
    def test_names_of_the_hub(self):
        names = ["hf:org/name", "hf:org/name:Q4_0", "hf:org/name@v1:a/b.gguf", "https://huggingface.co/org/name",
                 "https://huggingface.co/org/name/tree/main", "https://hf.co/org/name/blob/v2/a%20b.gguf",
                 "https://huggingface.co/org/name/resolve/main/x/y.gguf?download=true", "https://example.org/org/name", "org/name",
                 "https://huggingface.co/org", "https://huggingface.co/org/name/discussions/1"]
        main = {"repo": "org/name", "revision": "main"}
        self.assertEqual(self.run_js("names", names), [
            main, {**main, "pick": "Q4_0"}, {"repo": "org/name", "revision": "v1", "pick": "a/b.gguf"}, main, main,
            {"repo": "org/name", "revision": "v2", "pick": "a b.gguf"}, {**main, "pick": "x/y.gguf"}, None, None, "usage", "usage"])

    def test_the_hub_says_sizes_and_hashes(self):
        hub = f"{self.server.address}/hub"
        one = ["a.Q4_0.gguf", GGUF.stat().st_size, sha256(GGUF.read_bytes()), f"{hub}/org/gguf/resolve/{COMMIT}/a.Q4_0.gguf"]
        self.assertEqual(self.run_js("describe", "hf:org/gguf", hub), ["org/gguf:a.Q4_0.gguf", "hf:org/gguf@main:a.Q4_0.gguf", [one]])
        self.assertEqual(self.run_js("describe", "hf:org/gguf:q8_0", hub)[2][0][0], "a.Q8_0.gguf")
        self.assertEqual(self.run_js("describe", "hf:org/gguf:a.Q4_0.gguf", hub)[2], [one])
        name, source, files = self.run_js("describe", "hf:org/folder", hub)
        self.assertEqual([name, source], ["org/folder", "hf:org/folder@main"])
        self.assertEqual({file[0] for file in files}, {file.name for file in FAMILY.iterdir() if file.name != "reference.safetensors"})
        for wrong, words in [("hf:org/none", "pytorch_model.bin"), ("hf:org/gguf:Q3_K_M", "no .gguf file that Q3_K_M names"),
                             ("hf:org/nobody", "no model org/nobody"), ("hf:org/gguf@v9", "(v9)")]:
            code, message = self.run_js("describe", wrong, hub)
            self.assertEqual(code, "not_found", message)
            self.assertIn(words, message)

    def test_addresses_of_files_and_folders(self):
        at = f"{self.server.address}/m"
        _, _, [file] = self.run_js("describe", f"{at}/gguf/llama.Q4_0.gguf", None)
        self.assertEqual(file[:3], ["llama.Q4_0.gguf", GGUF.stat().st_size, None])
        _, _, files = self.run_js("describe", f"{at}/models/llama", None)
        self.assertLessEqual({"config.json", "model.safetensors"}, {file[0] for file in files})
        self.assertEqual(self.run_js("describe", f"{at}/gguf/", None)[0], "not_found")


class Kept(Pages):
    SOURCE = "/f/plain/model.gguf"

    def setUp(self):
        super().setUp()
        self.open()
        self.run_js("clear")

    def test_a_model_is_kept_listed_and_removed(self):
        added = self.run_js("add", self.SOURCE)
        entry = added["entry"]
        self.assertTrue(entry["complete"])
        self.assertEqual(entry["bytes"], SIZE)
        self.assertEqual([[f["path"], f["size"], f["sha256"]] for f in entry["files"]], [["model.gguf", SIZE, sha256(BYTES)]])
        self.assertEqual((added["last"]["bytes"], added["last"]["total"]), (SIZE, SIZE))
        self.assertEqual(self.run_js("list"), [entry])
        self.server.count.clear()
        self.assertEqual(self.run_js("add", self.SOURCE)["entry"], entry)
        self.assertNotIn(self.SOURCE, self.server.count, "what is here needs no server")
        self.assertEqual(self.run_js("remove", entry["key"]), "no error")
        self.assertEqual(self.run_js("list"), [])
        self.assertEqual(self.run_js("remove", entry["key"])[0], "not_found")

    def test_a_plan_comes_before_the_first_byte(self):
        plan = self.run_js("plan", self.SOURCE)
        self.assertLess(sum(end - begin for begin, end in self.asked(self.SOURCE)), SIZE + 1, "at most its start, to describe it")
        self.assertEqual([plan["bytes"], plan["missing"], plan["complete"]], [SIZE, SIZE, False])
        self.assertGreater(plan["memory"], SIZE)
        self.assertGreater(plan["storage"]["quota"], SIZE)
        self.run_js("add", self.SOURCE)
        plan = self.run_js("plan", self.SOURCE)
        self.assertEqual([plan["missing"], plan["complete"]], [0, True])

    def test_a_plan_is_the_engines(self):
        path = "/m/gguf/llama.Q4_0.gguf"
        plan = self.run_js("plan", path)
        size = GGUF.stat().st_size
        self.assertEqual([plan["info"]["family"], plan["runs"], plan["missing"]], ["llama", True, size])
        memory = plan["info"]["memory"]
        self.assertGreater(plan["memory"], memory["weights"] + memory["cache"] + memory["activations"])
        self.run_js("add", path)
        self.assertEqual(self.run_js("plan", path)["info"]["memory"]["weights"], memory["weights"])
        plan = self.run_js("plan", "/m/models/llama")
        self.assertEqual([plan["info"]["family"], plan["runs"]], ["llama", True])
        # What no engine can run is said before it is downloaded.
        self.assertNotIn("info", self.run_js("plan", self.SOURCE))
        plan = self.run_js("plan", self.SOURCE)
        self.assertFalse(plan["runs"])
        self.assertIn("GGUF", plan["against"][0])
        self.assertEqual(self.run_js("list")[0]["name"], "llama.Q4_0.gguf")

    def test_of_a_large_file_the_plan_reads_the_description_only(self):
        plan = self.run_js("plan", "/large/model.gguf")
        self.assertEqual([plan["info"]["family"], plan["runs"]], ["llama", False])
        self.assertGreater(plan["missing"], 5e9)
        self.assertTrue(any("memory" in why for why in plan["against"]), plan["against"])
        self.assertLess(sum(end - begin for begin, end in self.asked("/large/model.gguf")), 4 << 20)

    def test_a_tab_that_is_closed_loses_little(self):
        for bytes_ in [1, 100_000, 400_000, SIZE - 1]:
            self.run_js("clear")
            self.server.log.clear()
            got = self.run_js("addAndDie", self.SOURCE, bytes_)
            before = len(self.asked(self.SOURCE))
            added = self.run_js("add", self.SOURCE)
            self.assertEqual(added["entry"]["files"][0]["sha256"], sha256(BYTES))
            again = sum(min(end, SIZE) - begin for begin, end in self.asked(self.SOURCE)[before:])
            # Besides what was under way, the 16 kB since the last note.
            self.assertLess(again, SIZE - got + 4 * 65536 + 16384, bytes_)

    def test_a_browser_that_is_killed_loses_little(self):
        slow = "/f/is_slow/model.gguf"
        self.assertGreater(self.run_js("begin", slow), 300_000)
        self.browser.kill()
        self.server.gate.set()
        type(self).start()
        self.server.log.clear()
        [entry] = self.run_js("list")
        self.assertFalse(entry["complete"])
        self.assertGreater(entry["bytes"], 200_000)
        self.assertEqual(self.run_js("add", slow)["entry"]["files"][0]["sha256"], sha256(BYTES))
        self.assertLess(sum(min(end, SIZE) - begin for begin, end in self.asked(slow)), SIZE - 100_000)

    def test_an_abort_keeps_what_came(self):
        self.assertEqual(self.run_js("abort", self.SOURCE, 300_000), "AbortError")
        [entry] = self.run_js("list")
        self.assertGreaterEqual(entry["bytes"], 300_000)
        self.assertFalse(entry["complete"])
        self.assertTrue(self.run_js("add", self.SOURCE)["entry"]["complete"])

    def test_two_tabs_download_once(self):
        self.assertEqual(self.run_js("addTwice", self.SOURCE), [True, True])
        self.assertEqual(len(self.asked(self.SOURCE)), 11)

    def test_what_the_browser_removed_is_downloaded_again(self):
        entry = self.run_js("add", self.SOURCE)["entry"]
        for lost in ["0", "0.journal", "model.json"]:
            self.run_js("lose", entry["key"], lost)
            self.assertNotEqual(self.run_js("list"), [entry])
            self.assertTrue(self.run_js("add", self.SOURCE)["entry"]["complete"], lost)
        self.run_js("cut", entry["key"], "0", 300_000)
        [cut] = self.run_js("list")
        self.assertEqual((cut["complete"], cut["bytes"]), (False, 300_000))
        self.assertEqual(self.run_js("add", self.SOURCE)["entry"]["files"], entry["files"])
        self.run_js("cut", entry["key"], "0.journal", 100)
        self.assertEqual(self.run_js("add", self.SOURCE)["entry"]["files"], entry["files"])
        self.run_js("clear")
        self.assertEqual(self.run_js("list"), [])
        self.assertEqual(self.run_js("add", self.SOURCE)["entry"]["files"], entry["files"])

    def test_a_full_disk_is_said_before_and_while(self):
        origin = {"origin": self.server.address}
        self.browser.ask("Storage.overrideQuotaForOrigin", **origin, quotaSize=500_000)
        try:
            plan = self.run_js("plan", self.SOURCE)
            self.assertFalse(plan["runs"])
            self.assertIn("this site", plan["against"][-1])
            self.server.log.clear()
            code, message = self.run_js("add", self.SOURCE)
            self.assertEqual(code, "limit", message)
            self.assertEqual(self.asked(self.SOURCE), [], "not a byte is downloaded")
            # A server that does not say how large the file is.
            code, message = self.run_js("add", "/f/without_ranges_or_length/model.gguf")
            self.assertEqual(code, "limit", message)
        finally:
            self.browser.ask("Storage.overrideQuotaForOrigin", **origin)
        self.assertTrue(self.run_js("add", self.SOURCE)["entry"]["complete"])

    def test_a_dropped_file_is_kept(self):
        entry = self.run_js("dropped", self.SOURCE, "mine.gguf")["entry"]
        self.assertEqual([[f["path"], f["sha256"]] for f in entry["files"]], [["mine.gguf", sha256(BYTES)]])
        self.assertTrue(entry["complete"])

    def test_a_package_comes_with_the_hashes_of_its_manifest(self):
        entry = self.run_js("add", "/package/right/")["entry"]
        self.assertEqual([file["path"] for file in entry["files"]],
                         ["manifest.json", "shard_00000.bin", "shard_00001.bin", "shard_00002.bin", "tokenizer.json", "tensors.json"])
        self.assertTrue(entry["complete"])
        code, message = self.run_js("add", "/package/wrong/")
        self.assertEqual(code, "corrupt", message)
        self.assertIn("shard_00001.bin", message)

    def test_what_is_not_kept_is_fetched_each_time(self):
        made = self.run_js("generate", "/m/gguf/llama.Q4_0.gguf", {"keep": False})
        self.assertEqual([len(ids) for ids in made["ids"]], [12])
        self.assertEqual(self.run_js("list"), [])

    def test_engines_read_what_is_kept(self):
        for path in ["/m/gguf/llama.Q4_0.gguf", "/m/models/llama"]:
            self.run_js("clear")
            both = self.run_js("generate", path, {}, 2)
            self.assertEqual(both["ids"][0], both["ids"][1])
            self.assertEqual(both["removing"][0], "io", "not while it is read")
            self.server.log.clear()
            self.assertEqual(self.run_js("generate", path, {})["ids"][0], both["ids"][0])
            self.assertEqual([at for at, _ in self.server.log if at.startswith("/m/") and "config" not in at and "index" not in at], [])
            [entry] = self.run_js("list")
            self.assertEqual(self.run_js("remove", entry["key"]), "no error")


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]).resolve()
    if not (folder / "store.js").exists():
        print(f"There is no {folder}/store.js. Run make web.")
        sys.exit(77)
    if not find():
        print("There is no browser (scripts/install_deps.sh browser).")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
