// Gathers a token's stages from the buffers where they lie into its part of a ring. A workgroup copies one of CHUNKS chunks:
// (source, first word there, first word of the token's part, words). Workgroups: x ACROSS, y rows of as many.
// Template values (tap_ring.cpp): SOURCES buffers, 1 to 5; the ring has CAPACITY tokens of STRIDE words; COUNTED the word of
// `step` with the tokens so far.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> chunks : array<vec4u>;
@group(0) @binding(2) var<storage, read_write> ring : array<u32>;
#for i in 0..SOURCES
@group(0) @binding(${3 + i}) var<storage, read> source${i} : array<u32>;
#endfor

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let index = group.y * ${ACROSS}u + group.x;
  if (index >= ${CHUNKS}u) {
    return;
  }
  let chunk = chunks[index];
  let to = (step[${COUNTED}] % ${CAPACITY}u) * ${STRIDE}u + chunk.z;
#for i in 0..SOURCES
  if (chunk.x == ${i}u && t < chunk.w) {
    ring[to + t] = source${i}[chunk.y + t];
  }
#endfor
}
