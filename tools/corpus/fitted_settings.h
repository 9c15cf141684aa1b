// The configuration that fits data which were just looked at: the train.toml that `rondo prepare`
// writes. Rules and figures are in docs/data.md.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/image/line_features.h"
#include "engine/data/manifest.h"
#include "engine/text/text_rules.h"

namespace rondo {

// What the settings depend on, of the utterances to train on.
struct TrainingFacts {
  InputKind kind = InputKind::recording;
  int32_t rate = 0;  // samples per second of most recordings; 0: not known
  LineDirection direction = LineDirection::rightwards;
  Ink ink = Ink::dark;
  bool classes = false;  // a class is learnt of each, not a text
  TextRules text;        // that changed the texts
  bool phones = false;   // words are labels (text.unit = "word")
  // Of each utterance, how long it is, in seconds, or in columns of an image scaled to the usual
  // height, and how many frames of the network's output its text needs.
  std::vector<float> lengths, needed_frames;

  // A class has no transcript.
  void add(double length, std::string_view transcript);
};

// TOML with comments, the same for the same facts.
std::string fitted_settings(const TrainingFacts& facts);

}  // namespace rondo
