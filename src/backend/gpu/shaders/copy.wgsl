// Copies words from one buffer to another of the same length: the smallest kernel, for trying out a device.
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> copied: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if id.x < arrayLength(&copied) {
    copied[id.x] = source[id.x];
  }
}
