// What one rank keeps in memory of a run whose ranks may be lost, or come, while it goes on.
//
// Every rank of a run with parallel.deterministic = "world_invariant" holds all of its state, and
// the result does not depend on how many ranks there are. So where ranks are lost, train() leaves
// the state here before it throws CommError; with the ranks that are left, and others that have
// come, it is called again, and goes on from there instead of from a checkpoint. Ranks break off at
// different places of an update, of a validation or of a checkpoint: the caller makes a rank that
// has come furthest rank 0, whose state all others take. An update that some have not made is made
// again by nobody but them, if nobody is left who has: with the same bits.
//
// Plain data; one thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/parallel/elastic_protocol.h"
#include "engine/text/alphabet.h"
#include "engine/train/model/model_file.h"
#include "engine/train/state/training_state.h"
#include "engine/update.h"

namespace rondo {

// What comes next in a run, after so many updates, in this order.
enum class NextAct : uint8_t { validation, checkpoint, update };

struct KeptRun {
  // Data that were opened stay open. They borrow the alphabet, which is nullptr unless the task is
  // ctc, and the readers of the options that train() was called with.
  std::shared_ptr<Alphabet> alphabet;
  std::vector<std::string> classes;  // classify: their names, if they have such
  std::shared_ptr<ManifestDataset> train, dev;

  // The rest is there if holds_state.
  bool holds_state = false;
  TrainingState state;
  NextAct next = NextAct::update;
  std::optional<Score> score;  // of the validation that the checkpoint which is next goes with
  ModelDescription description;
  // Flat arrays, as the session and the optimiser have them.
  std::vector<float> weights;
  std::vector<std::pair<std::string, std::vector<float>>> slots;
  int ranks = 0;  // so many there were
  std::chrono::steady_clock::time_point since;

  // Of several ranks the one that has come furthest is the greatest.
  elastic::Progress progress() const {
    if (!holds_state) return {};
    return {state.step, static_cast<int>(next)};
  }

  // Copies from the host memory of a session.
  void keep_arrays(const TensorView& weights_now, const std::vector<Update::Slot>& slots_now);
  const std::vector<float>& slot(const std::string& name) const;
  // Once a session has them again.
  void drop_arrays();
};

}  // namespace rondo
