// EngineAccess: the internals of an engine that commands need besides its public interface.
#pragma once

#include "backend/tap.h"
#include "doppler/doppler.h"
#include "engine/loaded.h"

namespace doppler {

struct EngineAccess {
  // The engine must not have been moved from, and must outlive the references taken from it.
  static const Loaded& loaded(const Engine& engine);
  // The tap (null: none) sees every later call; it must outlive the engine or be taken away.
  static void look(Engine& engine, Tap* tap);
};

}  // namespace doppler
