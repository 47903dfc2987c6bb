#include "engine/held_tap.h"

namespace doppler {

void HeldTap::on_stage(const TapEvent& event) {
  const bool same_step = !held_.empty() && held_.back().input->positions == event.input->positions;
  Held& held = held_.emplace_back(
      Held{.event = event,
           .data = {event.data.begin(), event.data.end()},
           .input = same_step ? held_.back().input : std::make_shared<const StepInput>(*event.input)});
  held.event.data = held.data;
  held.event.input = held.input.get();
}

void HeldTap::release(std::int64_t position) {
  while (!held_.empty() && held_.front().input->positions.front() <= position) {
    const Held held = std::move(held_.front());  // event.data stays valid: moving keeps the buffer
    held_.pop_front();
    if (held.input->positions.front() == position && to_.wants(held.event.stage, held.event.layer))
      to_.on_stage(held.event);
  }
}

}  // namespace doppler
