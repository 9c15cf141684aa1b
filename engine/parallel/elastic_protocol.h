// What an elastic launcher and its ranks tell each other through the store.
//
// A process that is ready to be a rank says so, and how far it has come (Arrival). When all that
// count have done so, the launcher gives each a place among the ranks of a new generation (Seat).
// When a process of a generation is lost, the launcher says that the generation is broken: its
// others break off, if they have not noticed, and arrive anew. When others wait to become ranks, it
// says that as well, and the ranks come of their own accord after an update.
//
// Pure functions. InputError for text that is none of this.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace rondo::elastic {

// How far a process has come; the greatest has come furthest.
struct Progress {
  int64_t step = -1;  // updates it has made; -1: it holds nothing of the run
  int stage = 0;      // of what belongs to the last of them, from 0
  auto operator<=>(const Progress&) const = default;
};

struct Arrival {
  int64_t round = 0;  // of this process: 1, 2, ...
  Progress progress;
  double patience = 0;  // seconds for which ranks of this run wait for each other
  std::string why;      // this one left the ranks it was with, as an error; empty otherwise
};
std::string encode(const Arrival& arrival);
Arrival parse_arrival(const std::string& text);

struct Seat {
  int64_t generation = 0;
  int rank = 0, size = 1;
};
std::string encode(const Seat& seat);
Seat parse_seat(const std::string& text);

// `process`: its name, unlike that of any other.
std::string arrival_key(const std::string& process);
std::string seat_key(const std::string& process, int64_t round);
// A number that grows with every arrival.
inline constexpr const char* arrivals_key = "elastic/arrivals";
std::string broken_key(int64_t generation);              // its value: why
std::string newcomers_key(int64_t generation);           // there: others wait
inline constexpr const char* over_key = "elastic/over";  // there: nobody gets a seat any more

}  // namespace rondo::elastic
