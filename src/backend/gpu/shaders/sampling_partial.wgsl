// The result of a workgroup of sampling_scan.wgsl for its part of the vocabulary: keys of scores (key_of() in
// sampling_double.wgsl), 0 as the largest where every token is ruled out.
struct Partial {
  largest : vec2u,
  smallest : vec2u,
  id : u32,   // of the largest
  bad : u32,  // a logit is NaN or +Inf
}
