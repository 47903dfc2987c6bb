// Execution faults of the gpu backend: real edits of its kernels' texts.
#include "diagnosis/faults/faults_table.h"

namespace doppler::diagnosis::faults {
namespace {

using When = FaultPlace::When;

bool on_gpu(const Subject& s) {
  return s.backend_name == "gpu";
}
bool on_gpu_with_groups(const Subject& s) {
  const AttentionSpec& a = s.spec.layers.front().attention;
  return on_gpu(s) && a.kv_heads > 1 && a.kv_heads < a.heads;
}
// The edits apply to the kernels for float weights.
bool on_gpu_with_floats(const Subject& s) {
  const WeightId q = s.weights.find(WeightRole::kQ, 0);
  return on_gpu(s) && q != kNoWeight && !is_quantised(s.weights[q].dtype);
}

std::function<void(Site&)> edit(std::vector<ShaderEdit> edits) {
  return [edits = std::move(edits)](Site& site) {
    for (const ShaderEdit& e : edits) site.edit_shader(e.file, e.from, e.to);
  };
}

}  // namespace

std::vector<FaultRow> shader_faults() {
  constexpr std::string_view kGpu = "the gpu backend", kFloats = "the gpu backend with float weights";
  return {
      {{"gpu_norm_tail", FaultKind::kExecution, "tail_missing", kGpu,
        "batch_norm.wgsl leaves out the last four columns"},
       on_gpu,
       [](const Subject&
              s) {  // the first that it computes with a residual: layer 0's own norm reads one value alone
         return FaultPlace{s.spec.layers.front().post_attn_norm ? Stage::kPostAttnNorm : Stage::kPostAttn, 0};
       },
       edit({{"batch_norm.wgsl", "let has${i} = v${i} < ${WIDTH / 4}u;",
              "let has${i} = v${i} < ${WIDTH / 4 - 1}u;"}})},
      {{"gpu_columns_tail", FaultKind::kExecution, "tail_missing", kFloats,
        "gemm_float.wgsl stops one step of columns early"},
       on_gpu_with_floats,
       at(Stage::kQProj, 0),
       edit({{"gemm_float.wgsl", "at < end; at", "at + ${KV}u < min(end, ${(WIDTH + 3) / 4}u); at"}})},
      {{"gpu_rows_limit", FaultKind::kExecution, "rows_beyond_limit", kFloats,
        "gemm_float.wgsl stores no rows from 64 on"},
       on_gpu_with_floats,
       at(Stage::kQProj, 0),
       edit({{"gemm_float.wgsl", "if (row < ${ROWS}u) {", "if (row < ${ROWS}u && row < 64u) {"}})},
      {{"gpu_rope_pairs", FaultKind::kExecution, "rope_layout", kGpu, "rope_angle.wgsl pairs neighbours"},
       [](const Subject& s) {
         return on_gpu(s) && s.spec.layers.front().attention.rope.layout == RopeLayout::kHalf;
       },
       at(Stage::kQRope, 0),
       edit({{"rope_angle.wgsl", "#if INTERLEAVED", "#if !INTERLEAVED"}})},
      {{"gpu_head_groups", FaultKind::kExecution, "head_grouping",
        "the gpu backend with more than one kv head", "attention_tiled.wgsl deals heads out in turn"},
       on_gpu_with_groups,
       at(Stage::kAttnOut, 0),
       edit({{"attention_tiled.wgsl", "head / ${HEADS / KV_HEADS}u;",
              "head % ${KV_HEADS}u + ${HEADS - HEADS}u;"},
             {"attention_half.wgsl", "head / ${HEADS / KV_HEADS}u;",
              "head % ${KV_HEADS}u + ${HEADS - HEADS}u;"}})},
      {{"gpu_append_off_by_one", FaultKind::kExecution, "kv_append_offset", kGpu,
        "rope_append.wgsl stores keys and values one position too far"},
       on_gpu,
       at(Stage::kAttnOut, 0),
       edit({{"rope_append.wgsl", "kv_head, position) * ${DIM / 2}u",
              "kv_head, position + 1u) * ${DIM / 2}u"}})},
      {{"gpu_activation_on_up", FaultKind::kExecution, "gate_up_swapped", kFloats,
        "combine.wgsl activates up"},
       on_gpu_with_floats,
       at(Stage::kFfnAct, 0),
       edit({{"combine.wgsl", "gated(left, b[row * ${B_STRIDE}u + ${B_OFFSET}u + i])",
              "gated(b[row * ${B_STRIDE}u + ${B_OFFSET}u + i], left)"}})},
      {{"gpu_barrier", FaultKind::kExecution, "missing_barrier", kFloats,
        "gemm_float.wgsl reads its tiles without waiting for them"},
       on_gpu_with_floats,
       at(Stage::kQProj, 0),
       edit({{"gemm_float.wgsl", "    workgroupBarrier();\n    // The next", "    // The next"}})},
      {{"gpu_decode_position", FaultKind::kExecution, "rope_position", kGpu,
        "attention_decode.wgsl takes the position before its own"},
       on_gpu,
       at(Stage::kQRope, 0, When::kDecode),
       edit({{"attention_decode.wgsl", "let position = step[${POSITIONS}u + token];",
              "let position = max(step[${POSITIONS}u + token], 1u) - 1u;"}})},
      {{"gpu_position_stays", FaultKind::kExecution, "submit_unlike_single", kGpu,
        "next_token.wgsl leaves the position to the host"},
       on_gpu,
       at(Stage::kLogitsFinal, -1, When::kSubmit),
       edit({{"next_token.wgsl", "step[${POSITIONS}u] += 1u;", "step[${POSITIONS}u] += 0u;"}})},
  };
}

}  // namespace doppler::diagnosis::faults
