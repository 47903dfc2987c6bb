// What a workgroup of sampling_scan.wgsl found in its part of the vocabulary; the numbers are doubles as two words.
struct Partial {
  largest : vec2u,
  smallest : vec2u,
  id : u32,   // of the largest
  bad : u32,  // a logit is NaN or +Inf
}
