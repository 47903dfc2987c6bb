// Takes the token that was chosen for each of the sequences that grow together, appends it to the ring of results and makes it
// the sequence's next: id and position in `step`. A sequence that has ended stays where it is: its last step is computed
// again, with the same result. Workgroups: x over the sequences' rows.
//
// Template values (sequences_runner.cpp): CANDIDATES of a row, each as in head.wgsl; VOCAB tokens; RING entries of the ring, each
// MOST words, one for each row; IDS, POSITIONS words of `step` where the rows' ids and positions begin; ROW_WORDS words of a
// row in `rows`:
//   0 steps that the ring has had, 1 tokens still to come, 2 whether the sampler chooses (chosen[row]), else the candidates
//   decide, 3 the number of tokens that end the sequence, and then these
// Token 0xffffffff: none could be chosen; the sequence ends.
@group(0) @binding(0) var<storage, read_write> step : array<u32>;
@group(0) @binding(1) var<storage, read_write> ring : array<u32>;
@group(0) @binding(2) var<storage, read> candidates : array<vec2u>;
@group(0) @binding(3) var<storage, read> chosen : array<u32>;
@group(0) @binding(4) var<storage, read_write> rows : array<u32>;
#include "best_of_workgroup.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let row = group.x;
  var best = -3.4e38;
  var best_row = 0xffffffffu;
  for (var i = t; i < ${CANDIDATES}u; i += ${THREADS}u) {
    let candidate = candidates[row * ${CANDIDATES}u + i];
    let value = bitcast<f32>(candidate.x);
    if (value > best || (value == best && candidate.y < best_row)) {
      best = value;
      best_row = candidate.y;
    }
  }
  best_values[t] = best;
  best_rows[t] = best_row;
  find_best_of_workgroup(t);
  if (t == 0u) {
    let at = row * ${ROW_WORDS}u;
    let found = select(best_rows[0], chosen[row], rows[at + 2u] != 0u);
    let token = select(found, 0xffffffffu, found >= ${VOCAB}u);
    let count = rows[at];
    let left = rows[at + 1u];
    ring[(count % ${RING}u) * ${MOST}u + row] = token;
    rows[at] = count + 1u;
    var ends = left <= 1u || token == 0xffffffffu;
    for (var i = 0u; i < rows[at + 3u]; i++) {
      ends = ends || token == rows[at + 4u + i];
    }
    if (ends) {
      rows[at + 1u] = 0u;
    } else {
      rows[at + 1u] = left - 1u;
      step[${IDS}u + row] = token;
      step[${POSITIONS}u + row] += 1u;
    }
  }
}
