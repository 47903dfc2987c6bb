// What norm_sums.wgsl needs outside of a function. Includer: POST, NORM, EXPANDED, THREADS and, as ordered_sum.wgsl, TERMS.
#if POST && NORM && EXPANDED
alias Term = vec4f;
#if STRICT_BARRIERS
var<workgroup> cancels : u32;
#endif
#else
alias Term = f32;
#endif
#include "ordered_sum.wgsl"
#include "plus_products.wgsl"
