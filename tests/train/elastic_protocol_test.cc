// What elastic ranks and their launcher tell each other by the store.
#include "engine/parallel/elastic_protocol.h"

#include <limits>
#include <set>

#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using namespace rondo::elastic;

TEST_CASE("what a process says of itself is read as it was said, also at the borders",
          "[elastic]") {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  for (const std::string why : {"", " ", "rank 1 is lost: 3 bytes", "a\nb \n", " 7 0 2.5 x"}) {
    for (const Progress progress : {Progress{-1, 0}, Progress{0, 0}, Progress{most, 100}}) {
      for (const double patience : {0.0, 0.25, 86400.0}) {
        for (const int64_t round : {int64_t{1}, int64_t{12}, most}) {
          const Arrival a = parse_arrival(encode(Arrival{round, progress, patience, why}));
          CHECK(a.round == round);
          CHECK(a.progress == progress);
          CHECK(a.patience == patience);
          CHECK(a.why == why);
        }
      }
    }
  }
  for (const Seat seat : {Seat{1, 0, 1}, Seat{2, 2, 3}, Seat{most, 4, 5}}) {
    const Seat s = parse_seat(encode(seat));
    CHECK((s.generation == seat.generation && s.rank == seat.rank && s.size == seat.size));
  }
}

TEST_CASE("what no process says is refused", "[elastic]") {
  for (const char* text : {"", "1", "1 2 3 4", "0 2 3 4 ", "1 -2 3 4 ", "1 2 -1 4 ", "1 2 101 4 ",
                           "1 2 3 -0.5 ", "1 2 3 nan ", "1 2 3 x ", "9223372036854775808 2 3 4 "})
    CHECK_THROWS_WITH(parse_arrival(text), Catch::Contains("is not what elastic ranks tell"));
  for (const char* text : {"", "1 0", "0 0 1", "1 -1 1", "1 1 1", "1 3 2", "1 0 1 ", "1 0 1x"})
    CHECK_THROWS_AS(parse_seat(text), InputError);
}

TEST_CASE("who has come further is greater", "[elastic]") {
  CHECK(Progress{-1, 0} < Progress{0, 0});
  CHECK(Progress{3, 1} > Progress{3, 0});
  CHECK(Progress{4, 0} > Progress{3, 9});
}

TEST_CASE("no two keys of the store are the same", "[elastic]") {
  std::set<std::string> keys = {arrivals_key, over_key};
  size_t made = 2;
  const auto add = [&](const std::string& key) { keys.insert(key), ++made; };
  for (const char* process : {"0.1", "0.2", "1.1", "11.1", "1.11"}) {
    add(arrival_key(process));
    for (const int64_t round : {1, 2, 11}) add(seat_key(process, round));
  }
  for (const int64_t generation : {1, 2, 11, 12}) {
    add(broken_key(generation));
    add(newcomers_key(generation));
  }
  CHECK(keys.size() == made);
}
