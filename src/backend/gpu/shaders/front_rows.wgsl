// Moves rows of a value to its front: row i becomes what row step[LIST + i] was, for step[COUNT] rows in rising order. A
// thread takes a column, row after row, so that no row is overwritten that is still to move. Workgroups: x over columns.
// Template values (batch_builder.cpp): WIDTH columns; row r begins at float r * ROWS_STRIDE + ROWS_OFFSET.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read_write> rows : array<f32>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let column = group.x * ${THREADS}u + t;
  if (column >= ${WIDTH}u) {
    return;
  }
  let count = step[${COUNT}u];
  for (var i = 0u; i < count; i++) {
    rows[i * ${ROWS_STRIDE}u + ${ROWS_OFFSET}u + column] = rows[step[${LIST}u + i] * ${ROWS_STRIDE}u + ${ROWS_OFFSET}u + column];
  }
}
