#!/usr/bin/env python3
"""The WebAssembly build's speed in a headless browser: its sets of kernels in turns, and the native program beside them.

    bench/web.py MODEL.gguf [ROUNDS]        after make web; a model of `doppler synth` will do

Prints medians of tokens a second, for a prompt of 37 tokens and for 32 generated ones, of each round's second generation, since
browsers compile what runs long once more; of the time from a Blob to an engine that is ready; and the same from a model that the page
keeps.
"""

import http.server
import json
import pathlib
import statistics
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/web"), str(ROOT / "tests/browser")]
sys.dont_write_bytecode = True
import web_test  # noqa: E402
from browser import Browser, find  # noqa: E402

PROMPT, TOKENS = list(range(5, 42)), 32
SETS = {"plain": ["doppler_plain.wasm", {}],
        "plain, 2 threads": ["doppler_threads.wasm", {"threads": 2}], "relaxed": ["doppler_relaxed.wasm", {}],
        "relaxed, 2 threads": ["doppler_threads_relaxed.wasm", {"threads": 2}]}
MEASURE = """(async (path, [module, load], ids, max_tokens) => {
  const { Doppler } = await import("/web/index.js");
  window.model ??= await (await fetch(`/file${path}`)).blob();
  const begin = performance.now();
  const engine = await Doppler.load(window.model, { ...load, module: new URL(`/web/${module}`, location), model: "model.gguf", context: 512 });
  const ready = performance.now() - begin;
  let timings;
  for (const more of [0, 1]) {  // another prompt, which the cache does not hold
    const options = { max_tokens, ignore_eos: true, temperature: 0 };
    ({ timings } = await engine.generate(ids.map((id) => id + more), options).result());
  }
  engine.close();
  return [timings.prompt_tokens_per_second, timings.decode_tokens_per_second, ready];
})"""

# From the address of a kept model to an engine that is ready; the first of all downloads it.
KEPT = """(async (path) => {
  const { Doppler } = await import("/web/index.js");
  const begin = performance.now();
  const engine = await Doppler.load(new URL(`/file${path}`, location), { context: 512 });
  const ready = performance.now() - begin;
  engine.close();
  return ready;
})"""


def native(model, threads):
    command = [ROOT / "build/release/doppler", "run", model, "--prompt-ids", ",".join(map(str, PROMPT)), "--max-tokens", str(TOKENS), "--json",
               "--temperature", "0", "--ignore-eos", "--backend", "cpu", "--threads", str(threads), "--context", "512"]
    timings = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["timings"]
    return [timings["prompt_tokens_per_second"], timings["decode_tokens_per_second"], timings["load_ms"]]


def main():
    model, rounds = str(pathlib.Path(sys.argv[1]).resolve()), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    web_test.folder = ROOT / "build/web"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), web_test.Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = Browser(find())
    browser.open(f"http://127.0.0.1:{server.server_port}/tests/page.html", 1000)
    natives = {"native, 1 thread": 1, "native, 2 threads": 2}
    taken = {name: [] for name in [*SETS, *natives]}
    kept = [browser.run(f"{KEPT}({json.dumps(model)})")]
    for _ in range(rounds):
        for name, kernels in SETS.items():
            arguments = ", ".join(map(json.dumps, [model, kernels, PROMPT, TOKENS]))
            taken[name].append(browser.run(f"{MEASURE}({arguments})"))
        for name, threads in natives.items():
            taken[name].append(native(model, threads))
        kept.append(browser.run(f"{KEPT}({json.dumps(model)})"))
    browser.close()
    server.shutdown()
    print(f"{'kernels':18} {'prompt':>8} {'decode':>8} {'ready':>9}")
    for name, values in taken.items():
        prompt, decode, ready = (statistics.median(column) for column in zip(*values))
        print(f"{name:18} {prompt:8.1f} {decode:8.1f} {ready:6.0f} ms")
    print(f"from a model that is kept: {statistics.median(kept[1:]):.0f} ms; downloaded before: {kept[0]:.0f} ms")


main()
