// The best of a workgroup's THREADS candidates: the largest value, and of equal values the lowest row. Each thread t stores its
// own in best_values[t] and best_rows[t]; after the call every thread finds the best at 0.
var<workgroup> best_values : array<f32, ${THREADS}>;
var<workgroup> best_rows : array<u32, ${THREADS}>;

fn find_best_of_workgroup(t : u32) {
  workgroupBarrier();
  for (var width = ${THREADS / 2}u; width > 0u; width /= 2u) {
    if (t < width) {
      let value = best_values[t + width];
      let row = best_rows[t + width];
      if (value > best_values[t] || (value == best_values[t] && row < best_rows[t])) {
        best_values[t] = value;
        best_rows[t] = row;
      }
    }
    workgroupBarrier();
  }
}
