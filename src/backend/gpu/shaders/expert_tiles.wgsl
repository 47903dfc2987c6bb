// Sorts a step's rows by expert, for gemm.wgsl: a token has CHOSEN rows, number token * CHOSEN + place. One workgroup.
//   order [row]: the rows' numbers, expert after expert; within an expert in no order that matters, since each of its rows
//     is multiplied by itself
//   tiles: of at most TM rows of one expert each, (expert, first of them in order, how many, 0); beyond the last tile zeros,
//     up to as many as there may be
// Template values (batch_experts.cpp): EXPERTS, CHOSEN, TM; COUNT the word of `step` with the number of tokens. A token's ids
// begin at float token * IDS_STRIDE + IDS_OFFSET.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> ids : array<f32>;
@group(0) @binding(2) var<storage, read_write> order : array<u32>;
@group(0) @binding(3) var<storage, read_write> tiles : array<vec4u>;
var<workgroup> counts : array<atomic<u32>, ${EXPERTS}>;  // rows of each expert
var<workgroup> nexts : array<atomic<u32>, ${EXPERTS}>;  // and where its next one goes
var<workgroup> first_tiles : array<u32, ${EXPERTS}>;
var<workgroup> tile_count : u32;

fn expert_of(row : u32) -> u32 {
  let id = ids[row / ${CHOSEN}u * ${IDS_STRIDE}u + ${IDS_OFFSET}u + row % ${CHOSEN}u];
  return min(u32(max(id, 0.0)), ${EXPERTS - 1}u);
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(local_invocation_index) t : u32) {
  let rows = step[${COUNT}u] * ${CHOSEN}u;
  for (var e = t; e < ${EXPERTS}u; e += ${THREADS}u) {
    atomicStore(&counts[e], 0u);
  }
  workgroupBarrier();
  for (var row = t; row < rows; row += ${THREADS}u) {
    atomicAdd(&counts[expert_of(row)], 1u);
  }
  workgroupBarrier();
  if (t == 0u) {
    var at = 0u;
    var tile = 0u;
    for (var e = 0u; e < ${EXPERTS}u; e++) {
      let count = atomicLoad(&counts[e]);
      atomicStore(&nexts[e], at);
      first_tiles[e] = tile;
      at += count;
      tile += (count + ${TM - 1}u) / ${TM}u;
    }
    tile_count = tile;
  }
  workgroupBarrier();
  for (var e = t; e < ${EXPERTS}u; e += ${THREADS}u) {
    let count = atomicLoad(&counts[e]);
    let first = atomicLoad(&nexts[e]);
    for (var done = 0u; done < count; done += ${TM}u) {
      tiles[first_tiles[e] + done / ${TM}u] = vec4u(e, first + done, min(count - done, ${TM}u), 0u);
    }
  }
  for (var i = tile_count + t; i < (rows + ${TM - 1}u) / ${TM}u + ${EXPERTS}u; i += ${THREADS}u) {
    tiles[i] = vec4u(0u);
  }
  workgroupBarrier();
  for (var row = t; row < rows; row += ${THREADS}u) {
    order[atomicAdd(&nexts[expert_of(row)], 1u)] = row;
  }
}
