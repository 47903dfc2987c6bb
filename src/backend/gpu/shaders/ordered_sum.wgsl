// The sum over the vectors of a row, of which thread t of THREADS has the (t + i * THREADS)-th: neighbours first, then
// neighbouring pairs, and so on (docs/kernels.md: one order of sums), whatever THREADS is. Every thread calls put_term for each of
// its vectors, zeros behind the row's end, and then sum_of_terms, which gives all of them the sum. Its memory must not be used
// again before another barrier.
// Includer: THREADS, a multiple of 8; TERMS vectors of a row; Term, the type of what is added.
#define BY_SHUFFLES SUBGROUPS && SUBGROUP_SIZE >= 8 && THREADS % SUBGROUP_SIZE == 0
#if BY_SHUFFLES
#define TERM_BLOCK SUBGROUP_SIZE
fn over_subgroup(term : Term) -> Term {
  var sum = term;
#for k in 0..8
#if (1 << k) < SUBGROUP_SIZE
  sum += subgroupShuffleXor(sum, ${1 << k}u);
#endif
#endfor
  return sum;
}
#else
#define TERM_BLOCK 8
var<workgroup> each_term : array<Term, ${THREADS}>;
#endif
#define TERM_BLOCKS (TERMS + TERM_BLOCK - 1) / TERM_BLOCK
var<workgroup> block_terms : array<Term, ${TERM_BLOCKS}>;  // sums over TERM_BLOCK neighbours each

fn put_term(i : u32, term : Term, t : u32) {
  let block = (i * ${THREADS}u + t) / ${TERM_BLOCK}u;
#if BY_SHUFFLES
  let sum = over_subgroup(term);
  if (t % ${SUBGROUP_SIZE}u == 0u && block < ${TERM_BLOCKS}u) {
    block_terms[block] = sum;
  }
#else
  each_term[t] = term;
  workgroupBarrier();
  if (t % 8u == 0u && block < ${TERM_BLOCKS}u) {
#for k in 0..8
    let term_${k} = each_term[t + ${k}u];
#sum term, k, 8
#endfor
    block_terms[block] = term;
  }
  workgroupBarrier();
#endif
}

fn sum_of_terms(t : u32) -> Term {
#if BY_SHUFFLES
  workgroupBarrier();
#if TERM_BLOCKS <= 16
  // Few: each thread adds them all.
#for k in 0..TERM_BLOCKS
  let sum_${k} = block_terms[${k}];
#sum sum, k, TERM_BLOCKS
#endfor
  return sum;
#else
#define BLOCKS_EACH (TERM_BLOCKS + SUBGROUP_SIZE - 1) / SUBGROUP_SIZE
#define BLOCKS_OF_LANE 1 << ((BLOCKS_EACH > 1) + (BLOCKS_EACH > 2) + (BLOCKS_EACH > 4) + (BLOCKS_EACH > 8) + (BLOCKS_EACH > 16))
  let first = t % ${SUBGROUP_SIZE}u * ${BLOCKS_OF_LANE}u;
#for k in 0..BLOCKS_OF_LANE
  let own_${k} = select(Term(0.0), block_terms[min(first + ${k}u, ${TERM_BLOCKS - 1}u)], first + ${k}u < ${TERM_BLOCKS}u);
#sum own, k, BLOCKS_OF_LANE
#endfor
  return over_subgroup(own);
#endif
#else
  for (var reach = 1u; reach < ${TERM_BLOCKS}u; reach *= 2u) {
    for (var at = t * 2u * reach; at + reach < ${TERM_BLOCKS}u; at += ${2 * THREADS}u * reach) {
      block_terms[at] += block_terms[at + reach];
    }
    workgroupBarrier();
  }
  return block_terms[0];
#endif
}
