// What a step of the LSTM's variants on GPUs costs, counted on the instrumented simulator:
// launches, waiting, products, and traffic.
#include <algorithm>
#include <initializer_list>
#include <map>

#include "kernels/simt/instrument/instrument.h"
#include "tests/catch.h"
#include "tests/lstm/lstm_sim_problem.h"

namespace rondo::test {
namespace {

struct Shape {
  int64_t hidden;
  int32_t sequences;
  DType compute = DType::bf16;
};

simt::KernelCounters measure(const Shape& shape, int32_t frames, const std::string& variant,
                             bool backward, const char* part = "") {
  simt::instrument();
  LstmSimProblem p({1, 3, shape.hidden, 0},
                   std::vector<int32_t>(static_cast<size_t>(shape.sequences), frames), 7,
                   shape.compute);
  if (backward) p.forward("portable");
  simt::reset_counters();
  backward ? p.backward(variant) : p.forward(variant);
  const std::string name = str("lstm ", variant, backward ? "_backward" : "_forward", part);
  for (const auto& c : simt::counters()) {
    if (c.kernel == name) return c;
  }
  FAIL("no counters of " << name);
  return {};
}

// The counts of one step: what more steps add.
struct Step {
  uint64_t block_barriers, cluster_barriers, products, global_written, remote_written;
};
Step step_of(const Shape& shape, const std::string& variant, bool backward) {
  const auto few = measure(shape, 3, variant, backward);
  const auto many = measure(shape, 5, variant, backward);
  const auto each = [](uint64_t more, uint64_t less) {
    REQUIRE((more - less) % 2 == 0);
    return (more - less) / 2;
  };
  return {each(many.block_barriers, few.block_barriers),
          each(many.cluster_barriers, few.cluster_barriers),
          each(many.matrix_instructions, few.matrix_instructions),
          each(many.global_bytes_written, few.global_bytes_written),
          each(many.remote_bytes_written, few.remote_bytes_written)};
}

void check(const Step& s, const Step& most) {
  CHECK(s.block_barriers <= most.block_barriers);
  CHECK(s.cluster_barriers <= most.cluster_barriers);
  CHECK(s.products == most.products);
  CHECK(s.global_written == most.global_written);
  CHECK(s.remote_written == most.remote_written);
}

// y, gates, cells; dgates.
constexpr uint64_t forward_bytes = 2 + 8 + 4, backward_bytes = 8;

TEST_CASE("lstm cluster_split: one barrier of the cluster and one of the block per step") {
  const Shape s{64, 8};  // 2 blocks of 32 cells
  constexpr uint64_t states = 64 * 8;
  const std::string variant = "cluster_split";
  // 8 warps x 4 products of 16 columns a block; half of h goes to the other block.
  check(step_of(s, variant, false), {1, 1, 2 * 8 * 4, forward_bytes * states, 2 * 32 * 8 * 2});
  // 8 products of 16 gates a warp (the 4 row tiles keep half of the warps busy for nothing); f32
  // parts of the other's 32 cells.
  check(step_of(s, variant, true), {1, 1, 2 * 8 * 8, backward_bytes * states, 2 * 32 * 8 * 4});
}

TEST_CASE(
    "lstm cluster_split, f32: the same barriers, and three products of 8 columns for one of 16 "
    "twice") {
  const Shape s{64, 8, DType::f32};
  constexpr uint64_t states = 64 * 8, forward = 4 + 16 + 4, backward = 16;
  const std::string variant = "cluster_split";
  check(step_of(s, variant, false), {1, 1, 2 * 8 * 8 * 3, forward * states, 2 * 32 * 8 * 4});
  check(step_of(s, variant, true), {1, 1, 2 * 8 * 16 * 3, backward * states, 2 * 32 * 8 * 4});
}

TEST_CASE("lstm grid: three barriers of the block per step") {
  const Shape s{64, 16};
  constexpr uint64_t states = 64 * 16;
  // c is kept in memory; a flag per block. 8 blocks of 8 cells: 2 row tiles x 2 tiles a warp.
  check(step_of(s, "grid", false), {3, 0, 8 * 8 * 2 * 2, (forward_bytes + 4) * states + 8 * 4, 0});
  // 4 blocks of 16 cells; 4 products of 16 gates a warp.
  check(step_of(s, "grid", true), {3, 0, 4 * 8 * 4 * 2, (backward_bytes + 4) * states + 4 * 4, 0});
}

// A pass has up to 8 sequences.
void check_grid_cluster(std::initializer_list<int32_t> counts) {
  for (const int32_t sequences : counts) {
    const Shape s{64, sequences};
    const auto passes = static_cast<uint64_t>((sequences + 7) / 8), computed = 8 * passes;
    const uint64_t states = 64 * static_cast<uint64_t>(sequences);
    // c is kept in memory, and h is written once more. 4 clusters of 2 blocks with 64 rows: 4 row
    // tiles x 8 products of 16 columns for each of 4 warps; sums of half the rows go to the other
    // block.
    check(step_of(s, "grid_cluster", false),
          {0, 0, 8 * 4 * 4 * 8 * passes, (forward_bytes + 4 + 2) * states, 8 * 32 * computed * 4});
    // One cluster of 8 blocks with 64 rows, of which 7/8 belong to others.
    check(step_of(s, "grid_cluster", true),
          {0, 0, 8 * 4 * 4 * 8 * passes, (backward_bytes + 4 + 8) * states, 8 * 56 * computed * 4});
  }
}

TEST_CASE("lstm grid_cluster: no barrier of a block or a cluster per step") {
  check_grid_cluster({9});
}

TEST_CASE("lstm grid_cluster: the same of passes that are full, and of more", "[.][long]") {
  check_grid_cluster({8, 16, 17});
}

// Launches of everything in one pass, by kernel.
std::map<std::string, uint64_t> launches(const LstmDims& dims, const std::vector<int32_t>& lengths,
                                         const std::string& variant, bool backward) {
  simt::instrument();
  LstmSimProblem p(dims, lengths);
  if (backward) p.forward(variant);
  simt::reset_counters();
  backward ? p.backward(variant) : p.forward(variant);
  std::map<std::string, uint64_t> found;
  for (const auto& c : simt::counters()) found[c.kernel] = c.launches;
  return found;
}

TEST_CASE("lstm portable: one product and one launch of cells per step, for all directions") {
  using Launches = std::map<std::string, uint64_t>;
  for (const int directions : {1, 2}) {
    const auto D = static_cast<uint64_t>(directions);
    const LstmDims dims{directions, 3, 16, 0};
    // A product per direction for the inputs of all steps.
    CHECK(launches(dims, {7, 5, 2}, "portable", false) ==
          Launches{{"gemm", D + 7},
                   {"lstm portable_forward_start", 1},
                   {"lstm portable_forward_cells", 7},
                   {"lstm portable_forward_end", 1}});
    // The last is for dh0; no dx here.
    CHECK(launches(dims, {7, 5, 2}, "portable", true) ==
          Launches{{"gemm", 7},
                   {"lstm portable_backward_start", 1},
                   {"lstm portable_backward_cells", 7},
                   {"lstm portable_backward_end", 1}});
  }
}

TEST_CASE(
    "lstm portable: the cells of a step wait for nothing and write what is kept, and h or dgates "
    "once more") {
  constexpr uint64_t H = 20;
  for (const uint64_t sequences : {3, 9}) {
    const Shape shape{H, static_cast<int32_t>(sequences)};
    const uint64_t states = H * sequences;
    const auto step = [&](bool backward) {
      const auto total = [&](int32_t frames) {
        return measure(shape, frames, "portable", backward, "_cells");
      };
      const auto few = total(3), many = total(5);
      return std::pair((many.global_bytes_written - few.global_bytes_written) / 2,
                       (many.block_barriers - few.block_barriers) / 2);
    };
    // y, gates, cells, and c and h once more; dgates twice and dc.
    CHECK(step(false) == std::pair((forward_bytes + 4 + 2) * states, uint64_t{0}));
    CHECK(step(true) == std::pair((2 * backward_bytes + 4) * states, uint64_t{0}));
  }
}

}  // namespace
}  // namespace rondo::test
