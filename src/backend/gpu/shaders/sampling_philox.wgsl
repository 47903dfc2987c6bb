// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), as engine/philox.h.
#include "sampling_u64.wgsl"

// Uniform in [0, 1) with 53 bits, in units of 2^-64: draw `index` of `seed`.
fn uniform_share(seed : vec2u, index : vec2u) -> vec2u {
  var counter = vec4u(index.y, index.x, 0u, 0u);
  var key = vec2u(seed.y, seed.x);
  for (var i = 0u; i < 10u; i += 1u) {
    let product0 = mul32(0xD2511F53u, counter.x);  // the paper's constants
    let product1 = mul32(0xCD9E8D57u, counter.z);
    counter = vec4u(product1.x ^ counter.y ^ key.x, product1.y, product0.x ^ counter.w ^ key.y, product0.y);
    key += vec2u(0x9E3779B9u, 0xBB67AE85u);
  }
  return vec2u(counter.x, counter.y & 0xfffff800u);
}
