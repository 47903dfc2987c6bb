#!/usr/bin/env python3
"""The kernels' texts are accepted by the compiler that Chromium has: shaders_test.py BACKEND_TESTS

BACKEND_TESTS writes the texts; node and its module webgpu (tests/web/shaders.mjs) compile them. Exit status 77: not there."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def main() -> int:
    if shutil.which("node") is None:
        print("There is no node.")
        return 77
    if not (HERE.parents[1] / ".deps/dawn/node_modules/webgpu").is_dir():
        print("The module webgpu is not there: scripts/install_deps.sh dawn")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        written = subprocess.run(
            [sys.argv[1], "--gtest_filter=ShaderTexts.*"],
            env={**os.environ, "DOPPLER_SHADER_TEXTS": folder}, capture_output=True, text=True)
        if written.returncode != 0:
            print(written.stdout[-4000:], written.stderr[-4000:])
            return 1
        if not os.listdir(folder):
            print("There is no GPU adapter, so no texts are written.")
            return 77
        return subprocess.run(["node", HERE / "shaders.mjs", folder], timeout=300).returncode


if __name__ == "__main__":
    sys.exit(main())
