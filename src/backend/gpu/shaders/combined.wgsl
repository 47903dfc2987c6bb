// Four values of an attention's result (vector v of [token][head][DIM / 4]), from the partial results of its splits:
//   parts [token][head][MOST_SPLITS][DIM / 4]: the values' mean by its shares, KV_HALF 1: in f16, which holds it where it holds the values
//   marks [token][head][MOST_SPLITS]: (maximum score, sum of shares, relative to it)
//   sinks [head], where SINKS is 1: a score for each head that only adds to the shares' sum
// Template values (split_attention.cpp): DIM a head's size, WIDTH heads * DIM, MOST_SPLITS and WINDOW see splits.wgsl, or, where PARTED
// is 1, prompt_parts.wgsl, with PART; POSITIONS the word of `step` with the token's position.
#default PARTED 0
#if PARTED
#include "prompt_parts.wgsl"
#else
#include "splits.wgsl"
#endif
#define HEAD_VECS DIM / 4
#define EIGHTS (MOST_SPLITS + 7) / 8

fn part_at(i : u32) -> vec4f {
#if KV_HALF
  let halves = parts[i];
  return vec4f(unpack2x16float(halves.x), unpack2x16float(halves.y));
#else
  return parts[i];
#endif
}

struct Share {  // what some splits give together
  most : f32,
  total : f32,
  sum : vec4f,
}
// Eight splits from `first` on, as far as they are there, whose loads are under way at a time. The first has the sink, too.
fn share_of(v : u32, first : u32, splits : Splits) -> Share {
  let head = v / ${HEAD_VECS}u;
  let at = head * ${MOST_SPLITS}u;
  var most = -3.0e38;
  var total = 0.0;
#if SINKS
  if (first == 0u) {
    most = sinks[head % ${WIDTH / DIM}u];
    total = 1.0;
  }
#endif
  var sum = vec4f(0.0);
  if (first < splits.count) {
#for i in 0..8
    // m, p: mark and part of split first + i; w: its weight once all have one maximum.
    let at${i} = at + place_of(splits, min(first + ${i}u, splits.count - 1u));
    let m${i} = marks[at${i}];
    let p${i} = part_at(at${i} * ${HEAD_VECS}u + v % ${HEAD_VECS}u);
#endfor
    let before = most;
    most = max(most, max(max(max(m0.x, m1.x), max(m2.x, m3.x)), max(max(m4.x, m5.x), max(m6.x, m7.x))));
    let fade = exp(before - most);
    total *= fade;
    sum *= fade;
    // The shares' sum is multiplied where it is added, by fma(): a driver that joined the two itself, in one kernel and not in another, would give other bits.
#for i in 0..8
    let w${i} = select(0.0, exp(m${i}.x - most), first + ${i}u < splits.count);
    total = fma(m${i}.y, w${i}, total);
    sum = fma(p${i}, vec4f(m${i}.y * w${i}), sum);
#endfor
  }
  return Share(most, total, sum);
}
// All splits, as attention_combine.wgsl adds them.
fn combined(v : u32, splits : Splits) -> vec4f {
  let share0 = share_of(v, 0u, splits);
  if (splits.count <= 8u) {
    return share0.sum / share0.total;
  }
  // A loop: with each eight of 64 written out a driver took 0.5 s for a joined kernel that it makes in 0.3 so (H200).
#for b in 1..EIGHTS
  var share${b} = Share(-3.0e38, 0.0, vec4f(0.0));
#endfor
  let eights = (splits.count + 7u) / 8u;
  for (var eight = 1u; eight < eights; eight++) {
    let share = share_of(v, 8u * eight, splits);
#for b in 1..EIGHTS
    if (eight == ${b}u) {
      share${b} = share;
    }
#endfor
  }
  var most = share0.most;
#for b in 1..EIGHTS
  most = max(most, share${b}.most);
#endfor
  var total = 0.0;
  var sum = vec4f(0.0);
#for b in 0..EIGHTS
  let weight${b} = exp(share${b}.most - most);
  total = fma(share${b}.total, weight${b}, total);
  sum = fma(share${b}.sum, vec4f(weight${b}), sum);
#endfor
  return sum / total;
}
