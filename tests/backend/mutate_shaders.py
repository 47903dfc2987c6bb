"""Breaks the GPU backend's shaders one line at a time and asks whether a test notices.

    tests/backend/mutate_shaders.py BUILD/tests [shader.wgsl ...] [--every N] [--lines A,B] [--jobs N] [--list]

Each mutant is a copy of src/backend/gpu/shaders with one change. The tests that run this kernel get it through
DOPPLER_TEST_SHADERS. A mutant that passes them all has survived: a test is missing, or the change makes no difference
(EQUIVALENT below, each with its reason)."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SHADERS = pathlib.Path(__file__).resolve().parents[2] / "src" / "backend" / "gpu" / "shaders"

# The tests of each file, those of the backend unless a program is named, or those of several programs; what others include is seen
# through the kernels that use it.
DECODE = "Models/GpuDecode.*gemma3*:Models/GpuDecode.*llama_Q4_0*:Models/GpuDecode.*qwen2"
FUSED = f"NormPrologue.*:Prologue.*:*CombinePrologue.*:GatedGemv.*:SelfCheck.PassesWhatIsFused:{DECODE}"
BATCH = "Products.*:FloatProducts.*:Fixtures/Prompts.*gemma3*:Files/QuantisedPrompts.*Q4_0*:Elements.*"
HALVES = "Files/QuantisedPrompts.OnTensorCores*"
TESTS = {
    "activation.wgsl": "CombineKernel.*",
    "attention.wgsl": "*AttentionLength*:Attention.*",
    "attention_combine.wgsl": "All/OddPlans.*ANormOfTheAttention:AttentionTiles.InParts",
    "attention_decode.wgsl": f"*/GpuHeads.*:{DECODE}:GpuDecodeOf*:SelfCheck.PassesWhatIsRight",
    "attention_half.wgsl": "HalfAttentionTiles.*",
    "attention_seen.wgsl": "AttentionTiles.*",
    "attention_tiled.wgsl": "AttentionTiles.*",
    "batch_halves.wgsl": HALVES,
    "batch_norm.wgsl": BATCH,
    "batch_quantise.wgsl": BATCH,
    "branch_levels.wgsl": "OneOrder.*",
    "branch_sums.wgsl": "OneOrder.*",
    "best_of_workgroup.wgsl": "Likeliest.*:NextToken.*",
    "combine.wgsl": "CombineKernel.*",
    "combine_prologue.wgsl": FUSED,
    "combined.wgsl": f"{FUSED}:All/OddPlans.*ANormOfTheAttention:Files/GpuCompany.*gpt_oss:Models/GroupsSwitchedOff.*gpt_oss"
                     ":SelfCheck.PassesWhatIsRight",
    "dot.wgsl": "*GemvOf*:Gemv.*",
    "embed.wgsl": "*StoredType*:UploadMatrix.*",
    "embed_row.wgsl": "*StoredType*:UploadMatrix.*:NextToken.*",
    "front_rows.wgsl": "Elements.WantedRows*",
    "gemm.wgsl": "Products.*:OneOrder.*",
    "gemm_float.wgsl": "FloatProducts.*:OneOrder.OfFloats",
    "gemm_half.wgsl": "HalfProducts.*",
    "gemm_sum.wgsl": "Products.*:OneOrder.*",
    "gemv_columns.wgsl": "ColumnProducts.*",
    "gemv.wgsl": f"*GemvOf*:Gemv.*:{FUSED}",
    "halves.wgsl": HALVES,
    "head.wgsl": f"Head.*:{DECODE}",
    "joined.wgsl": "*JoinAhead.*:*Join.*:*JoinMixed.*",
    "kv.wgsl": "KvAppend.*:*AttentionLength*:Attention.*",
    "kv_append.wgsl": "KvAppend.*",
    "likeliest.wgsl": "Likeliest.*",
    "guess_tokens.wgsl": "GuessTokens.*",
    "next_tokens.wgsl": "Models/GpuSequences.*llama:GpuManySequences.*",
    "next_token.wgsl": f"NextToken.*:{DECODE}",
    "next_unit.wgsl": "*JoinAhead*",
    "norm.wgsl": "Norm.*",
    "norm_prologue.wgsl": FUSED,
    "norm_sums.wgsl": f"{FUSED}:{BATCH}",
    "ordered_sum.wgsl": f"{FUSED}:*SameSums*",
    "prologue_x.wgsl": FUSED,
    "prompt_parts.wgsl": "AttentionTiles.*",
    "plus_products.wgsl": "FloatProducts.*:*GemvOf*:Gemv.*",
    "quantise.wgsl": "Quantise.*",
    "quantise_block.wgsl": "Quantise.*",
    "reduce.wgsl": "Reduce.*",
    "quantise_vec.wgsl": BATCH,
    "rope.wgsl": "Rope.*",
    "rope_angle.wgsl": "Rope.*",
    "rope_append.wgsl": BATCH,
    "row_sum.wgsl": "Gemv.*:*SameSums*",
    "unit_products.wgsl": "Gemv.*:*SameSums*",
    "carry_round.wgsl": "*StreamedGemv.*:Gemv.*:*SameSums*",
    "left_rounds.wgsl": "*StreamedGemv.*:Gemv.*:*SameSums*",
    "stream_loads.wgsl": "*StreamedGemv.*",
    "stream_products.wgsl": "*StreamedGemv.*",
    **{f"sampling_{part}.wgsl": "engine_tests GpuSampling.*"
       for part in ("buckets", "clear", "collect", "count", "double", "draw", "histogram", "logits", "parameters", "partial",
                    "philox", "pick", "scan", "score", "u64", "weight")},
    "sampling_accept.wgsl": ("engine_tests GpuSampling.*", "Models/GpuGuesses.GiveTheSameTokens*gemma3*"),
    "seen.wgsl": f"AttentionTiles.*:GpuDecodeOfLong*:{DECODE}",
    "splits.wgsl": f"GpuDecodeOfLong*:{DECODE}",
    "tap_gather.wgsl": DECODE,
    "waiting_sums.wgsl": "OneOrder.*",
    "weight_at.wgsl": "*StoredType*:UploadMatrix.*",
    "weights.wgsl": "*StoredType*:*GemvOf*:Gemv.*",
}

# What may change in a line of code, and into what. Template lines (#if ...) are code too.
REPLACEMENTS = [
    (r"\bworkgroupBarrier\(\);", ""),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \* ", " + "),
    (r" / ", " * "),
    (r" % ", " / "),
    (r" <= ", " < "),
    (r" >= ", " > "),
    (r" < ", " <= "),
    (r" > ", " >= "),
    (r" == ", " != "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r" << ", " >> "),
    (r" >> ", " << "),
    (r" & ", " | "),
    (r"\b(\d+)u\b", lambda m: f"{int(m.group(1)) + 1}u"),
    (r"\b(\d+\.\d+)\b", lambda m: f"({m.group(1)} + 0.01)"),
    (r"\.x\b", ".y"),
    (r"\.y\b", ".x"),
    (r"\.z\b", ".w"),
    (r"\.w\b", ".z"),
    (r"\bmax\(", "min("),
    (r"\bmin\(", "max("),
    (r"\breturn;", ""),
    (r"select\(([^,]+), ([^,]+), ", r"select(\2, \1, "),
    (r"0x0f0f0f0fu", "0x0f0f0f07u"),
    (r"0xf0f0f0f0u", "0xf0f0f070u"),
]

# Changes that no test can see: (file, part of the mutated line, reason).
EQUIVALENT = [
    ("norm.wgsl", "vec4f(sum", "only the first of the four sums is used"),
    ("attention.wgsl", "vec4f(share", "only the first of the four sums is used"),
    ("quantise.wgsl", "let inverse = select((0.0 + 0.01)", "codes of a block of zeros are zero at any scale"),
    ("quantise.wgsl", "#if WIDTH / 4 == 0", "the other branch serves every width"),
    ("reduce.wgsl", "u != 0u) {", "every lane of a subgroup has its sum"),
    ("reduce.wgsl", "u == 1u) {", "every lane of a subgroup has its sum"),
    ("reduce.wgsl", "#if SUBGROUPS", "chooses between two ways to the same sums"),
    ("reduce.wgsl", "#if (1 << k) <= SUBGROUP_SIZE", "llvmpipe wraps lanes around, which no maximum notices"),
    ("reduce.wgsl", "#if (1 >> k) < SUBGROUP_SIZE", "llvmpipe wraps lanes around, which no maximum notices"),
    ("attention.wgsl", "clamp(sum /", "tanh is 1 there already"),
    ("attention.wgsl", "var sum${i} =", "the first tile multiplies it with 0"),
    ("row_sum.wgsl", "if (t <= ${PLACES * R}u) {", "one sum too many, which nobody reads"),
    ("row_sum.wgsl", "u <= ${R}u) {", "llvmpipe runs the subgroup that writes the right value later; a GPU may not"),
    ("attention.wgsl", "var total =", "the first tile multiplies it with 0"),
    ("next_unit.wgsl", "UNITS_K + 1", "units behind the row are masked"),
    ("next_unit.wgsl", "${n} - ${s * 64}u]", "the unit before has the same word, being of the same block of 256"),
    ("guess_tokens.wgsl", "kPlaceBits = 29u", "a text of so many tokens fits no device"),
    ("guess_tokens.wgsl", "candidate.y <= token", "no token is listed twice"),
    ("guess_tokens.wgsl", "if (t != 0u)", "every other thread writes the same"),
    ("guess_tokens.wgsl", "if (t == 1u)", "another thread does the same"),
    ("joined.wgsl", "var bits = vec4u(1u)", "the first try takes its place"),
    ("joined.wgsl", "bits == 1u));", "sums begin above 0 (dot.wgsl), and end there only where all of it cancels"),
    ("joined.wgsl", "tries <= ${TRIES}u", "a try more"),
    ("joined.wgsl", "var tries = 1u", "a try fewer"),
    # await_handed only keeps workgroups from asking too early.
    ("joined.wgsl", "${HANDED + 1}u));", "waits for another value, or not at all"),
    ("joined.wgsl", "!= 1u) {", "does not wait"),
    ("joined.wgsl", "waiting = group.x + ", "waits for another workgroup"),
    ("joined.wgsl", "waiting = group.y - ", "waits for another workgroup"),
    ("joined.wgsl", "${THREADS}u - t; i <", "other threads clear the same words"),
    ("joined.wgsl", "${FIRST + THREADS}u) {", "words are cleared more than once"),
    ("joined.wgsl", "i <= ${WORDS}u", "a word more, behind the last one"),
    ("joined.wgsl", "${FIRST + SECOND}u, group.x, group.z)", "one row of activations: y is 0 wherever it counts"),
    ("joined.wgsl", "tries += 2u", "half as many tries"),
    ("gemv_columns.wgsl", "var sum${c}_${n} = (0.0", "the first unit's sum takes its place"),
    ("gemv_columns.wgsl", "${UNITS_K + 1}u);", "units behind the row are masked"),
    ("gemv_columns.wgsl", "if (done < ${UNITS + 1}u)", "loads of a unit more, which nobody multiplies"),
    ("gemv_columns.wgsl", "if (done <= ${UNITS - 1}u)", "loads of a unit more, which nobody multiplies"),
    ("gemv_columns.wgsl", "count + 1u);", "what columns beyond the last one get is not stored"),
    ("gemv_columns.wgsl", "if (to <= ${ROWS}u)", "up's weights behind its last row are zeros"),
    ("gemv_columns.wgsl", "/ 4 + 1}u) * 4u", "what threads beyond the last word make is not stored"),
    ("gemv_columns.wgsl", "* 4 - 1}u) * 4u", "what threads beyond the last word make is not stored"),
    ("gemv_columns.wgsl", "ROWS_HERE * 4}u && column", "the workgroup of the next columns comes later on llvmpipe"),
    ("gemv_columns.wgsl", "if (i <= ${COLUMNS", "the workgroup of the next columns comes later on llvmpipe"),
    ("gemv_columns.wgsl", "& 7u) != 0u", "the eight threads of a block have the same scale and sum"),
    ("gemv_columns.wgsl", "& 7u) == 1u", "the eight threads of a block have the same scale and sum"),
    # Unrolled once too often, behind a guard.
    ("gemv_columns.wgsl", "THREADS + 1) / THREADS", "words beyond the last one are guarded"),
    ("gemv_columns.wgsl", "ROWS_HERE * 4 + THREADS", "words beyond the last one are guarded"),
    ("batch_norm.wgsl", "THREADS + 1) / THREADS", "vectors beyond the row are guarded"),
    ("batch_norm.wgsl", "#define VECS (WIDTH * 4", "vectors beyond the row are guarded"),
    ("norm_prologue.wgsl", "THREADS + 1) / THREADS", "vectors beyond the row are guarded"),
    ("combine_prologue.wgsl", "THREADS + 1) / THREADS", "vectors beyond the row are guarded"),
    ("rope_append.wgsl", "#define EACH (DIM + TPH + 1)", "lanes beyond the head are guarded"),
    ("front_rows.wgsl", "${THREADS}u - t", "another thread takes the same column"),
    ("gemm.wgsl", "THREADS + 1) / THREADS", "loads beyond the tile are guarded"),
    ("dot.wgsl", "#for g in 0..2 + 2 + (GROUPS_16)", "two scales more, which nobody reads"),
    # Sums and maxima of a vector of which one component counts.
    ("rope_append.wgsl", "vec4f(squares, ", "only the first of the four sums is used"),
    ("norm_sums.wgsl", "vec4f(four_products(h${i}, h${i}), (0.0", "only the first of the four sums is used"),
    ("norm_sums.wgsl", "vec4f(four_products(h${i}, h${i}), 0.0, (0.0", "only the first of the four sums is used"),
    ("norm_sums.wgsl", "vec4f(four_products(h${i}, h${i}), 0.0, 0.0, (0.0", "only the first of the four sums is used"),
    ("gemv.wgsl", "row_sum(vec2f(sum0, (0.0", "only the first of the two sums is used"),
    # What several threads know alike, another one stores.
    ("batch_quantise.wgsl", "& 7u) != 0u", "the eight threads of a block have the same scale and sum"),
    ("batch_quantise.wgsl", "& 7u) == 1u", "the eight threads of a block have the same scale and sum"),
    ("batch_norm.wgsl", "& 7u) != 0u", "the eight threads of a block have the same scale and sum"),
    ("batch_norm.wgsl", "& 7u) == 1u", "the eight threads of a block have the same scale and sum"),
    ("prologue_x.wgsl", "& 7u) != 0u", "the eight threads of a block have the same scale and sum"),
    ("next_token.wgsl", "group.x == 0u && t == 1u", "every thread knows the token"),
    ("best_of_workgroup.wgsl", "row <= best_rows[t]", "equals of the same row are the same"),
    ("best_of_workgroup.wgsl", "if (t <= width)", "a candidate more, which counts twice"),
    ("next_token.wgsl", "candidate.y <= best_row", "equals of the same row are the same"),
    ("likeliest.wgsl", "if (t != 0u)", "every thread knows the best"),
    ("likeliest.wgsl", "if (t == 1u)", "every thread knows the best"),
    ("stream_products.wgsl", "#if (1 << k) <= UNITS", "a place more, which nothing uses"),
    ("stream_products.wgsl", "#if (1 >> k) < UNITS", "places more, which nothing uses"),
    ("stream_products.wgsl", "var kept${n}_${k} = (0.0", "stored before it is read"),
    ("stream_products.wgsl", "var sum${n} = (0.0", "stored by a round, or made 0 behind them (left_rounds.wgsl)"),
    ("stream_products.wgsl", "#if q - 2 < STEPS", "loads more, which nothing uses"),
    ("stream_products.wgsl", "#if q + 2 <= STEPS", "loads more, which nothing uses"),
    ("stream_products.wgsl", "if (unit + 1u <= end)", "loads more, which nothing uses"),
    ("combined.wgsl", "if (first <= splits.count)", "what is beyond the last split weighs nothing"),
    ("prologue_x.wgsl", "subgroupShuffleXor(most, 3u)", "the same four, in another order"),
    ("prologue_x.wgsl", "subgroupShuffleXor(most, 5u)", "the same eight, in another order"),
    ("prologue_x.wgsl", "subgroupShuffleXor(sum, 3u)", "the same four, in another order"),
    ("prologue_x.wgsl", "subgroupShuffleXor(sum, 5u)", "the same eight, in another order"),
    ("rope_append.wgsl", "(head + ${HEADS}u) % ${KV_HEADS}u", "another workgroup takes the same head"),
    # t + n * THREADS modulo or divided by what divides THREADS.
    ("gemm_float.wgsl", "(t - ${n * THREADS}u) % ${", "THREADS is a multiple of the divisor"),
    ("gemm_float.wgsl", "let v = (t + ${n + THREADS}u) % ${KV}u", "neighbours exchange their loads"),
    ("gemm.wgsl", "= (t - ${n * THREADS}u) % ${", "THREADS is a multiple of the divisor"),
    ("gemm.wgsl", "min(row0 + (t - ${n * THREADS}u) % ${TN}u", "THREADS is a multiple of the divisor"),
    ("gemm.wgsl", "(t - ${n * THREADS}u) % ${TN}u;", "THREADS is a multiple of the divisor"),
    # Beyond the end: what is read there meets a zero, or nobody stores what comes of it.
    ("gemm_float.wgsl", "#define LAST_ROW", "tiles of 64 rows end where the weights' own tiles of 64 do"),
    ("gemm_float.wgsl", "at <= ${UNITS_K * 16}u", "a step more, whose activations are zero"),
    ("gemm_float.wgsl", "tokens + 1u), at + v)", "what tokens beyond the last one get is not stored"),
    ("gemm.wgsl", "if (at <= end)", "loads of a step more, which nobody multiplies"),
    ("gemm.wgsl", "var w${n} = vec4u(1u)", "loaded in the first round, before any is stored"),
    ("gemm.wgsl", "var x${n} = vec4u(1u)", "loaded in the first round, before any is stored"),
    ("rope_append.wgsl", "head <= ${TOTAL}u", "what the heads beyond the last one get is not stored"),
    ("norm_prologue.wgsl", "var w${i} = vec4f((0.0", "used within the row only, where it has been loaded"),
    ("combined.wgsl", "if (splits.count < 8u)", "an eight more, whose splits all weigh nothing"),
    ("combined.wgsl", "Share(-3.0e38, (", "what is not there weighs nothing"),
    ("combined.wgsl", "0.0, vec4f((0.0", "what is not there weighs nothing"),
    ("combined.wgsl", "+ 7u) * 8u", "eights more, whose splits all weigh nothing"),
    ("combined.wgsl", "splits.count + 8u", "an eight more, whose splits all weigh nothing"),
    ("combined.wgsl", "eight <= eights", "an eight more, whose splits all weigh nothing"),
    ("combined.wgsl", "var total = (0.0", "the first round multiplies it with 0"),
    ("combined.wgsl", "var sum = vec4f((0.0", "the first round multiplies it with 0"),
    ("combine_prologue.wgsl", "var x = vec4f((0.0", "beyond the row, where the weights are zero"),
    ("gemv.wgsl", "return vec4f((0.0", "beyond the row, where the weights are zero"),
    ("gemv.wgsl", "var v = vec4f((0.0", "beyond the row, where the weights are zero"),
    ("prologue_x.wgsl", "select((0.0", "codes of a block of zeros are zero at any scale"),
    ("gemv.wgsl", "select((0.0", "codes of a block of zeros are zero at any scale"),
    # Two ways to the same result.
    ("norm_sums.wgsl", "if (square <= 0.0625", "moves the threshold between two ways to the same sum"),
    ("norm_sums.wgsl", "if (square < (0.0625", "moves the threshold between two ways to the same sum"),
    ("norm_sums.wgsl", "if (square < 0.0625 +", "always takes the more exact of two ways to the same sum"),
    ("seen.wgsl", "position + 1u >= ${WINDOW}u", "a window that just fits begins at 0 either way"),
    ("seen.wgsl", "position + 2u > ${WINDOW}u", "a window that just fits begins at 0 either way"),
    ("splits.wgsl", "s.end + s.begin", "splits beyond the end, which weigh nothing"),
    ("attention_tiled.wgsl", "#if DIM / 4 == 0", "the other branch serves every width"),
    ("attention_tiled.wgsl", "= Vec((0.0", "the first tile multiplies it with 0"),
    ("head.wgsl", "${TILES + 1}u", "loads of a tile more, which nobody multiplies"),
    ("gemv.wgsl", "#if WIDTH / 64 == 0", "the other branch serves every width"),
    ("gemv.wgsl", "${UNITS_K + 1}u)", "what lanes beyond the last unit load is not added"),
    ("gemv.wgsl", "if ((t & 1u) != 0u)", "the two threads of a block swap their halves"),
    ("gemv.wgsl", "if ((t & 1u) == 1u)", "the two threads of a block swap their halves"),
    ("splits.wgsl", "s.each = 3", "another split of the same sum"),
    ("attention_decode.wgsl", "(range.count - 1u) / ", "another workgroup appends the same"),
    ("attention_decode.wgsl", "end + 1u", "what is read beyond the end is not seen"),
    ("attention_decode.wgsl", "goes_on) + 1u", "what is read beyond the end is not seen"),
    ("attention_decode.wgsl", "* ${CAPACITY}u != group.x", "the page is asked for where it is known"),
    ("attention_decode.wgsl", "${PAGE_ROW + 1}u", "a split beyond the pages has no positions"),
    ("attention_decode.wgsl", "${QUADS + 1}u", "what threads beyond the head load is not used"),
    ("attention_decode.wgsl", "select(1u, min(d", "angles of what does not turn"),
    ("attention_decode.wgsl", "quad${e} <= ${QUADS}u", "another thread stores the same there"),
    ("attention_decode.wgsl", "<= ${G}u || quad", "another team stores the same key"),
    ("attention_decode.wgsl", "later <= range.end", "loads of a split more, which nobody uses"),
    ("attention_decode.wgsl", "if (next <= end)", "loads of a round more, which nobody uses"),
    ("gemm.wgsl", "${TM + 1}u", "what is loaded beyond the tile is not stored"),
    ("gemm.wgsl", "${UNITS_K * 4 + 1}u", "what lies after the last unit meets scales of zero"),
    ("gemm.wgsl", "#if SPLITS >= 1", "one part of one is the whole"),
    ("gemm.wgsl", "(STEPS + SPLITS - 1) * SPLITS", "one part instead of many; the others add nothing"),
    ("row_sum.wgsl", "#define SHUFFLES", "chooses between two ways to the same sums"),
]


def mutants(name):
    lines = (SHADERS / name).read_text().split("\n")
    seen = set()
    for number, line in enumerate(lines):
        code = line.split("//")[0]
        if not code.strip() or "@group" in code or "#include" in code or code.startswith("fn ") and "{" in code and "}" not in code:
            continue
        for pattern, replacement in REPLACEMENTS:
            for match in re.finditer(pattern, code):
                changed = code[: match.start()] + match.expand(replacement) * (not callable(replacement)) + code[match.end():] \
                    if not callable(replacement) else code[: match.start()] + replacement(match) + code[match.end():]
                if changed == code or (number, changed) in seen:
                    continue
                seen.add((number, changed))
                yield number, code, changed, "\n".join(lines[:number] + [changed] + lines[number + 1:])


def outcome(programs, folder, tests, limit):
    """passes, fails, or dies (which is noticed as well); the quickest tests first would not help: one run has all."""
    room, _, tests = f"backend_tests {tests}".rpartition(" ")
    program = pathlib.Path(programs, room.split()[-1]).resolve()
    try:
        run = subprocess.run([program, f"--gtest_filter={tests}", "--gtest_brief=1", "--gtest_fail_fast"],
                             env={**os.environ, "DOPPLER_TEST_SHADERS": str(folder)}, capture_output=True, text=True,
                             timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    if run.returncode == 0:
        return "passes"
    if "does not compile" in run.stdout or "is wrong in line" in run.stdout:
        return "does not compile"
    return "fails" if run.returncode == 1 else f"dies ({run.returncode})"


def tried(programs, name, text, limit):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, name).write_text(text)
        tests = TESTS[name]
        for each in (tests,) if isinstance(tests, str) else tests:
            found = outcome(programs, folder, each, limit)
            if found != "passes":
                break
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs")
    parser.add_argument("shaders", nargs="*", default=[], help="only these files")
    parser.add_argument("--every", type=int, default=1, help="every N-th mutant only")
    parser.add_argument("--lines", default="", help="those of these lines only, as in 12,30")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at the same time")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a mutant counts as hanging")
    parser.add_argument("--list", action="store_true", help="show the mutants, run nothing")
    arguments = parser.parse_args()
    lines = [int(line) for line in arguments.lines.split(",") if line]
    chosen = [(name, *mutant) for name in arguments.shaders or sorted(TESTS)
              for mutant in list(mutants(name))[::arguments.every] if not lines or mutant[0] + 1 in lines]
    if arguments.list:
        for name, number, _, after, _ in chosen:
            print(f"{name}:{number + 1}: {after.strip()}")
        return 0
    survivors, counts, start = 0, {}, time.time()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda m: tried(arguments.programs, m[0], m[4], arguments.limit), chosen)
        for (name, number, before, after, _), result in zip(chosen, results):
            counts.setdefault(name, {}).setdefault(result, 0)
            counts[name][result] += 1
            if result != "passes" or any(file == name and part in after for file, part, _ in EQUIVALENT):
                continue
            survivors += 1
            print(f"SURVIVES {name}:{number + 1}\n  - {before.strip()}\n  + {after.strip()}", flush=True)
    for name, outcomes in counts.items():
        print(f"{name}: {outcomes}")
    print(f"{len(chosen)} mutants in {time.time() - start:.0f} s; {survivors} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
