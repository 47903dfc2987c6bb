// FILL 1: writes words without a pattern, which memory that compresses cannot shrink. FILL 0: reads every word once, as
// fast as the device can. ITEMS: vectors of 16 bytes a thread (bandwidth.cpp). Workgroups: x over pieces of
// THREADS * ITEMS vectors.
#if FILL
@group(0) @binding(0) var<storage, read_write> data : array<vec4u>;

// The murmur3 finaliser.
fn scrambled(i : u32) -> u32 {
  var h = i;
  h = (h ^ (h >> 16u)) * 0x85ebca6bu;
  h = (h ^ (h >> 13u)) * 0xc2b2ae35u;
  return h ^ (h >> 16u);
}
#else
@group(0) @binding(0) var<storage, read> data : array<vec4u>;
@group(0) @binding(1) var<storage, read_write> out : array<u32>;
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let first = group.x * ${THREADS * ITEMS}u + t;
#if FILL
#for j in 0..ITEMS
  data[first + ${j * THREADS}u] = vec4u(scrambled(first + ${j * THREADS}u)) * vec4u(1u, 3u, 5u, 7u);
#endfor
#else
  var seen = vec4u(0u);
#for j in 0..ITEMS
  seen ^= data[first + ${j * THREADS}u];
#endfor
  let word = seen.x ^ seen.y ^ seen.z ^ seen.w;
  // So rare that writing costs nothing, and so possible that reading cannot be left out.
  if (word == 0x9e3779b9u) {
    out[0] = word;
  }
#endif
}
