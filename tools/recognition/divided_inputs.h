// Inputs that several ranks divide among them, and what is said of them, in the inputs' order.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/reduce/ranks.h"
#include "tools/recognition/inputs.h"

namespace rondo {

// What a command says of an input.
struct Said {
  enum Kind : char {
    output = 'o',   // for standard output, with its line break
    warning = 'w',  // a sentence
    narrow = 'n',   // the same, of a recording that reaches less far up than the model hears
    error = 'e',    // why there is no output
  } kind;
  std::string text;
};

// Says things as they come. Of narrow recordings the first is named, for mostly all are alike; the
// destructor says how many there were. Counts errors.
class Speaker {
 public:
  Speaker() = default;
  ~Speaker();
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

  void say(const Said& said);
  int errors() const { return errors_; }

 private:
  int64_t narrow_ = 0;
  int errors_ = 0;
};

using SayOfInput = std::function<void(const ModelInput&, const Said&)>;
// Reads these inputs, and says what there is to say of each, in their order.
using ReadInputs = std::function<void(const std::vector<ModelInput>&, const SayOfInput&)>;

// Calls `read` with all inputs, or on each of several ranks with its part of them, some hundred at
// a time; lines of one page are one rank's. Rank 0 says what all have to say, as one rank alone
// would. Waits for others as together_at_length() does. Returns how many errors there were, on rank
// 0.
int read_divided(const Ranks& ranks, CommClock::duration patience,
                 const std::vector<ModelInput>& inputs, const ReadInputs& read);

}  // namespace rondo
