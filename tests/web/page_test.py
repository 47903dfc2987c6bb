#!/usr/bin/env python3
"""The page in a headless browser: opening, talking, looking inside, doctor, comparison, offline, and its policy.

    python3 tests/web/page_test.py DOPPLER FOLDER [TEST...]
    python3 tests/web/page_test.py DOPPLER FOLDER --pictures FOLDER   what it looks like, for people

Exit status 77 (skipped) without the built FOLDER, where sources are newer, or without a browser.
"""

import http.server
import json
import pathlib
import re
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import look_test  # noqa: E402
import web_test  # noqa: E402
from web_test import DATA, ROOT, Browser, Site, files_of, find  # noqa: E402

UNTIL = """const until = (holds) => new Promise((done) => {
  const look = () => holds() && (watch.disconnect(), done());
  const watch = new MutationObserver(look);
  watch.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
  look();
});"""
TRUTH = str(ROOT / "demo/reference.safetensors")


class Page:
    """The page, driven as a person would."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address

    def open(self, width=1000, dark=False, built=None):
        self.browser.open(f"{self.address}/{f'file{built}' if built else 'web'}/index.html", width, dark=dark)

    def run(self, text, unsafe=True):
        """`unsafe`: what the debugger runs may call eval(), whatever the page's policy says."""
        return self.browser.run(f"(async () => {{ {UNTIL} {text} }})()", allowUnsafeEvalBlockedByCSP=unsafe)

    def choose(self, name, files):
        node = self.browser.ask("Runtime.evaluate", expression=f"document.getElementById('{name}')")["result"]["objectId"]
        self.browser.ask("DOM.setFileInputFiles", objectId=node, files=files)

    def load(self, files):
        self.choose("files", list(files.values()))
        return self.run("""await until(() => !$("#tabs").hidden || $("#status").classList.contains("failed")); return $("#status").textContent;""")

    def ask(self, message):
        return self.run(f"""$("#message").value = {json.dumps(message)};
            $("#ask").requestSubmit();
            await until(() => $("#stop").disabled && !$("#conversation").hasAttribute("aria-busy"));
            return [$("#conversation").lastElementChild?.querySelector(".text").textContent, $("#status").textContent];""")

    def tab(self, name):
        self.run(f"""$("#tab-{name}").click();""")

    def submit(self, form, done):
        return self.run(f"""$("#{form}").requestSubmit(); await until(() => $("#{form} progress").hidden === false);
            await until(() => $("#{form} progress").hidden); return {done};""")


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.place.name)
        cls.scale, cls.head = look_test.copies(cls.path)
        cls.server, cls.address = serve()
        cls.browser = Browser(find())
        cls.page = Page(cls.browser, cls.address)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.shutdown()
        cls.server.server_close()
        cls.place.cleanup()

    def setUp(self):
        self.page.open()
        self.browser.run("sessionStorage.clear()")

    def complaints(self):
        return [line for line in self.browser.complaints() if "favicon" not in line]

    def fits(self):
        return self.browser.run("document.documentElement.scrollWidth <= innerWidth")

    def test_it_talks_and_shows_how_sure_it_was(self):
        for width in (420, 1280):
            with self.subTest(width):
                self.page.open(width)
                self.assertIn("is ready on the processor", self.page.load(files_of(ROOT / "demo")))
                answer, status = self.page.ask("What does a bear eat?")
                self.assertEqual(answer, "A bear eats fish and honey.")
                self.assertRegex(status, r"\d+ tokens, [\d.]+ a second")
                labels, attends, others = self.page.run("""$(".under button").click();
                    await until(() => $(".tokens button"));
                    const labels = [...document.querySelectorAll(".tokens button")].map((button) => button.getAttribute("aria-label"));
                    document.querySelectorAll(".tokens button")[3].click();
                    await until(() => $(".chosen .strip"));
                    return [labels, $(".chosen").textContent, $(".chosen tbody").rows.length];""")
                self.assertGreater(len(labels), 5)
                self.assertTrue(all(re.search(r", [\d.e-]+ %$", label) for label in labels), labels)
                self.assertRegex(attends, r"Most on “.*” \([\d.]+ %\)")
                self.assertEqual(others, 5)
                self.assertTrue(self.fits(), "nothing is wider than the page")
                self.assertEqual(self.complaints(), [])
                self.browser.run("sessionStorage.clear()")

    def test_the_conversation_goes_on_after_the_engine_or_the_page_has_stopped(self):
        broken = look_test.faulty(self.path)
        self.page.open(built=broken)
        self.page.load(files_of(ROOT / "demo"))
        first, _ = self.page.ask("What does a bear eat?")
        answer, status = self.page.ask("[kill]")
        self.assertEqual(answer, first)  # what has no answer is no part of the conversation
        self.assertIn("The conversation is kept", status)
        _, status = self.page.ask("And where does it live?")
        self.assertIn("The model was loaded again", status)
        said = self.page.run("return [...document.querySelectorAll('#conversation .text')].map((p) => p.textContent);")
        self.assertEqual([said[0], said[2]], ["What does a bear eat?", "And where does it live?"])
        self.page.open(built=broken)  # as after a crash
        self.page.load(files_of(ROOT / "demo"))
        self.assertEqual(self.page.run("return [...document.querySelectorAll('#conversation .text')].map((p) => p.textContent);"), said)

    def test_the_doctor_names_the_cause_and_shows_where(self):
        for width in (420, 1280):
            with self.subTest(width):
                self.page.open(width)
                self.page.load(files_of(self.scale))
                self.page.tab("doctor")
                self.page.choose("doctor-recording", [TRUTH])
                said, cells, worst = self.page.submit("examine", """[$("#diagnosis").textContent, document.querySelectorAll("#diagnosis td[data-at]").length,
                    $("#diagnosis td.first")?.getAttribute("aria-label")]""")
                self.assertIn("Sick: 1 finding", said)
                self.assertIn("Set query_pre_attn_scalar in config.json to 64 (it is 256).", said)
                self.assertGreater(cells, 50)
                self.assertRegex(worst, r"attn_out of layer 0: wrong, ×")
                self.assertTrue(self.fits(), "nothing is wider than the page")
                self.assertEqual(self.complaints(), [])

    def test_a_model_that_cannot_be_opened_is_examined(self):
        native = web_test.native(self.path, "head", ["--prompt-ids", "3"])["error"]["message"]
        self.assertEqual(self.page.load(files_of(self.head)), native)
        said = self.page.run("""$("#examine-refused").click();
            await until(() => $("#diagnosis .finding"));
            return $("#diagnosis").textContent;""")
        self.assertIn("Sick", said)

    def test_a_comparison_is_a_map(self):
        for width in (420, 1280):
            with self.subTest(width):
                self.page.open(width)
                self.page.load(files_of(self.scale))
                self.page.tab("compare")
                said, cells, wrong = self.page.submit("compare-with", """[$("#comparison .verdict").textContent, document.querySelectorAll("#comparison td[data-at]").length,
                    document.querySelectorAll("#comparison td.f4").length]""")
                self.assertIn("Agrees", said)
                self.assertGreater(cells, 100)
                self.assertEqual(wrong, 0)
                self.page.choose("compare-recording", [TRUTH])
                said, first, wrong, whole = self.page.submit("compare-with", """[$("#comparison .verdict").textContent, $("#comparison td.first").getAttribute("aria-label"),
                    document.querySelectorAll("#comparison :is(td.f3, td.f4)").length,
                    ($("#comparison .views input[value=whole]").click(), document.querySelectorAll("#comparison :is(td.f1, td.f2, td.f3, td.f4)").length)]""")
                self.assertIn("Differs, first in attn_out of layer 0: the model's description or weights", said)
                self.assertRegex(first, "attn_out of layer 0: differs")
                self.assertGreater(wrong, 5)
                self.assertGreater(whole, wrong)
                self.assertTrue(self.fits(), "nothing is wider than the page")
                self.assertEqual(self.complaints(), [])

    def test_attention_and_values_are_shown(self):
        self.page.load(files_of(ROOT / "demo"))
        self.page.tab("inside")
        cells, label = self.page.run("""$("#look").requestSubmit();
            await until(() => $("#attention td[data-at]"));
            return [document.querySelectorAll("#attention td[data-at]").length, $("#attention td[data-at]").getAttribute("aria-label")];""")
        self.assertEqual(cells, 7 * 8 // 2)
        self.assertRegex(label, r"“.*” on “.*”: 100 %")
        rows = self.page.run("""$("#measure").requestSubmit();
            await until(() => $("#measures tbody"));
            return $("#measures tbody").rows.length;""")
        self.assertEqual(rows, 8)
        self.page.tab("figures")
        self.assertGreater(self.page.run("""return $("#described tbody").rows.length;"""), 20)
        self.browser.resize(420)
        for tab in ("inside", "figures"):
            self.page.tab(tab)
            wide = self.page.run("""return [...document.querySelectorAll("section :is(p, label, select, textarea, .scroll)")].filter((e) => e.checkVisibility()
                && e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML.slice(0, 80));""")
            self.assertEqual(wide, [], tab)
        self.assertEqual(self.complaints(), [])

    def test_files_are_dropped(self):
        said = self.page.run(f"""const transfer = new DataTransfer();
            transfer.items.add(new File([await (await fetch("/file{DATA}/gguf/llama.Q4_0.gguf")).blob()], "dropped.gguf"));
            $("#drop").dispatchEvent(new DragEvent("drop", {{ dataTransfer: transfer, bubbles: true, cancelable: true }}));
            await until(() => !$("#tabs").hidden || $("#status").classList.contains("failed"));
            return $("#status").textContent;""")
        self.assertIn("llama, ", said)

    def test_an_address_is_downloaded_with_progress_and_kept(self):
        said, kept = self.page.run(f"""$("#address").value = "/file{DATA}/gguf/llama.Q8_0.gguf";
            $("#open").requestSubmit();
            await until(() => !$("#tabs").hidden || $("#status").classList.contains("failed"));
            await until(() => $("#kept li"));
            return [$("#status").textContent, $("#kept").textContent];""")
        self.assertIn("is ready", said)
        self.assertIn("llama.Q8_0.gguf", kept)
        self.page.run("""$("#kept button:last-child").click(); await until(() => /cannot|read/.test($("#status").textContent) || $("#kept").hidden);""")

    def test_everything_is_reached_by_keyboard_and_has_a_name(self):
        self.page.load(files_of(ROOT / "demo"))
        self.page.run("""$("#tab-chat").focus();""")
        for tab in ("inside", "doctor", "compare", "figures", "chat"):
            self.browser.press("ArrowRight")
            self.assertEqual(self.page.run("""return [document.activeElement.id, $("[role=tabpanel]:not([hidden])").id];"""), [f"tab-{tab}", tab])
        nameless = self.page.run("""for (const panel of document.querySelectorAll("[role=tabpanel]")) panel.hidden = false;
            return [...document.querySelectorAll("button, input:not([type=radio]), select, textarea, progress, [role=tab], table, section")].filter((element) => {
              const labelled = (element.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent).join("");
              return !(element.getAttribute("aria-label") || labelled || element.labels?.length > 0 || (element.tagName === "BUTTON" && element.textContent.trim())
                || element.matches(".list"));
            }).map((element) => element.outerHTML.slice(0, 120));""")
        self.assertEqual(nameless, [])
        ids = self.page.run("""const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id); return ids.filter((id, i) => ids.indexOf(id) !== i);""")
        self.assertEqual(ids, [])

    def test_text_is_readable_on_what_it_stands_on(self):
        for dark in (False, True):
            self.page.open(dark=dark)
            self.page.load(files_of(ROOT / "demo"))
            self.page.ask("What does a bear eat?")
            faint = self.page.run("""$(".under button").click();
              await until(() => $(".tokens button"));
              const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
              const light = (c) => { const [r, g, b] = c.slice(0, 3).map((x) => x / 255).map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
              const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return rgb("255 255 255"); };
              const texts = [...document.querySelectorAll("button:not(:disabled), .button, label, p, h1, h2, .text, .under span, summary, [role=tab]")].filter((e) => e.checkVisibility() && e.textContent.trim());
              return texts.map((e) => [light(rgb(getComputedStyle(e).color)), light(ground(e)), e.outerHTML.slice(0, 80)]).map(([a, b, e]) => [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e])
                .filter(([contrast]) => contrast < 4.5);""")
            self.assertEqual(faint, [], "dark" if dark else "light")
            self.browser.run("sessionStorage.clear()")

    def test_the_policy_lets_nothing_else_run(self):
        blocked = self.page.run(unsafe=False, text="""const blocked = [];
            addEventListener("securitypolicyviolation", ({ effectiveDirective }) => blocked.push(effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "window.ran = 1";
            const style = document.createElement("style");
            style.textContent = "body { color: red }";
            const frame = document.createElement("iframe");
            frame.src = "/web/index.html";
            const image = new Image();
            image.src = "http://127.0.0.1:1/x.png";
            const attribute = document.createElement("p");
            attribute.setAttribute("onclick", "window.ran = 2");
            document.body.append(script, style, frame, image, attribute);
            attribute.click();
            try { eval("window.ran = 3"); } catch {}
            await fetch("http://127.0.0.1:1/").catch(() => {});
            await new Promise((later) => setTimeout(later, 200));
            return [window.ran ?? null, [...new Set(blocked)].sort()];""")
        self.assertEqual(blocked, [None, ["connect-src", "frame-src", "img-src", "script-src", "script-src-attr", "script-src-elem", "style-src-elem"]])

    def test_it_is_installed_and_works_without_a_network(self):
        worker = (web_test.folder / "service_worker.js").read_text()
        shell = re.findall(r'"([^"]+)"', re.search(r"const SHELL = \[(.*?)\];", worker, re.S).group(1))
        here = [str(path.relative_to(web_test.folder)) for path in web_test.folder.rglob("*") if path.is_file()]
        self.assertEqual(shell, sorted(path for path in here if not path.endswith((".wasm", ".d.ts")) and path not in ("package.json", "service_worker.js")))
        manifest = self.browser.ask("Page.getAppManifest")
        self.assertEqual(manifest["errors"], [])
        self.assertEqual(json.loads(manifest["data"])["icons"][0]["src"], "icon.svg")
        server, address = serve()
        page = Page(self.browser, address)
        page.open()
        page.run("""await navigator.serviceWorker.ready;
            const kept = async () => (await (await caches.open("doppler-page-1")).keys()).some(({ url }) => url.endsWith(".wasm"));
            while (!(await kept())) await new Promise((later) => setTimeout(later, 20));""")
        server.shutdown()
        server.server_close()
        page.open()
        self.assertIn("is ready", page.load(files_of(ROOT / "demo")))
        self.assertEqual(page.ask("What does a bear eat?")[0], "A bear eats fish and honey.")


def pictures(folder):
    """What the page looks like, wide and narrow, light and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    server, address = serve()
    browser = Browser(find())
    page = Page(browser, address)
    with tempfile.TemporaryDirectory() as place:
        scale, _ = look_test.copies(pathlib.Path(place))
        for width in (1280, 420):
            for dark in (False, True):
                name = f"{width}-{'dark' if dark else 'light'}"

                def take(what):
                    height = browser.run("document.documentElement.scrollHeight")
                    browser.picture(folder / f"{what}-{name}.png", "png", clip={"width": width, "height": min(height, 3000)})

                page.open(width, dark)
                browser.run("sessionStorage.clear()")
                take("start")
                page.load(files_of(scale))
                page.ask("What does a bear eat?")
                page.ask("Tell me a story about a robot and a kite.")
                page.run("""$(".under button").click(); await until(() => $(".tokens button"));
                    document.querySelectorAll(".tokens button")[3].click(); await until(() => $(".chosen .strip"));""")
                take("chat")
                page.tab("inside")
                page.run("""$("#look").requestSubmit(); await until(() => $("#attention td[data-at]"));
                    $("#measure").requestSubmit(); await until(() => $("#measures tbody"));""")
                take("inside")
                page.tab("doctor")
                page.choose("doctor-recording", [TRUTH])
                page.submit("examine", "1")
                take("doctor")
                page.tab("compare")
                page.choose("compare-recording", [TRUTH])
                page.submit("compare-with", "1")
                take("compare")
                page.tab("figures")
                take("figures")
    browser.close()
    server.shutdown()


if __name__ == "__main__":
    web_test.doppler, web_test.folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    web_test.skip_unless_built()
    if not find():
        print("There is no browser (scripts/install_deps.sh browser).")
        sys.exit(77)
    if sys.argv[3:4] == ["--pictures"]:
        pictures(pathlib.Path(sys.argv[4]))
    else:
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
