#!/usr/bin/env python3
"""Opens reports of `doppler compare --html` in a headless browser, at the width of a phone and of a desk.

    python3 tests/browser/report_test.py DOPPLER MODELS [--picture FILE.webp]

MODELS is tests/data/models. Exit status 77 (skipped) without a browser: scripts/install_deps.sh browser.
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

PHONE, DESK = 360, 1440
HOSTILE = "<img src=x onerror=alert(1)>"
doppler = models = None


def report(folder, reference, page):
    """Exit status and page of a comparison."""
    done = subprocess.run([doppler, "compare", str(folder), "--reference", str(reference), "--backend", "reference",
                           "--html", str(page)], capture_output=True, text=True)
    assert page.exists(), done.stderr
    return done.returncode


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
        cls.status_wrong = report(broken, models / "gemma3/reference.safetensors", cls.wrong)
        cls.status_right = report(models / "llama", models / "llama/reference.safetensors", cls.right)
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
        for page in (self.wrong, self.right):
            for width in (PHONE, DESK):
                self.open(page, width)  # the second time the window changes under the page
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


if __name__ == "__main__":
    if find() is None:
        print("Skipped: no browser. scripts/install_deps.sh browser installs one.")
        sys.exit(77)
    doppler, models = sys.argv[1], pathlib.Path(sys.argv[2])
    if "--picture" in sys.argv:
        picture(sys.argv[sys.argv.index("--picture") + 1])
    else:
        unittest.main(argv=sys.argv[:1])
