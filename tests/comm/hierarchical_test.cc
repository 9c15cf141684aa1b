#include <cmath>
#include <cstring>
#include <vector>

#include "comm/group/collectives.h"
#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "tests/catch.h"
#include "tests/comm/decorators.h"
#include "tests/comm/sums.h"

namespace rondo {
namespace {

// Values whose sums depend on the order.
template <class T>
T value(int rank, size_t i) {
  const double x = std::sin(static_cast<double>(i) * 12.9898 + rank * 78.233) * 43758.5453;
  return static_cast<T>(std::ldexp(x - std::floor(x), static_cast<int>(i % 13) * (rank % 3 - 1)));
}

float rounded(float v) { return static_cast<float>(bf16(v)); }

using Layout = std::vector<std::vector<int>>;  // the ranks of each machine

std::vector<int> machine_by_rank(const Layout& layout) {
  std::vector<int> machine(layout.size() * layout[0].size());
  for (size_t m = 0; m < layout.size(); ++m) {
    // Numbers of machines need not be in the order of their ranks.
    for (int r : layout[m]) machine[static_cast<size_t>(r)] = static_cast<int>(layout.size() - m);
  }
  return machine;
}

// The documented order, element by element.
template <class T>
std::vector<T> expected(const Layout& layout, size_t n, bool rounds) {
  const int machines = static_cast<int>(layout.size());
  const int places = static_cast<int>(layout[0].size());
  const auto of_machine = [&](int m, int last_place, size_t i) {
    T sum{};
    for (int k = 0; k < places; ++k) {
      const auto place = static_cast<size_t>((last_place + 1 + k) % places);
      const T v = value<T>(layout[static_cast<size_t>(m)][place], i);
      sum = k == 0 ? v : v + sum;
    }
    return sum;
  };
  std::vector<T> sums(n);
  for (int p = 0; p < places; ++p) {
    const ChunkRange own = chunk_range(static_cast<int64_t>(n), places, p);
    for (int m = 0; m < machines; ++m) {
      const ChunkRange part = chunk_range(own.size(), machines, m);
      for (int64_t at = part.begin; at < part.end; ++at) {
        const auto i = static_cast<size_t>(own.begin + at);
        T sum = of_machine(m, p, i);
        for (int k = 1; k < machines; ++k) {
          if (rounds) sum = static_cast<T>(rounded(static_cast<float>(sum)));
          sum = of_machine((m + k) % machines, p, i) + sum;
        }
        sums[i] = rounds ? static_cast<T>(rounded(static_cast<float>(sum))) : sum;
      }
    }
  }
  return sums;
}

struct Outcome {
  std::vector<size_t> to_other_machines;  // bytes, by rank
  std::vector<uint64_t> messages;
};

template <class T>
Outcome check(const Layout& layout, size_t n, size_t message_bytes, Wire wire = Wire::exact) {
  const std::vector<int> machine = machine_by_rank(layout);
  const int ranks = static_cast<int>(machine.size());
  INFO(layout.size() << " machines of " << layout[0].size() << ", " << n << " elements of "
                     << sizeof(T) << " bytes, messages of " << message_bytes);
  std::vector<std::vector<T>> result(machine.size(), std::vector<T>(n));
  Outcome outcome{std::vector<size_t>(machine.size()), std::vector<uint64_t>(machine.size())};
  run_ranks(ranks, [&](int rank, Transport& transport) {
    const auto r = static_cast<size_t>(rank);
    OnMachines placed(transport, machine);
    Recorder recorder(placed);
    GroupOptions options;
    options.message_bytes = message_bytes;
    options.wire = wire;
    options.verify = false;
    const auto group = make_ring_group(recorder, options);
    for (size_t i = 0; i < n; ++i) result[r][i] = value<T>(rank, i);
    group->all_reduce(view(result[r]), Reduction::sum).wait();
    outcome.messages[r] = recorder.sent().messages;
    for (int to = 0; to < ranks; ++to) {
      if (to == rank || machine[static_cast<size_t>(to)] == machine[r]) continue;
      outcome.to_other_machines[r] += recorder.sent_to(to).bytes;
    }
  });
  const std::vector<T> sums = expected<T>(layout, n, wire == Wire::bf16);
  for (const auto& r : result) CHECK(std::memcmp(r.data(), sums.data(), n * sizeof(T)) == 0);
  return outcome;
}

const std::vector<Layout> layouts = {
    {{0, 1}, {2, 3}},         {{0, 1, 2}, {3, 4, 5}},   {{0, 2, 4}, {1, 3, 5}},
    {{0, 1}, {2, 3}, {4, 5}}, {{0, 5}, {1, 3}, {2, 4}},
};

TEST_CASE("Rings inside machines and between them: the documented order on every rank",
          "[slow][hierarchical]") {
  for (const Layout& layout : layouts) {
    for (const size_t n : {1u, 2u, 3u, 5u, 7u, 31u, 1003u}) {
      for (const size_t message : {64u, 256u * 1024u}) {
        check<float>(layout, n, message);
        check<float>(layout, n, message, Wire::bf16);
      }
    }
    check<double>(layout, most_doubled + 7, 256 * 1024);
  }
  // The reference tells one order from another.
  CHECK(expected<float>(layouts[1], 1003, false) != expected<float>(layouts[2], 1003, false));
}

TEST_CASE("Rings between machines send 2(M-1)/M of the tensor, in few messages", "[hierarchical]") {
  constexpr size_t n = 1200;
  for (const Layout& layout : layouts) {
    const size_t machines = layout.size(), places = layout[0].size();
    for (const Wire wire : {Wire::exact, Wire::bf16}) {
      const Outcome o = check<float>(layout, n, 256 * 1024, wire);
      const size_t element = wire == Wire::bf16 ? sizeof(bf16) : sizeof(float);
      for (size_t r = 0; r < o.messages.size(); ++r) {
        CHECK(o.to_other_machines[r] == 2 * (machines - 1) * n / places / machines * element);
        CHECK(o.messages[r] == 2 * (places - 1) + 2 * (machines - 1));
      }
    }
  }
}

TEST_CASE("One ring is asked for by name, whatever machines there are", "[hierarchical]") {
  constexpr size_t n = 1003;
  std::vector<std::vector<float>> result(4, std::vector<float>(n));
  std::vector<uint64_t> messages(4);
  run_ranks(4, [&](int rank, Transport& transport) {
    const auto r = static_cast<size_t>(rank);
    OnMachines placed(transport, {0, 0, 1, 1});
    Recorder recorder(placed);
    GroupOptions options;
    options.one_ring = true;
    options.verify = false;
    const auto group = make_ring_group(recorder, options);
    for (size_t i = 0; i < n; ++i) result[r][i] = value<float>(rank, i);
    group->all_reduce(view(result[r]), Reduction::sum).wait();
    messages[r] = recorder.sent().messages;
  });
  CHECK(messages == std::vector<uint64_t>(4, 6));
  for (int c = 0; c < 4; ++c) {
    const ChunkRange chunk = chunk_range(n, 4, c);
    const auto i = static_cast<size_t>(chunk.begin);
    float sum = value<float>(c, i);
    for (int k = 1; k < 4; ++k) sum += value<float>((c + k) % 4, i);
    CHECK(result[0][i] == sum);
  }
}

TEST_CASE("Where machines have different numbers of ranks, or one each, the ring is one",
          "[hierarchical]") {
  CHECK(!machines_of({0, 0, 0, 0}, 1));
  CHECK(!machines_of({0, 1, 2}, 1));
  CHECK(!machines_of({0, 0, 1}, 2));
  CHECK(!machines_of({}, 0));
  const auto m = machines_of({7, 3, 7, 3, 5, 5}, 3);
  REQUIRE(m);
  CHECK(m->neighbours == std::vector<int>{1, 3});
  CHECK(m->counterparts == std::vector<int>{2, 3, 5});
  CHECK(m->place == 1);
  CHECK(m->machine == 1);
}

}  // namespace
}  // namespace rondo
