// Panel kernels for every machine.
#include "backend/cpu/panel/isa.h"
#include "base/float16.h"
#include "quant/small_float.h"

namespace doppler::cpu {
namespace {
#include "backend/cpu/panel/lanes_portable-inl.h"

#include "backend/cpu/panel/kernels-inl.h"
constexpr PanelKernels kKernels = {"portable", Lanes::kTileTokens, quantise, rows};
}  // namespace

const PanelKernels* panel_portable() {
  return &kKernels;
}
}  // namespace doppler::cpu
