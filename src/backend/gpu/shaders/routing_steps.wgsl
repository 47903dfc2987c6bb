// The experts of a token as the plan's ops kChoose and kWeigh have them (backend/routing.cpp): id<i> the i-th best, w<i> * factor
// what it counts. A text for the middle of a main() that has `router`, the number of the thread among ROUTER_THREADS, and
// from_logits, where the token's `logits` begin; with CHOOSES 0 also from_ids in `ids`. With ALONE 1 every subgroup that runs it
// gets the same. Template values: see route.wgsl.
#if ALONE
#for e in 0..OWN
  // e: the thread's expert, has: there is one, l: its logit.
  let e${e} = router + ${e * ROUTER_THREADS}u;
  let has${e} = e${e} < ${EXPERTS}u;
  let l${e} = select(-3.0e38, logits[from_logits + min(e${e}, ${EXPERTS - 1}u)], has${e});
#endfor
#endif
#if SCORE == 0
  // The softmax over all experts.
  var largest = -3.0e38;
  var sum = 0.0;
#if ALONE
#for e in 0..OWN
  largest = max(largest, l${e});
#endfor
  largest = subgroup_max(largest);
#for e in 0..OWN
  sum += select(0.0, exp(l${e} - largest), has${e});
#endfor
  let all = subgroup_sum(vec4f(sum, 0.0, 0.0, 0.0)).x;
#else
  for (var e = router; e < ${EXPERTS}u; e += ${ROUTER_THREADS}u) {
    largest = max(largest, logits[from_logits + e]);
  }
  largest = workgroup_max(largest, router);
  for (var e = router; e < ${EXPERTS}u; e += ${ROUTER_THREADS}u) {
    sum += exp(logits[from_logits + e] - largest);
  }
  let all = workgroup_sum(vec4f(sum, 0.0, 0.0, 0.0), router).x;
#endif
#endif
#if CHOOSES
#if ALONE
#for e in 0..OWN
#if SCORE == 0
  var score${e} = exp(l${e} - largest) / all;
#elif SCORE == 1
  var score${e} = logistic(l${e});
#else
  var score${e} = l${e};
#endif
#if CORRECTED
  score${e} += corrections[min(e${e}, ${EXPERTS - 1}u)];
#endif
#if SHUTS
  if (has${e}) {
    scores[e${e}] = score${e};
  }
#endif
#endfor
#else
  for (var e = router; e < ${EXPERTS}u; e += ${ROUTER_THREADS}u) {
#if SCORE == 0
    var score = exp(logits[from_logits + e] - largest) / all;
#elif SCORE == 1
    var score = logistic(logits[from_logits + e]);
#else
    var score = logits[from_logits + e];
#endif
#if CORRECTED
    score += corrections[e];
#endif
    scores[e] = select(score, 3.0e38, is_nan(score));
    taken[e] = 0u;
  }
#endif
#if SHUTS || !(ALONE)
  workgroupBarrier();
#endif
#if SHUTS
  for (var g = router; g < ${GROUPS}u; g += ${ROUTER_THREADS}u) {
    // The best ones are taken out one by one; those before the last are known by their score and place.
    var total = 0.0;
    var last_score = 3.0e38;
    var last = 0u;
    for (var i = 0u; i < ${GROUP_BEST}u && i < ${GROUP_SIZE}u; i++) {
      var found = 0xffffffffu;
      for (var e = g * ${GROUP_SIZE}u; e < (g + 1u) * ${GROUP_SIZE}u; e++) {
        let later = i == 0u || scores[e] < last_score || (scores[e] == last_score && e > last);
        if (later && (found == 0xffffffffu || scores[e] > scores[found])) {
          found = e;
        }
      }
      found = min(found, ${EXPERTS - 1}u);
      last_score = scores[found];
      last = found;
      total += last_score;
    }
    group_scores[g] = total;
    kept[g] = 0u;
  }
  workgroupBarrier();
  if (router == 0u) {
    for (var i = 0u; i < ${KEPT_GROUPS}u; i++) {
      var found = 0xffffffffu;
      for (var g = 0u; g < ${GROUPS}u; g++) {
        if (kept[g] == 0u && (found == 0xffffffffu || group_scores[g] > group_scores[found])) {
          found = g;
        }
      }
      kept[min(found, ${GROUPS - 1}u)] = 1u;
    }
  }
  workgroupBarrier();
#if !(ALONE)
  for (var e = router; e < ${EXPERTS}u; e += ${ROUTER_THREADS}u) {
    taken[e] = 1u - kept[e / ${GROUP_SIZE}u];
  }
  workgroupBarrier();
#endif
#endif
#if ALONE
#for e in 0..OWN
#if SHUTS
  var key${e} = select(0u, key_of(score${e}), has${e} && kept[min(e${e}, ${EXPERTS - 1}u) / ${GROUP_SIZE}u] == 1u);
#else
  var key${e} = select(0u, key_of(score${e}), has${e});
#endif
#endfor
#for i in 0..CHOSEN
  // The largest key that is left, and the first expert that has it.
  var most${i} = key0;
#for e in 1..OWN
  most${i} = max(most${i}, key${e});
#endfor
  most${i} = subgroupMax(most${i});
  var first${i} = 0xffffffffu;
#for e in 0..OWN
  first${i} = min(first${i}, select(0xffffffffu, e${e}, key${e} == most${i}));
#endfor
  let id${i} = min(subgroupMin(first${i}), ${EXPERTS - 1}u);
#for e in 0..OWN
  key${e} = select(key${e}, 0u, e${e} == id${i});
#endfor
#endfor
#else
  for (var i = 0u; i < ${CHOSEN}u; i++) {
    var best = 0xffffffffu;
    var best_score = 0.0;
    for (var e = router; e < ${EXPERTS}u; e += ${ROUTER_THREADS}u) {
      if (taken[e] == 0u && goes_before(scores[e], e, best_score, best)) {
        best = e;
        best_score = scores[e];
      }
    }
    best_ids[router] = best;
    best_scores[router] = best_score;
    workgroupBarrier();
    for (var width = ${ROUTER_THREADS / 2}u; width > 0u; width /= 2u) {
      if (router < width && goes_before(best_scores[router + width], best_ids[router + width], best_scores[router], best_ids[router])) {
        best_scores[router] = best_scores[router + width];
        best_ids[router] = best_ids[router + width];
      }
      workgroupBarrier();
    }
    let id = min(best_ids[0], ${EXPERTS - 1}u);
    if (router == 0u) {
      taken[id] = 1u;
      chosen[i] = id;
    }
    workgroupBarrier();
  }
#endif
#endif
#for i in 0..CHOSEN
#if CHOOSES && !(ALONE)
  let id${i} = chosen[${i}];
#elif !(CHOOSES)
  let id${i} = min(u32(max(ids[from_ids + ${i}u], 0.0)), ${EXPERTS - 1}u);
#endif
#endfor
#if WEIGHS
#for i in 0..CHOSEN
#if SCORE == 0
  var w${i} = exp(logits[from_logits + id${i}] - largest) / all;
#elif SCORE == 1
  var w${i} = logistic(logits[from_logits + id${i}]);
#else
  var w${i} = logits[from_logits + id${i}];
#endif
#endfor
#if SCORE == 2
  var largest = w0;
#for i in 0..CHOSEN
  largest = max(largest, w${i});
#endfor
  var all = 0.0;
#for i in 0..CHOSEN
  w${i} = exp(w${i} - largest);
  all += w${i};
#endfor
#for i in 0..CHOSEN
  w${i} /= all;
#endfor
#elif SCORE == 3
  // The share of those within the band below the best; the second's without the first.
#for i in 0..2
  var near${i} = 0.0;
  for (var e = router; e < ${EXPERTS}u; e += ${ROUTER_THREADS}u) {
    let l = logits[from_logits + e];
    let within = (w${i} - l) / max(abs(l), w${i}) <= bitcast<f32>(${BAND_BITS}u);
    if (within && (${i}u == 0u || e != id0)) {
      near${i} += exp(l - w${i});
    }
  }
#if ALONE
  let all${i} = subgroup_sum(vec4f(near${i}, 0.0, 0.0, 0.0)).x;
#else
  let all${i} = workgroup_sum(vec4f(near${i}, 0.0, 0.0, 0.0), router).x;
#endif
#endfor
  w0 = 1.0 / all0;
  w1 = 1.0 / all1;
#endif
  var factor = bitcast<f32>(${SCALE_BITS}u);
#if NORMALISE
  var total = bitcast<f32>(${NORM_EPS_BITS}u);
#for i in 0..CHOSEN
  total += w${i};
#endfor
  factor /= max(total, bitcast<f32>(${NORM_FLOOR_BITS}u));
#endif
#endif
