// The default variant of the LSTM's time loops for each shape, and the predictions that it is
// chosen by. Times by hand are those of bench/results/lstm-gpu-times.md, to the digits given there.
#include "kernels/lstm/lstm_prediction.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "kernels/lstm/lstm_conditions.h"
#include "kernels/lstm/stack/lstm_wavefront.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

constexpr LstmPhase forward = LstmPhase::forward, backward = LstmPhase::backward;

bool all(std::string_view) { return true; }
bool no_proofs(std::string_view name) { return name == "fused" || name == "portable"; }

LstmLoop loop(LstmPhase phase, DType compute, int64_t hidden, int64_t sequences,
              int directions = 1) {
  return {phase, {directions, 40, hidden, 0}, compute, sequences, LstmRun::both};
}

double us(std::string_view variant, const LstmLoop& l, const GpuLimits& gpu = {}) {
  const auto predicted = lstm_predicted_us(variant, l, gpu);
  return predicted ? *predicted : NAN;
}

bool near(double got, double want, double digit) {
  return std::abs(got - want) <= digit / 2 + 1e-9;
}

std::string quickest(const LstmLoop& l, const GpuLimits& gpu = {}, const MayRun& may_run = all) {
  return std::string(lstm_quickest(l, gpu, may_run).variant);
}

}  // namespace

TEST_CASE("predicted steps of the LSTM are those that the arithmetic gives by hand") {
  struct Row {
    const char* variant;
    LstmPhase phase;
    DType compute;
    int64_t hidden, sequences;
    int directions;
    double us, digit;
  };
  constexpr DType bf = DType::bf16, f = DType::f32;
  const Row rows[] = {
      {"cluster", forward, bf, 256, 8, 1, 0.79, 0.01},
      {"cluster_split", forward, bf, 256, 8, 1, 0.73, 0.01},
      {"cluster", backward, bf, 256, 8, 1, 0.88, 0.01},
      {"cluster_split", backward, bf, 512, 64, 1, 0.85, 0.01},
      {"cluster", forward, f, 256, 8, 1, 1.3, 0.1},
      {"cluster", backward, f, 256, 256, 1, 2.2, 0.1},         // 16 clusters of 16
      {"cluster", backward, f, 256, 257, 1, 4.3, 0.1},         // and one more, after them
      {"cluster_split", forward, bf, 512, 65, 1, 1.68, 0.01},  // clusters of 16: 3020 cycles
      {"cluster_split", forward, bf, 512, 64, 2, 1.68, 0.01},
      {"grid_cluster", forward, bf, 1024, 16, 1, 1.5, 0.1},
      {"grid_cluster", forward, bf, 1024, 64, 1, 2.4, 0.1},
      {"grid_cluster", backward, bf, 1024, 64, 1, 2.6, 0.1},
      {"grid_cluster", forward, bf, 1024, 32, 2, 2.7, 0.1},
      {"grid_cluster", backward, bf, 1024, 64, 2, 6.6, 0.1},
      {"grid", forward, bf, 1024, 16, 1, 2.3, 0.1},
      {"grid", backward, bf, 1024, 16, 1, 3.2, 0.1},
      {"grid", forward, bf, 1024, 16, 2, 2.6, 0.1},
      {"grid", backward, bf, 1024, 16, 2, 4.7, 0.1},
      {"grid", forward, f, 256, 16, 1, 1.7, 0.1},
      {"grid", forward, f, 1024, 16, 1, 4.2, 0.1},
      // Two launches of 2.5, R at 1.2 (64 columns to a block: L2's 0.76; 128: 1.14), cells 1.4,
      // 0.1.
      {"portable", forward, bf, 512, 16, 1, 7.4, 0.1},
      // A launch of 2.5, eight tiles of 12060 cycles, cells of 2578.
      {"fused", forward, bf, 256, 16, 1, 57.5, 0.1},
      // The same for four times as many columns: 32 tiles of 11910.
      {"fused", backward, bf, 256, 16, 1, 215.6, 0.1},
  };
  for (const Row& r : rows) {
    const double got = us(r.variant, loop(r.phase, r.compute, r.hidden, r.sequences, r.directions));
    INFO(r.variant << (r.phase == forward ? " forward " : " backward ") << name_of(r.compute)
                   << ", H " << r.hidden << ", B " << r.sequences << ", D " << r.directions << ": "
                   << got);
    CHECK(near(got, r.us, r.digit));
  }
}

TEST_CASE("the quickest variant is chosen for each shape, among those that may run") {
  constexpr DType bf = DType::bf16, f = DType::f32;
  for (const LstmPhase phase : {forward, backward}) {
    CHECK(quickest(loop(phase, bf, 256, 16)) == "cluster_split");
    CHECK(quickest(loop(phase, bf, 512, 32, 2)) == "cluster_split");
    CHECK(quickest(loop(phase, bf, 513, 32)) == "grid_cluster");
    CHECK(quickest(loop(phase, bf, 1024, 8, 2)) == "grid_cluster");
    CHECK(quickest(loop(phase, f, 257, 8)) == "grid");
    CHECK(quickest(loop(phase, f, 1024, 8, 2)) == "portable");  // 256 blocks: not resident
    CHECK(quickest(loop(phase, bf, 1025, 8)) == "portable");
    LstmLoop projected = loop(phase, bf, 256, 8);
    projected.dims.projection = 64;
    CHECK(quickest(projected) == "portable");
    LstmLoop one_of_two = loop(phase, bf, 256, 8, 2);
    one_of_two.run = LstmRun::second;
    CHECK(quickest(one_of_two) == "portable");
    // Every shape has a default where nothing is proven, which needs no proof.
    for (const int64_t hidden : {1, 17, 64, 256, 512, 1024, 2048}) {
      for (const int64_t sequences : {1, 16, 64, 256}) {
        CHECK(quickest(loop(phase, bf, hidden, sequences), {}, no_proofs) == "portable");
        CHECK(quickest(loop(phase, f, hidden, sequences, 2), {}, no_proofs) == "portable");
      }
    }
    // What is not allowed is passed over for the next quickest.
    CHECK(quickest(loop(phase, bf, 512, 8), {}, [](std::string_view n) {
            return n != "cluster_split" && n != "cluster";
          }) == "grid");
    CHECK(quickest(loop(phase, bf, 512, 8), {}, [](std::string_view) { return false; }).empty());
    CHECK(quickest(loop(phase, DType::f64, 8, 8)).empty());
  }
  // Many sequences: the clusters come one after the other, and a library's product fills the chip.
  CHECK(quickest(loop(forward, bf, 512, 256, 2)) == "cluster_split");
  CHECK(quickest(loop(forward, bf, 512, 2048, 2)) == "portable");
}

TEST_CASE("predictions follow what a GPU has") {
  const LstmLoop wide = loop(forward, DType::bf16, 1024, 16),
                 narrow = loop(forward, DType::bf16, 256, 16);
  GpuLimits a100;
  a100.architecture = 80, a100.multiprocessors = 108, a100.shared_bytes = 163 * 1024;
  CHECK(quickest(narrow, a100) == "grid");
  CHECK(quickest(wide, a100) == "grid");
  CHECK(std::isnan(us("grid_cluster", wide, a100)));
  CHECK(std::isnan(us("cluster", narrow, a100)));
  CHECK(std::isnan(us("grid", loop(forward, DType::f32, 512, 8), a100)));  // 164 KB of R to a block
  CHECK_FALSE(std::isnan(us("grid", loop(forward, DType::f32, 512, 8))));
  // Two thirds of the chip: 16 cells to a block. grid_cluster's warps then share schedulers two by
  // two; grid multiplies twice as much in a block, and reads half from L2.
  GpuLimits part;
  part.multiprocessors = 80;
  CHECK(near(us("grid_cluster", wide, part), 1.6, 0.1));
  CHECK(near(us("grid", wide, part), 1.0 + 0.45 + 0.38 + 0.28 + 0.15, 0.02));
  part.multiprocessors = 48;
  CHECK(std::isnan(us("grid_cluster", wide, part)));
  CHECK(std::isnan(us("grid", wide, part)));
  CHECK(quickest(wide, part) == "portable");
  CHECK(us("cluster", loop(forward, DType::bf16, 512, 64), part) >
        us("cluster", loop(forward, DType::bf16, 512, 64)));
  part.multiprocessors = 8;  // no room for a cluster
  CHECK(std::isnan(us("cluster", narrow, part)));
  // More sequences never take less.
  for (const LstmConditions& c : lstm_conditions) {
    double before = 0;
    for (int64_t n = 1; n <= 4096; n *= 2) {
      const auto now = lstm_predicted_us(c.variant, loop(backward, DType::bf16, 700, n), {});
      if (!now) continue;
      INFO(c.variant << ", " << n);
      CHECK(*now >= before);
      before = *now;
    }
  }
}

namespace {

bool yes(const Context&, const void*) { return true; }
bool no(const Context&, const void* args) { return args == nullptr; }
std::string_view chosen;  // by the chooser below
std::string_view choose_that(const Context&, const void*, const MayRun& may_run) {
  CHECK_FALSE(may_run("declines"));
  CHECK_FALSE(may_run("named"));
  CHECK_FALSE(may_run("elsewhere"));
  CHECK(may_run("first"));
  return chosen;
}

}  // namespace

TEST_CASE("an op's choice runs, and the order of the list where it has none") {
  const std::array<Variant, 5> variants = {{
      {"op", "declines", Backend::cpu, Role::standard, nullptr, no},
      {"op", "first", Backend::cpu, Role::standard, nullptr, yes},
      {"op", "second", Backend::cpu, Role::standard, nullptr},
      {"op", "named", Backend::cpu, Role::named, nullptr},
      {"op", "elsewhere", Backend::sim, Role::standard, nullptr},
  }};
  const int args = 0;
  const auto name = [&](Chooser choose, Backend backend = Backend::cpu) -> std::string {
    const Variant* v = default_variant(variants, choose, {.backend = backend}, &args);
    return v ? v->name : "none";
  };
  CHECK(name(nullptr) == "first");
  CHECK(name(nullptr, Backend::sim) == "elsewhere");
  CHECK(name(nullptr, Backend::cuda) == "none");
  chosen = "second";
  CHECK(name(choose_that) == "second");
  chosen = "";
  CHECK(name(choose_that) == "first");
}

TEST_CASE("the LSTM has a choice on GPUs alone") {
  REQUIRE(chooser_of("lstm_forward") != nullptr);
  REQUIRE(chooser_of("lstm_backward") != nullptr);
  CHECK(chooser_of("gemm") == nullptr);
  LstmForwardArgs args;
  for (const Backend backend : {Backend::ref, Backend::cpu, Backend::sim}) {
    CHECK(chooser_of("lstm_forward")({.backend = backend}, &args, all).empty());
  }
}

// ---- the table of bench/results/lstm-gpu-times.md ----

namespace {

std::string cell(const LstmPrediction& p) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "`%s` %.1f", std::string(p.variant).c_str(), p.us);
  return text.data();
}

std::string table() {
  std::ostringstream out;
  out << "| | B, directions | forward, all proven | backward | forward, none proven | backward |\n"
      << "|---|---|---|---|---|---|\n";
  const auto add = [&](DType compute, int64_t hidden, int64_t sequences, int directions) {
    out << "| " << name_of(compute) << ", H=" << hidden << " | " << sequences << ", " << directions;
    for (const auto may_run : {all, no_proofs}) {
      for (const LstmPhase phase : {forward, backward}) {
        const LstmLoop l = loop(phase, compute, hidden, sequences, directions);
        out << " | " << cell(lstm_quickest(l, {}, may_run));
      }
    }
    out << " |\n";
  };
  for (const DType compute : {DType::bf16, DType::f32}) {
    for (const int64_t hidden : {128, 256, 512, 1024, 2048}) {
      if (compute == DType::f32 && (hidden == 128 || hidden == 2048)) continue;
      add(compute, hidden, 16, 1);
      add(compute, hidden, 32, 2);
      add(compute, hidden, 64, 2);
      add(compute, hidden, 256, 2);
    }
  }
  return out.str();
}

LstmStackPrediction stack_of(LstmPhase phase, int64_t layers, int64_t hidden, int64_t sequences,
                             int32_t frames, DType compute = DType::bf16) {
  const std::vector<LstmDims> dims(static_cast<size_t>(layers), LstmDims{1, hidden, hidden, 0});
  const PackedCapacity capacity = {frames * sequences, frames, static_cast<int32_t>(sequences)};
  return lstm_stack_predicted({phase, layers, hidden, frames, sequences, compute,
                               lstm_wavefront(dims, capacity).chunk_frames},
                              {}, all);
}

std::string stack_table() {
  std::ostringstream out;
  out << "| layers, H | B, frames | forward, one by one | at once | backward, one by one | at once "
         "|\n|---|---|---|---|---|---|\n";
  for (const auto& [layers, hidden] : {std::pair{2, 512}, {4, 256}, {4, 512}, {6, 512}}) {
    for (const int64_t sequences : {1, 16, 64}) {
      for (const int32_t frames : {200, 1000}) {
        out << "| " << layers << ", " << hidden << " | " << sequences << ", " << frames;
        for (const LstmPhase phase : {forward, backward}) {
          const LstmStackPrediction p = stack_of(phase, layers, hidden, sequences, frames);
          std::array<char, 64> text;
          std::snprintf(text.data(), text.size(), " | %.2f | %.2f", p.in_turn_us / 1000,
                        p.at_once_us.value_or(NAN) / 1000);
          out << text.data();
        }
        out << " |\n";
      }
    }
  }
  return out.str();
}

// Whether the page has the table between marks of that name, where it is asked for written anew.
void check_table(std::string& page, const std::string& name, const std::string& table) {
  const std::string begin = "<!-- " + name + ": begin -->\n", end = "<!-- " + name + ": end -->";
  const size_t from = page.find(begin), to = page.find(end);
  REQUIRE(from != std::string::npos);
  REQUIRE(to != std::string::npos);
  if (std::getenv("RONDO_UPDATE_DOCS")) {
    page.replace(from + begin.size(), to - from - begin.size(), table);
  }
  INFO("run lstm_test with RONDO_UPDATE_DOCS=1 to write the table anew");
  CHECK(page.find(begin + table + end) != std::string::npos);
}

}  // namespace

TEST_CASE("layers at once are predicted to be quicker where they leave the chip idle") {
  for (const LstmPhase phase : {forward, backward}) {
    const LstmStackPrediction few = stack_of(phase, 4, 512, 16, 1000);
    REQUIRE(few.at_once_us);
    CHECK(few.is_quicker_at_once());
    CHECK(*few.at_once_us < 0.6 * few.in_turn_us);
    // So many that they fill the chip, of time too short to be cut, and too large for clusters.
    CHECK_FALSE(stack_of(phase, 4, 512, 1024, 200).is_quicker_at_once());
    CHECK_FALSE(stack_of(phase, 2, 512, 16, 8).is_quicker_at_once());
    CHECK_FALSE(stack_of(phase, 4, 1024, 16, 1000).at_once_us);
  }
  REQUIRE(chooser_of("lstm_stack_forward") != nullptr);
  REQUIRE(chooser_of("lstm_stack_backward") != nullptr);
}

TEST_CASE("the documentation has the defaults and their times") {
  const char* root = std::getenv("RONDO_SOURCE_ROOT");
  if (!root) {
    WARN("RONDO_SOURCE_ROOT is not set: bench/results/lstm-gpu-times.md is not compared");
    return;
  }
  const std::string path = std::string(root) + "/bench/results/lstm-gpu-times.md";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::string page = text.str();
  check_table(page, "defaults", table());
  check_table(page, "stacks", stack_table());
  if (std::getenv("RONDO_UPDATE_DOCS")) std::ofstream(path) << page;
}
