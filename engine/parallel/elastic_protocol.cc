#include "engine/parallel/elastic_protocol.h"

#include <cmath>
#include <limits>
#include <locale>
#include <sstream>

#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo::elastic {
namespace {

constexpr int64_t most = std::numeric_limits<int64_t>::max(), most_stages = 100;

// Numbers between spaces.
class Words {
 public:
  explicit Words(const std::string& text) : text_(text), in_(text) {
    in_.imbue(std::locale::classic());
  }

  int64_t number(int64_t low, int64_t high) {
    int64_t value = 0;
    if (!(in_ >> value) || value < low || value > high) refuse();
    return value;
  }
  double seconds() {
    double value = 0;
    if (!(in_ >> value) || !std::isfinite(value) || value < 0) refuse();
    return value;
  }
  // What is left, after a space.
  std::string rest() {
    if (in_.get() != ' ') refuse();
    std::string text;
    std::getline(in_, text, '\0');
    return text;
  }
  void end() {
    if (in_.peek() != std::istringstream::traits_type::eof()) refuse();
  }
  [[noreturn]] void refuse() const {
    fail_input(quoted_start(text_), " in the store is not what elastic ranks tell each other");
  }

 private:
  const std::string& text_;
  std::istringstream in_;
};

}  // namespace

std::string encode(const Arrival& a) {
  return str(a.round, " ", a.progress.step, " ", a.progress.stage, " ", a.patience, " ", a.why);
}

Arrival parse_arrival(const std::string& text) {
  Words words(text);
  Arrival a;
  a.round = words.number(1, most);
  a.progress.step = words.number(-1, most);
  a.progress.stage = static_cast<int>(words.number(0, most_stages));
  a.patience = words.seconds();
  a.why = words.rest();
  return a;
}

std::string encode(const Seat& s) { return str(s.generation, " ", s.rank, " ", s.size); }

Seat parse_seat(const std::string& text) {
  constexpr int64_t most_ranks = 1 << 20;
  Words words(text);
  Seat s;
  s.generation = words.number(1, most);
  s.rank = static_cast<int>(words.number(0, most_ranks));
  s.size = static_cast<int>(words.number(1, most_ranks));
  words.end();
  if (s.rank >= s.size) words.refuse();
  return s;
}

std::string arrival_key(const std::string& process) { return "elastic/arrival-" + process; }
std::string seat_key(const std::string& process, int64_t round) {
  return str("elastic/seat-", process, "-", round);
}
std::string broken_key(int64_t generation) { return str("elastic/broken-", generation); }
std::string newcomers_key(int64_t generation) { return str("elastic/newcomers-", generation); }

}  // namespace rondo::elastic
