// The `loop` variable.
#pragma once

#include <string_view>

#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {

struct LoopObject : Object {
  LoopObject(Heap& owner, std::shared_ptr<const Values> values, std::size_t nesting)
      : Object(owner, sizeof(LoopObject)), items(std::move(values)), depth0(nesting) {}
  std::shared_ptr<const Values> items;
  std::size_t index0 = 0;
  std::size_t depth0;
  Values changed;  // the arguments of the last loop.changed
  bool finished = false;
};

// loop.index and so on; undefined if there is no such name.
Value loop_attribute(Runtime& rt, const Value& loop, std::string_view name);
// Ends a loop: drops the values that could refer back to it.
void finish_loop(LoopObject& loop);
std::span<const Builtin> loop_methods();

}  // namespace doppler::chat::jinja
