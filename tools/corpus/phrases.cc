#include "tools/corpus/phrases.h"

#include <array>

namespace rondo::corpus {
namespace {

using Words = std::vector<std::string>;

const Words rooms = {"kitchen", "bedroom", "bathroom", "hallway",
                     "office",  "garden",  "garage",   "cellar"};
const Words counts = {"two",  "three", "four",   "five",   "six",    "seven", "eight",
                      "nine", "ten",   "twelve", "twenty", "thirty", "forty"};

// All ways to fill the slots of one sentence. An empty word leaves its slot out.
void expand(const std::vector<Words>& slots, Words& to) {
  Words phrases = {""};
  for (const Words& slot : slots) {
    Words longer;
    for (const std::string& phrase : phrases) {
      for (const std::string& word : slot) {
        longer.push_back(phrase + (phrase.empty() || word.empty() ? "" : " ") + word);
      }
    }
    phrases.swap(longer);
  }
  to.insert(to.end(), phrases.begin(), phrases.end());
}

}  // namespace

std::string digit_words(int length, data::Random& random) {
  static constexpr std::array names = {"zero", "one", "two",   "three", "four",
                                       "five", "six", "seven", "eight", "nine"};
  std::string text;
  for (int i = 0; i < length; ++i) {
    if (i > 0) text += ' ';
    text += names[static_cast<size_t>(random.below(10))];
  }
  return text;
}

std::vector<std::string> all_commands() {
  Words commands;
  expand({{"turn"},
          {"on", "off"},
          {"the"},
          rooms,
          {"light", "lamp", "fan", "heater", "radio", "television"}},
         commands);
  expand({{"open", "close"}, {"the"}, rooms, {"door", "window", "curtains"}}, commands);
  expand({{"make the"}, rooms, {"warmer", "cooler", "brighter", "darker"}}, commands);
  expand({{"set the"}, {"timer", "alarm"}, {"to"}, counts, {"minutes", "hours", "seconds"}},
         commands);
  expand({{"wake me up in"}, counts, {"minutes", "hours"}}, commands);
  expand({{"what is the"},
          {"time", "weather", "temperature"},
          {"in"},
          {"london", "berlin", "paris", "boston"},
          {"", "now", "today"}},
         commands);
  expand({{"play"}, {"some", "more"}, {"music", "jazz", "rock", "news"}, {"in the"}, rooms},
         commands);
  expand({{"call"},
          {"anna", "peter", "my mother", "my father", "the doctor"},
          {"", "now", "today", "at work", "at home"}},
         commands);
  return commands;
}

}  // namespace rondo::corpus
