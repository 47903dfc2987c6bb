#include "chat/jinja/loop.h"

#include "chat/jinja/operators.h"

namespace doppler::chat::jinja {
namespace {

Result<Value> loop_cycle(Call& call) {
  const Values& values = call.given.positional;
  if (values.empty()) return type_error("no items for cycling given");
  return values[call.self.as<LoopObject>().index0 % values.size()];
}

Result<Value> loop_changed(Call& call) {
  auto& loop = call.self.as<LoopObject>();
  const Values& now = call.given.positional;
  bool same = loop.changed.size() == now.size() && !now.empty();
  for (std::size_t i = 0; same && i < now.size(); ++i) {
    DOPPLER_ASSIGN(same, equal(call.rt, loop.changed[i], now[i]));
  }
  if (!same && !loop.finished) loop.changed = now;
  return Value::boolean(!same);
}

constexpr Builtin kLoopMethods[] = {{"cycle", "*", loop_cycle}, {"changed", "*", loop_changed}};

using Getter = Value (*)(Runtime&, const LoopObject&);
struct Attribute {
  std::string_view name;
  Getter get;
};

Value number(std::size_t n) {
  return Value::integer(static_cast<Integer>(n));
}

constexpr Attribute kAttributes[] = {
    {"index", [](Runtime&, const LoopObject& l) { return number(l.index0 + 1); }},
    {"index0", [](Runtime&, const LoopObject& l) { return number(l.index0); }},
    {"revindex", [](Runtime&, const LoopObject& l) { return number(l.items->size() - l.index0); }},
    {"revindex0", [](Runtime&, const LoopObject& l) { return number(l.items->size() - l.index0 - 1); }},
    {"first", [](Runtime&, const LoopObject& l) { return Value::boolean(l.index0 == 0); }},
    {"last", [](Runtime&, const LoopObject& l) { return Value::boolean(l.index0 + 1 == l.items->size()); }},
    {"length", [](Runtime&, const LoopObject& l) { return number(l.items->size()); }},
    {"depth", [](Runtime&, const LoopObject& l) { return number(l.depth0 + 1); }},
    {"depth0", [](Runtime&, const LoopObject& l) { return number(l.depth0); }},
    {"previtem",
     [](Runtime& rt, const LoopObject& l) {
       return l.index0 == 0 ? rt.undefined("there is no previous item") : (*l.items)[l.index0 - 1];
     }},
    {"nextitem",
     [](Runtime& rt, const LoopObject& l) {
       return l.index0 + 1 >= l.items->size() ? rt.undefined("there is no next item")
                                              : (*l.items)[l.index0 + 1];
     }},
};

}  // namespace

std::span<const Builtin> loop_methods() {
  return kLoopMethods;
}

Value loop_attribute(Runtime& rt, const Value& loop, std::string_view name) {
  for (const Attribute& row : kAttributes) {
    if (row.name == name) return row.get(rt, loop.as<LoopObject>());
  }
  return {};
}

void finish_loop(LoopObject& loop) {
  loop.finished = true;
  loop.changed.clear();
}

}  // namespace doppler::chat::jinja
