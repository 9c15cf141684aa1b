// Fibers: who runs after whom, and that each goes on where it stopped.
#include "kernels/simt/sim/fiber.h"

#include <array>
#include <cstddef>
#include <string>

#include "tests/catch.h"

using namespace rondo::simt;

namespace {

constexpr size_t stack_bytes = 256 * 1024;

struct Ring {
  std::array<Fiber, 3> fibers;
  FiberHost host;
  std::string order;
};

struct Place {
  Ring* ring;
  int index;
};

// Twice around, each handing over to the next; the last goes back to the host after the first time.
void around(void* argument) {
  const Place place = *static_cast<Place*>(argument);
  Ring& ring = *place.ring;
  for (int lap = 0; lap < 2; ++lap) {
    const std::string here =
        std::string(1, static_cast<char>('a' + place.index)) + std::to_string(lap);
    ring.order += here + " ";
    if (lap == 1) break;
    Fiber& me = ring.fibers[static_cast<size_t>(place.index)];
    if (place.index == 2) {
      me.suspend();
    } else {
      me.switch_to(ring.fibers[static_cast<size_t>(place.index) + 1]);
    }
    ring.order += "(" + here + ") ";
  }
}

}  // namespace

TEST_CASE("fibers hand over to each other, and end at their host") {
  StackPool stacks(stack_bytes);
  Ring ring;
  std::array<Place, 3> places = {{{&ring, 0}, {&ring, 1}, {&ring, 2}}};
  for (int repeat = 0; repeat < 2; ++repeat) {
    ring.order.clear();
    for (size_t i = 0; i < 3; ++i) {
      ring.fibers[i].prepare(ring.host, stacks.take(), stack_bytes, around, &places[i]);
    }
    ring.fibers[0].resume();
    CHECK(ring.order == "a0 b0 c0 ");
    for (size_t i = 3; i-- > 0;) {
      CHECK(!ring.fibers[i].finished());
      ring.order += "host ";
      ring.fibers[i].resume();
      CHECK(ring.fibers[i].finished());
      CHECK(!ring.fibers[i].overflowed());
    }
    CHECK(ring.order == "a0 b0 c0 host (c0) c1 host (b0) b1 host (a0) a1 ");
    for (Fiber& f : ring.fibers) stacks.give_back(f.stack());
  }
}
