// The variants of the LSTM's time loops on GPUs: their table, and what checkop's cases lack.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "kernels/lstm/lstm_conditions.h"
#include "tests/catch.h"
#include "tests/lstm/lstm_sim_problem.h"

using namespace rondo;
using namespace rondo::test;

namespace {

std::vector<std::string> names(std::span<const Variant> variants, Backend backend) {
  std::vector<std::string> found;
  for (const Variant& v : variants) {
    if (v.backend == backend) found.emplace_back(v.name);
  }
  return found;
}

}  // namespace

TEST_CASE("the table of conditions says which shapes the simulated variants take") {
  Stream stream = sim_device().make_stream();
  const Context context{Backend::sim, &sim_device(), &stream, nullptr};
  for (const int64_t hidden : {1, 256, 257, 512, 513, 1024, 1025}) {
    for (const int64_t projection : {0, 3}) {
      for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
        LstmForwardArgs f;
        LstmBackwardArgs b;
        f.dims = b.dims = {1, 4, hidden, projection};
        f.layout.capacity = b.layout.capacity = {8, 4, 2};
        f.x.dtype = b.dy.dtype = dtype;
        const auto check = [&](std::span<const Variant> variants, const void* args) {
          for (const Variant& v : variants) {
            if (v.backend != Backend::sim) continue;
            INFO(v.op << " " << v.name << ", H " << hidden << ", " << name_of(dtype));
            CHECK(v.accepts(context, args) == lstm_suits(v.name, Backend::sim, f.dims, dtype));
          }
        };
        check(lstm_forward_variants(), &f);
        check(lstm_backward_variants(), &b);
      }
    }
  }
  const LstmDims small{1, 4, 512, 0}, large{1, 4, 513, 0};
  CHECK_FALSE(lstm_suits("grid_cluster", Backend::cuda, small, DType::bf16));
  CHECK(lstm_suits("grid_cluster", Backend::cuda, large, DType::bf16));
  CHECK_FALSE(lstm_suits("cluster_split", Backend::cuda, large, DType::bf16));
}

TEST_CASE("on GPUs portable alone takes projections and every H, and no variant takes f64") {
  for (const LstmConditions& c : lstm_conditions) {
    const std::string variant = c.variant;
    INFO(variant);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CHECK(lstm_suits(variant, Backend::cuda, {2, 4, 5000, 8}, dtype) == (variant == "portable"));
      CHECK(lstm_suits(variant, Backend::cuda, {2, 4, 5000, 0}, dtype) == (variant == "portable"));
      CHECK(lstm_suits(variant, Backend::cuda, {2, 4, 600, 8}, dtype) == (variant == "portable"));
    }
    CHECK_FALSE(lstm_suits(variant, Backend::cuda, {1, 4, 600, 0}, DType::f64));
    CHECK_FALSE(lstm_suits(variant, Backend::cuda, {1, 4, 8, 0}, DType::f64));
  }
}

TEST_CASE("variants on GPUs are those of the table, and all but the first wait for a trial") {
  std::vector<std::string> table;
  for (const LstmConditions& c : lstm_conditions) table.emplace_back(c.variant);
  std::sort(table.begin(), table.end());
  for (const std::span<const Variant> variants :
       {lstm_forward_variants(), lstm_backward_variants()}) {
    for (const Backend backend : {Backend::sim, Backend::cuda}) {
      std::vector<std::string> found = names(variants, backend);
      if (found.empty() && backend == Backend::cuda) continue;  // a build without CUDA has none
      CHECK(found.front() == "portable");
      std::sort(found.begin(), found.end());
      CHECK(found == table);
    }
    for (const Variant& v : variants) {
      if (v.backend != Backend::sim && v.backend != Backend::cuda) continue;
      INFO(v.op << " " << v.name);
      CHECK((v.role == Role::standard) == (std::string(v.name) == "portable"));
    }
  }
}

// A NaN with all bits set is what the exchanged memory of grid_cluster holds before results.
TEST_CASE("NaN spoils its own sequence alone, and no kernel waits for it") {
  for (const std::string variant : {"portable", "cluster_split", "grid_cluster", "grid"}) {
    INFO(variant);
    LstmSimProblem p({2, 3, 17, 0}, {4, 3, 3});
    constexpr size_t width = 2 * 17, spoilt = 1;
    bf16 nan;
    nan.bits = 0xffff;
    for (size_t u = 0; u < 17; ++u) p.narrow["h0"][spoilt * 17 + u] = nan;
    p.forward(variant);
    for (size_t row = 0; row < static_cast<size_t>(p.rows()); ++row) {
      const auto& first = p.packed.view().row_offsets;
      size_t t = 0;
      while (t + 1 < 4 && static_cast<size_t>(first[t + 1]) <= row) ++t;
      const bool bad = row - static_cast<size_t>(first[t]) == spoilt;
      for (size_t u = 0; u < width; ++u) {
        const auto y = static_cast<float>(p.narrow["y"][row * width + u]);
        INFO("row " << row << ", column " << u << ": " << y);
        CHECK(std::isnan(y) == (bad && u < 17));  // direction 1 has an initial h of its own
      }
    }
    for (size_t u = 0; u < 17; ++u) p.narrow["dhn"][spoilt * 17 + u] = nan;
    p.backward(variant);
    for (size_t n = 0; n < 3; ++n) {
      CHECK(std::isnan(static_cast<float>(p.narrow["dh0"][n * 17])) == (n == spoilt));
    }
  }
}

// Weights that leave no room for the lower half of three TF32 products, and what is not finite.
TEST_CASE("f32 in clusters takes the smallest weights, and hides no NaN") {
  constexpr float small[] = {1e-39f, -3e-34f, 2e-38f, -1.2e-30f, 7e-31f};
  const LstmDims dims{1, 3, 6, 0};
  LstmSimProblem p(dims, {3, 2}, 7, DType::f32), want(dims, {3, 2}, 7, DType::f32);
  for (LstmSimProblem* problem : {&p, &want}) {
    std::copy(std::begin(small), std::end(small), problem->wide["r0"].begin());
  }
  p.forward("cluster_split");
  want.forward("portable");
  for (size_t i = 0; i < p.wide["y"].size(); ++i) {
    CHECK(std::abs(p.wide["y"][i] - want.wide["y"][i]) <= 1e-6f);
  }
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xffc00001u, 0x7f800000u}) {
    INFO(std::hex << bits);
    std::memcpy(&p.wide["r0"][4], &bits, sizeof bits);
    p.forward("cluster_split");
    CHECK(std::isnan(p.wide["y"][0]));        // whose row it is
    CHECK_FALSE(std::isnan(p.wide["y"][1]));  // which has not met it in the first frame
    CHECK(std::isnan(p.wide["y"][2 * 6 + 1]));
  }
}

TEST_CASE("f32 has the same bits in every order of threads") {
  for (const std::string variant : {"cluster_split", "grid", "portable"}) {
    std::vector<std::vector<float>> seen;
    for (const SimOrder order : {SimOrder::forward, SimOrder::reverse, SimOrder::shuffled}) {
      set_sim_options({order, 11});
      LstmSimProblem p({2, 5, 40, 0}, {4, 4, 2, 1}, 7, DType::f32);
      p.forward(variant);
      p.backward(variant);
      std::vector<float> values;
      for (const char* name : {"y", "hn", "dgates", "dh0"}) {
        values.insert(values.end(), p.wide[name].begin(), p.wide[name].end());
      }
      seen.push_back(std::move(values));
    }
    set_sim_options({});
    INFO(variant);
    CHECK(std::none_of(seen[0].begin(), seen[0].end(), [](float v) { return std::isnan(v); }));
    CHECK(seen[0] == seen[1]);
    CHECK(seen[0] == seen[2]);
  }
}

TEST_CASE("the variants give the same bits in every order of threads") {
  for (const std::string variant : {"portable", "cluster_split", "grid_cluster", "grid"}) {
    std::vector<std::vector<uint16_t>> seen;
    for (const SimOrder order : {SimOrder::forward, SimOrder::reverse, SimOrder::shuffled}) {
      set_sim_options({order, 11});
      LstmSimProblem p({2, 5, 40, 0}, {4, 4, 2, 1});
      p.forward(variant);
      p.backward(variant);
      std::vector<uint16_t> bits;
      for (const char* name : {"y", "hn", "dgates", "dh0"}) {
        for (const bf16 v : p.narrow[name]) bits.push_back(v.bits);
      }
      seen.push_back(std::move(bits));
    }
    set_sim_options({});
    INFO(variant);
    CHECK(seen[0] == seen[1]);
    CHECK(seen[0] == seen[2]);
  }
}

// What cuBLASLt makes of rows past the count; fresh device memory is NaN there.
TEST_CASE("portable does not read the rows that a product computes beyond its count") {
  const auto bits_of = [](int64_t projection) {
    LstmSimProblem p({2, 5, 20, projection}, {6, 6, 4, 2, 1});
    p.forward("portable");
    p.backward("portable");
    std::vector<uint16_t> bits;
    for (const char* name : {"y", "hn", "gates", "hidden", "dgates", "dprojected", "dh0"}) {
      for (const bf16 v : p.narrow[name]) bits.push_back(v.bits);
    }
    return bits;
  };
  for (const int64_t projection : {0, 7}) {
    const auto counted = bits_of(projection);
    prefer_variant("gemm", "all_rows");
    const auto all = bits_of(projection);
    prefer_variant("gemm", "");
    INFO("projection " << projection);
    CHECK(counted == all);
    const auto finite = [](uint16_t b) { return (b & 0x7f80) != 0x7f80; };
    CHECK(std::all_of(all.begin(), all.end(), finite));
  }
}

// What a direction computes lies in planes of its own (of y, in columns); the rest is NaN until it
// is computed too.
TEST_CASE("directions computed one at a time on GPUs have the bits of both at once") {
  const auto bits_of = [](const LstmSimProblem& p) {
    std::map<std::string, std::vector<uint16_t>> bits;
    for (const char* name : {"y", "hn", "gates", "hidden", "dgates", "dprojected", "dh0", "dx"}) {
      const auto found = p.narrow.find(name);
      if (found == p.narrow.end()) continue;
      for (const bf16 v : found->second) bits[name].push_back(v.bits);
    }
    return bits;
  };
  for (const int64_t projection : {0, 7}) {
    const LstmDims dims{2, 5, 20, projection};
    const std::vector<int32_t> lengths = {6, 6, 4, 2, 1, 0};
    LstmSimProblem whole(dims, lengths);
    whole.wants_dx = true;
    whole.forward("portable");
    whole.backward("portable");
    for (const LstmRun first : {LstmRun::first, LstmRun::second}) {
      const LstmRun second = first == LstmRun::first ? LstmRun::second : LstmRun::first;
      const auto planes = [&](const std::vector<bf16>& values, bool early) {
        const auto half = static_cast<ptrdiff_t>(values.size() / 2);
        const bool front = early == (first == LstmRun::first);
        return std::vector<bf16>(values.begin() + (front ? 0 : half),
                                 values.end() - (front ? half : 0));
      };
      const auto untouched = [](const std::vector<bf16>& values) {
        return std::all_of(values.begin(), values.end(),
                           [](bf16 v) { return std::isnan(static_cast<float>(v)); });
      };
      INFO("projection " << projection << ", first " << (first == LstmRun::first ? 0 : 1));
      LstmSimProblem p(dims, lengths);
      p.wants_dx = true;
      p.forward("portable", first);
      for (const char* name : {"hn", "gates"}) {
        CHECK(untouched(planes(p.narrow.at(name), false)));
        CHECK_FALSE(untouched(planes(p.narrow.at(name), true)));
      }
      p.forward("portable", second);
      p.backward("portable", first);
      for (const char* name : {"dh0", "dgates"}) {
        CHECK(untouched(planes(p.narrow.at(name), false)));
        CHECK_FALSE(untouched(planes(p.narrow.at(name), true)));
      }
      p.backward("portable", second);
      CHECK(bits_of(p) == bits_of(whole));
    }
  }
  LstmSimProblem p({2, 5, 20, 0}, {3, 2});
  for (const std::string variant : {"cluster_split", "grid", "grid_cluster"}) {
    INFO(variant);
    CHECK_THROWS_WITH(p.forward(variant, LstmRun::first), Catch::Contains("does not take"));
  }
}
