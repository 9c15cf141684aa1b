// What does not go together: ways to divide and to carry out a run, asked for by the configuration
// or by options of the command. One table, which docs/settings.md shows to users (a test
// compares the two). What depends on the model or the device is refused by the engine where it is
// met.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/train/trainer_options.h"

namespace rondo {

enum class Way : uint8_t {
  pipeline,          // parallel.pipeline
  sequence,          // parallel.sequence
  timeline,          // --timeline
  profile,           // --profile
  tbptt,             // training.tbptt
  lockstep,          // --lockstep-ref
  world_invariant,   // parallel.deterministic = "world_invariant"
  divide_optimizer,  // parallel.divide_optimizer
  async,             // parallel.sync = "async"
  plateau,           // lr.type = "plateau"
};

struct Refusal {
  Way one;
  std::vector<Way> others;
  const char* reason;
};

std::span<const Refusal> refusals();

// As it is written: "training.tbptt", "--timeline".
std::string name_of(Way way);

// Throws InputError that names the first two of the table that the run asks for, and the reason.
void require_combination(const Config& config, const TrainerOptions& options);

}  // namespace rondo
