// Execution faults of the gpu backend: real edits of its kernels' texts.
#include "inspect/faults_table.h"

namespace doppler::faults {

std::vector<FaultRow> shader_faults() {
  return {};
}

}  // namespace doppler::faults
