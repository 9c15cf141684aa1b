// Dropout: the generator's known answers, and what the mask may and may not depend on.
#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/packed_host.h"
#include "kernels/dropout/dropout.h"
#include "kernels/dropout/philox.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

struct Utterance {
  uint64_t key;
  int32_t first_frame, length;
};

// Runs `variant` on a batch of ones; result[{key, absolute frame}] is a row.
using Rows = std::map<std::pair<uint64_t, int32_t>, std::vector<float>>;

Rows dropped(const Variant& variant, const std::vector<Utterance>& batch, int64_t cols, double p,
             uint32_t layer = 5, uint64_t seed = 77, int64_t channels = 0) {
  std::vector<int32_t> lengths, first_frame;
  std::vector<uint64_t> keys;
  for (const Utterance& u : batch) {
    lengths.push_back(u.length);
    first_frame.push_back(u.first_frame);
    keys.push_back(u.key);
  }
  const PackedHost packed = build_packed(lengths, keys, first_frame);
  const int64_t rows = packed.extent.rows;
  std::vector<float> x(static_cast<size_t>(rows * cols), 1.0f), y(x.size(), NAN);
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(2);
  const Context context = {variant.backend, &cpu_device(), &stream, &pool};
  const DropoutArgs args = {packed.view(),
                            TensorView(x.data(), DType::f32, {rows, cols}),
                            TensorView(y.data(), DType::f32, {rows, cols}),
                            p,
                            layer,
                            &seed,
                            channels};
  variant.run(context, &args);
  Rows result;
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t t = packed.row_frame[static_cast<size_t>(r)];
    const auto n = static_cast<size_t>(r - packed.row_offsets[static_cast<size_t>(t)]);
    result[{keys[n], first_frame[n] + t}].assign(y.begin() + r * cols, y.begin() + (r + 1) * cols);
  }
  return result;
}

std::vector<Variant> runnable_variants() {
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(1);
  std::vector<Variant> runnable;
  for (const Variant& v : dropout_variants()) {
    if (v.backend != Backend::ref && v.backend != Backend::cpu) continue;
    const Context context = {v.backend, &cpu_device(), &stream, &pool};
    if (v.accepts == nullptr || v.accepts(context, nullptr)) runnable.push_back(v);
  }
  return runnable;
}

const Variant& ref() { return dropout_variants().front(); }

double share_equal(const Rows& a, const Rows& b) {
  int64_t equal = 0, all = 0;
  for (const auto& [where, row] : a) {
    const auto& other = b.at(where);
    for (size_t c = 0; c < row.size(); ++c, ++all) equal += row[c] == other[c];
  }
  return static_cast<double>(equal) / static_cast<double>(all);
}

}  // namespace

TEST_CASE("Philox4x32-10 gives the published known answers") {
  using Words = std::array<uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t ones = 0xffffffff;
  CHECK(philox4x32({ones, ones, ones, ones}, ~uint64_t{0}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the threshold is p rounded to 32 bits, and a mask is exactly words below it") {
  CHECK(dropout_threshold(0) == 0);
  CHECK(dropout_threshold(0.5) == 0x80000000u);
  CHECK(dropout_threshold(12345 * 0x1p-32) == 12345);
  CHECK(dropout_threshold(0x1p-34) == 0);
  CHECK(dropout_threshold(std::nextafter(1.0, 0.0)) == 0xffffffffu);
  // Thresholds just at and just above one drawn word: the comparison is not off by one.
  const uint64_t key = 0x123456789abcdefull, seed = 77;
  const auto words = philox4x32(
      {3, 8, static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}, dropout_key(seed, 5));
  for (const Variant& v : runnable_variants()) {
    for (uint32_t j = 0; j < 4; ++j) {
      const double word = words[j];
      const size_t column = 16 * j + 3;
      INFO(v.name << ", word " << j);
      CHECK(dropped(v, {{key, 8, 1}}, 64, word * 0x1p-32)[{key, 8}][column] != 0);
      CHECK(dropped(v, {{key, 8, 1}}, 64, (word + 1) * 0x1p-32)[{key, 8}][column] == 0);
    }
  }
}

TEST_CASE("an utterance gets the same mask in any batch, shard or chunk") {
  const uint64_t key = 991;
  for (const Variant& v : runnable_variants()) {
    INFO(v.name);
    const Rows alone = dropped(v, {{key, 0, 40}}, 100, 0.3);
    const Rows among = dropped(v, {{7, 0, 50}, {key, 0, 40}, {8, 3, 40}, {9, 0, 2}}, 100, 0.3);
    Rows pieces = dropped(v, {{key, 0, 13}, {4, 0, 11}}, 100, 0.3);
    pieces.merge(dropped(v, {{key, 13, 27}}, 100, 0.3));
    for (const auto& [where, row] : alone) {
      REQUIRE(among.at(where) == row);
      REQUIRE(pieces.at(where) == row);
      REQUIRE(dropped(ref(), {{key, where.second, 1}}, 100, 0.3).at(where) == row);
    }
  }
}

TEST_CASE(
    "dropped channels are dropped in all pixels of a sequence, whatever part of it is there") {
  const uint64_t key = 991;
  const auto over_channels = [](const Variant& v, const std::vector<Utterance>& batch) {
    return dropped(v, batch, 4 * 40, 0.3, 5, 77, 40);
  };
  // Those of the first frame of a layer that drops each value by itself.
  const std::vector<float> expected = dropped(ref(), {{key, 0, 1}}, 40, 0.3).at({key, 0});
  const auto zeros = std::count(expected.begin(), expected.end(), 0.0f);
  CHECK((zeros > 0 && zeros < 40));
  for (const Variant& v : runnable_variants()) {
    INFO(v.name);
    const Rows rows = over_channels(v, {{7, 0, 20}, {key, 13, 17}, {9, 0, 2}});
    for (int32_t t = 13; t < 30; ++t) {
      for (size_t i = 0; i < 160; ++i) REQUIRE(rows.at({key, t})[i] == expected[i % 40]);
    }
    CHECK(rows.at({7, 0}) != rows.at({key, 13}));
  }
}

TEST_CASE("fewer columns see the beginning of the same rows") {
  const Rows wide = dropped(ref(), {{3, 0, 4}}, 130, 0.5),
             narrow = dropped(ref(), {{3, 0, 4}}, 65, 0.5);
  for (const auto& [where, row] : narrow) {
    CHECK(std::equal(row.begin(), row.end(), wide.at(where).begin()));
  }
}

TEST_CASE("masks of different seeds, layers, utterances and frames are unrelated") {
  const double p = 0.25, chance = p * p + (1 - p) * (1 - p);
  const std::vector<Utterance> batch = {{1, 0, 200}};
  const int64_t cols = 200;
  // Two independent masks agree in a share `chance`, with deviation sqrt(c (1 - c) / 40000) =
  // 0.0024.
  const Rows base = dropped(ref(), batch, cols, p);
  const auto unrelated = [&](const Rows& other) {
    CHECK(std::abs(share_equal(base, other) - chance) < 0.012);
  };
  unrelated(dropped(ref(), batch, cols, p, 6));
  unrelated(dropped(ref(), batch, cols, p, 5, 78));
  unrelated(dropped(ref(), batch, cols, p, 5, 77 + (uint64_t{1} << 40)));
  const auto relabelled = [&](const Rows& rows, int32_t shift) {
    Rows moved;
    for (const auto& [where, row] : rows) moved[{1, where.second - shift}] = row;
    return moved;
  };
  unrelated(relabelled(dropped(ref(), {{2, 0, 200}}, cols, p), 0));
  unrelated(relabelled(dropped(ref(), {{1 + (uint64_t{1} << 32), 0, 200}}, cols, p), 0));
  unrelated(relabelled(dropped(ref(), {{1, 1, 200}}, cols, p), 1));
}

TEST_CASE("the mean is kept, the share of zeros is p, the rest is scaled by 1 / (1 - p)") {
  for (double p : {0.1, 0.5, 0.9}) {
    double sum = 0, zeros = 0, count = 0;
    for (const auto& [where, row] : dropped(ref(), {{12, 0, 300}}, 300, p)) {
      for (float v : row) {
        REQUIRE((v == 0 || v == static_cast<float>(1 / (1 - p))));
        sum += static_cast<double>(v), zeros += v == 0, count += 1;
      }
    }
    const double deviation = std::sqrt(p * (1 - p) / count);
    CHECK(std::abs(zeros / count - p) < 5 * deviation);
    CHECK(std::abs(sum / count - 1) < 5 * deviation / (1 - p));
  }
}

TEST_CASE("p = 0 copies; p outside [0, 1) is refused") {
  for (const Variant& v : runnable_variants()) {
    for (const auto& [where, row] : dropped(v, {{12, 0, 3}}, 70, 0)) {
      for (float value : row) REQUIRE(value == 1);
    }
    for (double p : {-0.1, 1.0, 1.5, std::nan("")}) {
      CHECK_THROWS_AS(dropped(v, {{12, 0, 3}}, 70, p), Error);
    }
  }
}
