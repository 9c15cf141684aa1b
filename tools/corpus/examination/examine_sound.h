// What is wrong with a recording, or with ready features, that a list names.
//
// Thread safety: pure functions of their arguments, but for the utterance that is given.
#pragma once

#include <optional>
#include <string>

#include "tools/corpus/lists/layouts.h"

namespace rondo::corpus {

// Why an utterance is left out.
struct Flaw {
  Finding finding;
  std::string what;  // a sentence that names the file
};

struct SoundExamination {
  double least_seconds = 0.1;
  bool decode = true;    // otherwise the header alone is read
  int32_t channel = -1;  // of recordings with several that do not say it themselves
  bool salvage = false;  // what is cut off is used as far as it goes
};

// Opens it, and sets its duration, rate and bandwidth; what does not keep it from being used is
// added to its notes.
std::optional<Flaw> examine_sound(ListedUtterance& u, const AudioReader& audio,
                                  const SoundExamination& o);

}  // namespace rondo::corpus
