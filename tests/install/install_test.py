#!/usr/bin/env python3
"""Installs a build to a prefix, moves that prefix elsewhere, and uses it as an outsider would: the program, what man and
shells read, and outside projects, each built as docs/embedding.md says and run on the demo model.

    python3 tests/install/install_test.py CMAKE SOURCE BUILD COMPILER [TEST ...]
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE, COMPILER = sys.argv[1], sys.argv[4]
SOURCE, BUILD = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
CACHE = (BUILD / "CMakeCache.txt").read_text()
HAS_GPU = "DOPPLER_GPU:BOOL=ON" in CACHE
DEMO = SOURCE / "demo"
PROMPT = "The color of the sky is"
PAGE = (SOURCE / "docs/embedding.md").read_text()


def run(*command, cwd=None, **variables):
    """Standard output of a command that must succeed. Nothing of the caller's environment helps to find a library."""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "CPATH", "LIBRARY_PATH")}
    environment["CXX"] = COMPILER
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment | variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def libraries(program):
    """The shared libraries that a program finds: name to path."""
    found = dict(re.findall(r"^\s*(\S+) => (.+?) \(0x", run("ldd", program), re.M))
    return {name: pathlib.Path(path) for name, path in found.items()}


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.place.name).resolve()
        first, cls.prefix = cls.folder / "first", cls.folder / "moved"
        run(CMAKE, "--install", BUILD, "--prefix", first)
        first.rename(cls.prefix)
        cls.lib = next(path.parent for path in cls.prefix.rglob("libdoppler.a"))
        cls.program = cls.prefix / "bin/doppler"

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def new_project(self, listing=None, example="minimal"):
        """A folder with main.cpp and main.c, and CMakeLists.txt from the page: the block that holds `listing`."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copy(SOURCE / f"examples/{example}.cpp", folder / "main.cpp")
        shutil.copy(SOURCE / "examples/minimal.c", folder / "main.c")
        if listing:
            (folder / "CMakeLists.txt").write_text(self.block("cmake", listing))
        return folder

    def block(self, language, holding):
        blocks = [text for text in re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S) if holding in text]
        self.assertEqual(len(blocks), 1, f"blocks of docs/embedding.md that hold {holding}")
        return blocks[0]

    def configure(self, folder, *options):
        run(CMAKE, "-S", folder, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Release", *options)

    def check_answer(self, program):
        self.assertIn("blue", run(program, DEMO, PROMPT))

    def check_links(self, program, shared):
        found = libraries(program)
        self.assertEqual("libdoppler.so.0" in found, shared, found)
        ours = [path for name, path in found.items() if re.match("libdoppler|libwgpu_native", name)]
        self.assertEqual(len(ours), shared + HAS_GPU, found)
        for path in ours:
            self.assertTrue(path.resolve().is_relative_to(self.prefix), path)

    def test_the_program_runs_where_it_was_moved(self):
        self.check_links(self.program, shared=False)
        self.assertIn("blue", run(self.program, "run", DEMO, PROMPT, "--raw", "--backend", "cpu"))
        version = re.search(r"CMAKE_PROJECT_VERSION:STATIC=(\S+)", CACHE)[1]
        self.assertEqual(run(self.program, "--version"), f"doppler {version}\n")
        self.assertIn(f"Version: {version}\n", (self.lib / "pkgconfig/doppler.pc").read_text())
        self.assertIn(f"doppler_{version}_", (SOURCE / "README.md").read_text())

    def test_the_shared_library_shows_the_interface_only(self):
        """Every name is one that a public header declares, in doppler or in a class of it, or begins with doppler_."""
        headers = "".join(path.read_text() for path in (SOURCE / "include/doppler").glob("*.h"))
        declared = set(re.findall(r"\w+", re.sub(r"//.*", "", headers)))
        names = run("nm", "-D", "--defined-only", "-C", self.lib / "libdoppler.so.0").splitlines()
        self.assertTrue(any("doppler::Engine::load(" in name for name in names), names)
        for name in (line.split(" ", 2)[2] for line in names):
            if re.fullmatch(r"doppler_\w+", name):
                self.assertIn(name, declared)
                continue
            self.assertRegex(name, r"^doppler::(\w+::)?~?\w+")
            path = re.match(r"doppler::([\w:~=]+)", name)[1].replace("operator=", "operator").split("::")
            self.assertLessEqual(len(path), 2, name)
            for part in path:
                self.assertIn(part.lstrip("~"), declared, name)
        self.assertIn("[libdoppler.so.0]", run("readelf", "-d", self.lib / "libdoppler.so"))

    def find_package(self, *changes, example="minimal"):
        """The page's project with these changes, configured."""
        folder = self.new_project("find_package", example)
        listing = (folder / "CMakeLists.txt").read_text()
        for old, new in changes:
            self.assertIn(old, listing)
            listing = listing.replace(old, new)
        (folder / "CMakeLists.txt").write_text(listing)
        self.configure(folder, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        return folder

    def check_built(self, folder, shared):
        run(CMAKE, "--build", folder / "build")
        self.check_links(folder / "build/answer", shared)
        self.check_answer(folder / "build/answer")

    def test_find_package(self):
        self.check_built(self.find_package(example="inside"), shared=True)

    def test_find_package_static(self):
        self.assertIn("find_package(Doppler 0.1 REQUIRED COMPONENTS static)", PAGE)
        self.check_built(self.find_package(("0.1 REQUIRED", "0.1 REQUIRED COMPONENTS static")), shared=False)

    def test_find_package_from_c(self):
        self.check_built(self.find_package(("answer CXX", "answer C"), ("main.cpp", "main.c")), shared=True)

    def test_find_package_static_from_c(self):
        folder = self.find_package(("answer CXX", "answer C CXX"), ("main.cpp", "main.c"),
                                   ("0.1 REQUIRED", "0.1 REQUIRED COMPONENTS static"))
        self.check_built(folder, shared=False)

    def test_find_package_wants_its_version(self):
        with self.assertRaisesRegex(AssertionError, "requested version"):
            self.find_package(("Doppler 0.1", "Doppler 0.2"))

    def pkg_config(self, line):
        """What this line of the page builds."""
        folder = self.new_project()
        line = re.sub(r"^c\+\+ ", COMPILER + " ", line)
        run("sh", "-c", line, cwd=folder, PKG_CONFIG_PATH=str(self.lib / "pkgconfig"))
        self.check_answer(folder / "answer")
        return libraries(folder / "answer")

    def test_pkg_config(self):
        shared, static = self.block("sh", "c++ ").splitlines()
        self.assertIn("libdoppler.so.0", self.pkg_config(shared))
        self.assertNotIn("libdoppler.so.0", self.pkg_config(static))

    def test_pkg_config_from_c(self):
        self.assertIn("libdoppler.so.0", self.pkg_config(self.block("sh", "cc ").strip()))

    def test_the_whole_c_interface_is_there(self):
        """The C interface's own test, which names every function, built against the shared library."""
        folder = self.new_project()
        shutil.copy(SOURCE / "tests/engine/c_api_test.c", folder / "main.c")
        run("sh", "-c", self.block("sh", "cc ").strip(), cwd=folder, PKG_CONFIG_PATH=str(self.lib / "pkgconfig"))
        run(folder / "answer", DEMO, folder)

    def test_add_subdirectory(self):
        """Configures with the program linked, and builds the first room; all of them would take minutes."""
        folder = self.new_project("add_subdirectory")
        (folder / "doppler").symlink_to(SOURCE)
        self.configure(folder, f"-DDOPPLER_GPU={'ON' if HAS_GPU else 'OFF'}")
        run(CMAKE, "--build", folder / "build", "--target", "doppler_system")
        self.assertTrue((folder / "build/doppler/libdoppler_system.a").exists())

    def test_man_page(self):
        page = self.prefix / "share/man/man1/doppler.1"
        self.assertEqual(page.read_text(), run(SOURCE / "scripts/man_page.sh", self.program))
        if not shutil.which("groff"):
            self.skipTest("there is no groff")
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-c", page], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        text = re.sub(r".\x08", "", done.stdout)
        help_text = run(self.program, "--help") + run(self.program, "run", "--help")
        for flag in re.findall(r"^  (?:-\w,)?(--[\w-]+)", help_text, re.M):
            if flag != "--help":
                self.assertRegex(text, rf"(?m)^ +(-\w,)?{flag}\b")
        for section in ("NAME", "SYNOPSIS", "COMMANDS", "DOPPLER RUN", "EVERYWHERE", "EXIT STATUS", "EXAMPLES"):
            self.assertRegex(text, rf"(?m)^{section}$")

    def test_completions(self):
        share = self.prefix / "share"
        ask = 'source "$0"; COMP_WORDS=(doppler "$@"); COMP_CWORD=$(($# )); _doppler; echo "${COMPREPLY[@]}"'
        bash = share / "bash-completion/completions/doppler"
        self.assertEqual(run("bash", "-c", ask, bash, "tok").split(), ["tokenize"])
        self.assertEqual(run("bash", "-c", ask, bash, "run", "--max").split(), ["--max-tokens"])
        self.assertTrue((share / "fish/vendor_completions.d/doppler.fish").read_text().startswith("complete -c doppler"))
        zsh = share / "zsh/site-functions/_doppler"
        self.assertTrue(zsh.read_text().startswith("#compdef doppler\n"))
        if shutil.which("zsh"):
            run("zsh", "-n", zsh)

    def test_nothing_names_the_place_of_the_build(self):
        for path in self.prefix.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.suffix != ".a":
                content = path.read_bytes()
                for place in (BUILD, self.folder / "first"):
                    self.assertNotIn(str(place).encode(), content, path)

    def test_licence_and_readme(self):
        for name in ("LICENSE", "README.md"):
            self.assertEqual((self.prefix / "share/doc/doppler" / name).read_text(), (SOURCE / name).read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
