#!/usr/bin/env python3
"""Opens the pages of `doppler compare`, `doctor` and `bench --html` in a headless browser, at the width of phones and of a desk.

    python3 tests/browser/report_test.py DOPPLER MODELS [--picture FILE.webp] [--pictures FOLDER]

MODELS is tests/data/models. --picture is the one in docs/; --pictures is every page, light and dark, wide and narrow, to look at.
Exit status 77 (skipped) without a browser: scripts/install_deps.sh browser.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from browser import Browser, find  # noqa: E402

PHONE, LARGE_PHONE, DESK = 360, 420, 1440
HOSTILE = "<img src=x onerror=alert(1)>"
doppler = models = None


def report(page, *arguments):
    """Writes a command's page and gives its exit status."""
    done = subprocess.run([doppler, *map(str, arguments), "--html", str(page)], capture_output=True, text=True)
    assert page.exists(), done.stderr
    return done.returncode


def measure(place, name, *arguments):
    """A short measurement's page, and the file that it saved."""
    saved = place / f"{name}.json"
    small = ["--prefill", 32, "--decode", 8, "--depths", "0,64", "--sequences", 1, "--repetitions", 7, "--loads", 2]
    report(place / f"{name}.html", "bench", place / "bench", "--backend", "cpu", *small, "--save", saved, *arguments)
    return saved


def shifted(saved, factor):
    """The same measurement, so many times as fast: a baseline that decides without a clock."""
    data = json.loads(saved.read_text())
    for line in data["decode"]:
        for key in ("median", "low", "high"):
            line["tokens_per_second"][key] *= factor
    other = saved.with_suffix(f".{factor}.json")
    other.write_text(json.dumps(data))
    return other


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        place = pathlib.Path(cls.place.name)
        # One layer of this model attends to everything, with a rope base of its own: say a wrong one.
        broken = place / (HOSTILE if cls.hostile else "gemma3")
        broken.mkdir()
        shutil.copy(models / "gemma3/model.safetensors", broken)
        config = json.loads((models / "gemma3/config.json").read_text())
        config["rope_parameters"]["full_attention"]["rope_theta"] = 10000.0
        (broken / "config.json").write_text(json.dumps(config))
        cls.wrong, cls.right = place / "wrong.html", place / "right.html"
        gemma, llama = models / "gemma3/reference.safetensors", models / "llama/reference.safetensors"
        cls.status_wrong = report(cls.wrong, "compare", broken, "--reference", gemma, "--backend", "reference")
        cls.status_right = report(cls.right, "compare", models / "llama", "--reference", llama, "--backend", "reference")
        cls.sick, cls.well = place / "sick.html", place / "well.html"
        cls.status_sick = report(cls.sick, "doctor", broken, "--reference", gemma, "--backend", "cpu")
        cls.status_well = report(cls.well, "doctor", models / "llama", "--reference", llama, "--backend", "cpu")
        (place / "bench").symlink_to(models / "llama")
        saved = measure(place, "speed")
        measure(place, "slower", "--baseline", shifted(saved, 1e6), "--fail-over", "5%")
        measure(place, "faster", "--baseline", shifted(saved, 1e-6))
        cls.speed, cls.slower, cls.faster = (place / f"{name}.html" for name in ("speed", "slower", "faster"))
        cls.loading = place / "loading.html"
        report(cls.loading, "bench", "loading", models / "llama", "--backend", "cpu")
        cls.pages = [cls.wrong, cls.right, cls.sick, cls.well, cls.speed, cls.slower, cls.faster, cls.loading]
        cls.browser = Browser(find())

    hostile = True

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.place.cleanup()

    shown = None  # page and theme; loading costs more than all questions about it

    def open(self, page, width, dark=False, fresh=False):
        if fresh or (page, dark) != Reports.shown:
            self.browser.open(page, width, dark=dark)
            Reports.shown = (page, dark)
        else:
            self.browser.resize(width)
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual(self.browser.requests(), [], "a report asks nobody for anything")

    def ask(self, expression):
        return self.browser.run(expression)

    def colour(self, selector):
        return self.ask(f"getComputedStyle(document.querySelector('{selector}')).backgroundColor")

    def test_fits_a_phone_and_a_desk(self):
        for page in self.pages:
            for width in (PHONE, LARGE_PHONE, DESK):
                self.open(page, width)  # after the first time the window changes under the page
                self.assertEqual(self.ask("innerWidth"), width)
                self.assertLessEqual(self.ask("document.documentElement.scrollWidth"), width, page)
                spilling = self.ask(
                    "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') && !e.closest('svg') && "
                    "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))")
                self.assertEqual(spilling, [])

    def test_the_map_shows_where_the_fault_is(self):
        self.assertEqual(self.status_wrong, 1)
        self.open(self.wrong, DESK, fresh=True)
        cells = self.ask("document.querySelectorAll('#map td[data-at]').length")
        self.assertEqual(cells, 7 * 20 + 5 + 1)  # layers, stages around them, decode
        self.assertEqual(self.ask("document.querySelectorAll('#map td.first').length"), 1)
        self.assertRegex(self.ask("document.querySelector('#map td.first').getAttribute('aria-label')"),
                         "^q_rope of layer 5: differs, ×[0-9.]+k$")
        self.assertRegex(self.ask("document.querySelector('#map td.first').textContent"), "^×[0-9.]+k$")
        # Of all ops alone only the two that rotate layer 5's heads are wrong.
        beyond = "[...document.querySelectorAll('#map td[data-at]')].filter(td => /^f/.test(td.className))"
        self.assertEqual(self.ask(f"{beyond}.map(td => data.stages[td.dataset.at].key)"), ["layers.5.q_rope", "layers.5.k_rope"])
        self.assertIn("layers.5.q_rope", self.ask("document.querySelector('#map .detail').textContent"))
        # The whole difference: everything behind them as well, and nothing before.
        self.ask("document.querySelector('input[value=whole]').click()")
        layers = self.ask(f"[...new Set({beyond}.map(td => data.stages[td.dataset.at].layer))]")
        self.assertEqual(set(layers), {5, 6, None})
        self.assertEqual(self.ask("document.querySelector('#map td[aria-label^=\"k_norm of layer 5\"]').textContent"), "·")

    def test_colours_tell_agreement_from_difference_in_light_and_dark(self):
        seen = []
        for dark in (False, True):
            self.open(self.wrong, DESK, dark=dark)
            look = self.ask("document.querySelector('#map td.first').className.split(' ')[0]")
            self.assertEqual(look, "f4")
            named = self.ask("(() => { const d = document.body.appendChild(document.createElement('i'));"
                             "d.style.background = 'var(--f4)'; return getComputedStyle(d).backgroundColor })()")
            self.assertEqual(self.colour("#map td.first"), named)
            self.assertNotEqual(self.colour("#map td.first"), self.colour("#map td.a1"))
            seen.append((self.colour("body"), named))
        self.assertNotEqual(seen[0], seen[1])

    def test_tokens_curves_values_and_all_stages_are_there(self):
        self.open(self.wrong, DESK, fresh=True)
        self.assertEqual(self.ask("document.querySelector('#tokens select').value"), "5")
        self.assertEqual(self.ask("document.querySelectorAll('#tokens td[data-at]').length"), 20 * 20)
        self.assertIn("token 1", self.ask("document.querySelector('#tokens .detail').textContent"))
        for section in ("depth", "magnitudes", "histogram"):
            self.assertGreater(self.ask(f"document.querySelectorAll('#{section} svg :is(path, rect, circle)').length"), 2, section)
        self.assertEqual(self.ask("document.querySelectorAll('#values tbody tr').length"), 8)
        heads = self.ask("[...document.querySelectorAll('#values th')].map(th => th.textContent)")
        self.assertEqual(heads[-3:], ["recorded", "this model", "difference"])
        self.ask("document.querySelector('#all details').open = true; new Promise(done => setTimeout(done, 50))")
        self.assertEqual(self.ask("document.querySelectorAll('#all tbody tr').length"), 146)

    def test_the_keyboard_reaches_every_cell(self):
        self.open(self.wrong, PHONE, fresh=True)
        for _ in range(20):
            if self.ask("document.activeElement.closest('#map td') !== null"):
                break
            self.browser.press("Tab")
        at = "data.stages[document.activeElement.dataset.at].key"
        self.assertEqual(self.ask(at), "layers.5.q_rope")
        for key, expected in (("ArrowLeft", "layers.4.q_rope"), ("ArrowUp", "layers.4.k_norm"), ("ArrowRight", "layers.5.k_norm")):
            self.browser.press(key)
            self.assertEqual(self.ask(at), expected)
            self.assertIn(expected, self.ask("document.querySelector('#map .detail').textContent"))
        self.browser.press("ArrowLeft")
        self.browser.press("Enter")
        self.assertEqual(self.ask("document.querySelector('#tokens select').value"), "4")
        self.assertEqual(self.ask("document.querySelectorAll('#map td[tabindex=\"0\"]').length"), 1, "one stop for Tab")

    def test_names_of_files_stay_text(self):
        self.open(self.wrong, DESK)
        self.assertIn(HOSTILE, self.ask("document.querySelector('h1').textContent"))
        self.assertIn(HOSTILE, self.ask("document.querySelector('#facts').textContent"))
        self.assertEqual(self.ask("document.images.length"), 0)

    def test_the_verdict_is_seen_before_anything_else(self):
        words = {self.wrong: "Differs", self.right: "Agrees", self.sick: "Sick: 1 finding", self.well: "Healthy",
                 self.slower: "Worse than the baseline"}
        for page, word in words.items():
            self.open(page, PHONE)
            self.assertEqual(self.ask("document.querySelector('#verdict .word').textContent"), word)
            self.assertTrue(self.ask("document.title").endswith(word))
            self.assertLess(self.ask("document.querySelector('#verdict .word').getBoundingClientRect().bottom + scrollY"), 300)

    def test_every_page_can_be_read_aloud(self):
        for page in self.pages:
            self.open(page, DESK)
            self.assertEqual(self.ask("[...document.querySelectorAll('figure svg')].filter(s => s.childNodes.length > 0 && "
                                      "(s.getAttribute('role') !== 'img' || !(s.getAttribute('aria-label')?.length > 20))).length"), 0, page)
            self.assertEqual(self.ask("[...document.querySelectorAll('section:not([hidden])')].filter(s => "
                                      "!document.getElementById(s.getAttribute('aria-labelledby'))?.textContent).length"), 0, page)
            self.assertEqual(self.ask("[...document.querySelectorAll('.scroll')].filter(s => s.tabIndex !== 0 && "
                                      "!s.querySelector('[tabindex]')).length"), 0, page)

    def test_text_is_readable_on_what_it_stands_on(self):
        # WCAG's ratio of 4.5 between a text's colour and that of the first box behind it that has one.
        unreadable = """(() => {
          const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
          const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data]; };
          const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
          const behind = (e) => { for (; e; e = e.parentElement) {
            const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255]; };
          const ratio = (e) => { const style = getComputedStyle(e), svg = e.closest('figure svg');
            const a = light(rgb(svg ? style.fill : style.color)), b = light(behind(e));
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };
          return [...document.querySelectorAll('body *')]
            .filter(e => e.checkVisibility() && !e.closest('script, title, .absent') && e.localName !== 'option')
            .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim().length > 1))
            .map(e => [ratio(e), e.outerHTML.slice(0, 90)]).filter(([r]) => r < 4.5).slice(0, 5); })()"""
        for page in self.pages:
            for dark in (False, True):
                self.open(page, DESK, dark=dark)
                self.assertEqual(self.ask(unreadable), [], (page, dark))

    def test_the_comparison_names_the_likely_cause(self):
        self.open(self.wrong, DESK)
        self.assertEqual(self.ask("[...document.querySelectorAll('#findings code')].map(c => c.textContent)"), ["rope_theta"])
        self.assertIn("1e+06", self.ask("document.querySelector('#findings .repair').textContent"))
        self.open(self.right, DESK)
        self.assertTrue(self.ask("document.querySelector('#findings').hidden"))

    def test_the_diagnosis_shows_findings_ops_and_checks(self):
        self.assertEqual((self.status_sick, self.status_well), (1, 0))
        self.open(self.sick, DESK, fresh=True)
        self.assertIn(HOSTILE, self.ask("document.querySelector('h1').textContent"))
        self.assertEqual(self.ask("document.images.length"), 0)
        self.assertIn("q_rope of layer 5", self.ask("document.querySelector('#findings .tags').textContent"))
        wrong = "[...document.querySelectorAll('#map td:is(.f1, .f2, .f3, .f4)')].map(td => td.getAttribute('aria-label').split(':')[0])"
        self.assertEqual(self.ask(wrong), ["q_rope of layer 5", "k_rope of layer 5"])
        self.ask("document.querySelector('#map input[value=ops]').click()")
        self.assertEqual(self.ask(wrong), [], "the backend is right")
        self.assertEqual(self.ask("document.querySelectorAll('#checks li').length"), self.ask("data.checks.length"))
        self.assertEqual(self.ask("document.querySelectorAll('#checks li.bad').length"), 1)
        self.assertGreater(self.ask("document.querySelectorAll('#depth svg circle').length"), 7)

    def test_the_measurement_shows_runs_tokens_and_the_baseline(self):
        self.open(self.slower, DESK, fresh=True)
        self.assertEqual(self.ask("document.querySelectorAll('#runs figure').length"), 6)  # two depths, first token, prompt, load, memory
        self.assertEqual(self.ask("document.querySelector('#runs svg').querySelectorAll('circle').length"), 7)
        self.assertEqual(self.ask("document.querySelectorAll('#tokens figure').length"), 2)
        self.assertEqual(self.ask("document.querySelector('#tokens svg').querySelectorAll('circle').length"), 7 * 8)
        self.assertGreater(self.ask("document.querySelectorAll('#baseline tr.worse').length"), 1)
        self.assertGreater(self.ask("document.querySelectorAll('#baseline li.worse').length"), 1)
        before = self.ask("document.querySelector('#ops .hint').textContent")
        self.ask("document.querySelectorAll('#ops input')[1].click()")
        self.assertNotEqual(self.ask("document.querySelector('#ops .hint').textContent"), before)
        self.open(self.faster, DESK)
        self.assertGreater(self.ask("document.querySelectorAll('#baseline tr.better').length"), 1)
        self.open(self.speed, DESK)
        self.assertTrue(self.ask("document.querySelector('#baseline').hidden"))

    def test_a_healthy_model_is_said_to_be_healthy(self):
        self.assertEqual(self.status_right, 0)
        self.open(self.right, PHONE)
        self.assertEqual(self.ask("document.querySelector('#verdict').className"), "good")
        self.assertEqual(self.ask("document.querySelectorAll('#map td:is(.f1, .f2, .f3, .f4, .absent, .first)').length"), 0)
        self.assertEqual(self.ask("document.querySelector('#values').hidden"), True)
        self.assertRegex(self.ask("document.querySelector('#all summary').textContent"), "all agree")


def picture(file):
    """The report of the broken model, for the documentation."""
    Reports.hostile = False
    Reports.setUpClass()
    Reports.browser.open(Reports.wrong, DESK)
    height = Reports.browser.run("document.querySelector('#all').getBoundingClientRect().top + scrollY")
    Reports.browser.picture(file, clip={"width": DESK, "height": height})
    Reports.tearDownClass()


def pictures(folder):
    """Every page as a person may see it, to be looked at."""
    folder.mkdir(parents=True, exist_ok=True)
    Reports.hostile = False
    Reports.setUpClass()
    for page in Reports.pages:
        for dark in (False, True):
            for width in (1280, LARGE_PHONE):
                Reports.browser.open(page, width, dark=dark)
                height = Reports.browser.run("document.documentElement.scrollHeight")
                name = f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
                Reports.browser.picture(folder / name, format="png", clip={"width": width, "height": height})
    Reports.tearDownClass()


if __name__ == "__main__":
    if find() is None:
        print("Skipped: no browser. scripts/install_deps.sh browser installs one.")
        sys.exit(77)
    doppler, models = sys.argv[1], pathlib.Path(sys.argv[2])
    if "--picture" in sys.argv:
        picture(sys.argv[sys.argv.index("--picture") + 1])
    elif "--pictures" in sys.argv:
        pictures(pathlib.Path(sys.argv[sys.argv.index("--pictures") + 1]))
    else:
        unittest.main(argv=sys.argv[:1])
