// Activations in blocks of 32: codes of 8 bits, and for each block (scale, scale * sum of codes). Values beyond the
// width, up to the next multiple of 64, are zero. A thread takes a block. Workgroups: x over blocks, y over tokens.
//   x8 [token][block][2]: sixteen signed bytes each; xs [token][block]
// WIDTH values of a row, UNITS_K units of 64 that cover them; a token's row of x begins at float token * X_STRIDE + X_OFFSET.
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read_write> x8 : array<vec4u>;
@group(0) @binding(2) var<storage, read_write> xs : array<vec2f>;
#define BLOCKS UNITS_K * 2
#include "quantise_block.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let block = group.x * ${THREADS}u + t;
  if (block >= ${BLOCKS}u) {
    return;
  }
  let base_at = token * ${X_STRIDE}u + ${X_OFFSET}u + block * 32u;
#for i in 0..8
  var v${i} = vec4f(0.0);
#if WIDTH % 4 == 0
  if (block * 32u + ${4 * i}u < ${WIDTH}u) {
    v${i} = vec4f(x[base_at + ${4 * i}u], x[base_at + ${4 * i + 1}u], x[base_at + ${4 * i + 2}u], x[base_at + ${4 * i + 3}u]);
  }
#else
#for e in 0..4
  if (block * 32u + ${4 * i + e}u < ${WIDTH}u) {
    v${i}[${e}] = x[base_at + ${4 * i + e}u];
  }
#endfor
#endif
#endfor
  var most = 0.0;
#for i in 0..8
  most = max(most, largest(v${i}));
#endfor
  let scale = most / 127.0;
  let inverse = select(0.0, 127.0 / most, most > 0.0);
  var sum = 0;
#for i in 0..8
  let c${i} = codes_of(v${i}, inverse);
  sum += c${i}.x + c${i}.y + c${i}.z + c${i}.w;
#endfor
  let at = token * ${BLOCKS}u + block;
  x8[2u * at] = vec4u(pack4xI8(c0), pack4xI8(c1), pack4xI8(c2), pack4xI8(c3));
  x8[2u * at + 1u] = vec4u(pack4xI8(c4), pack4xI8(c5), pack4xI8(c6), pack4xI8(c7));
  xs[at] = vec2f(scale, scale * f32(sum));
}
