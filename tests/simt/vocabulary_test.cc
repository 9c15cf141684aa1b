// Every word of the kernel vocabulary, on the simulator in all orders and on a GPU when there is
// one.
#include "tests/simt/vocabulary.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/devices.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"

namespace rondo {
namespace {

struct Place {
  const char* name;
  Backend backend;
  SimOptions options;
};
const Place places[] = {
    {"sim forward", Backend::sim, {SimOrder::forward, 1}},
    {"sim reverse", Backend::sim, {SimOrder::reverse, 1}},
    {"sim shuffled", Backend::sim, {SimOrder::shuffled, 5}},
#ifdef RONDO_WITH_CUDA
    {"cuda", Backend::cuda, {}},
#endif
};

// A stream on one place, and copies to and from it.
struct Bench {
  Device* device = nullptr;
  Stream stream;
  Context context;
  std::vector<Buffer> buffers;

  explicit Bench(const Place& p) {
    std::string why;  // there is none: a machine without a GPU
    device = find_device(p.backend == Backend::sim ? DeviceKind::sim : DeviceKind::cuda, &why);
    set_sim_options(p.options);
    if (!device) return;
    stream = device->make_stream();
    context = {p.backend, device, &stream, nullptr};
  }
  template <class T>
  T* put(const std::vector<T>& values) {
    buffers.emplace_back(*device, values.size() * sizeof(T), "test");
    device->copy(stream, buffers.back().data(), values.data(), buffers.back().bytes());
    stream.synchronize();
    return buffers.back().as<T>();
  }
  template <class T>
  std::vector<T> get(const T* data, size_t n) {
    std::vector<T> values(n);
    device->copy(stream, values.data(), data, n * sizeof(T));
    stream.synchronize();
    return values;
  }
};

#ifdef RONDO_WITH_CUDA
#define ON_PLACE(b, function, ...) \
  ((b).context.backend == Backend::sim ? sim::function : cuda::function)((b).context, ##__VA_ARGS__)
#else
#define ON_PLACE(b, function, ...) sim::function((b).context, ##__VA_ARGS__)
#endif

// body(bench) on every place there is.
template <class F>
void everywhere(F body) {
  for (const Place& place : places) {
    Bench bench(place);
    if (!bench.device) continue;
    INFO(place.name);
    body(bench);
  }
  set_sim_options({});
}

TEST_CASE("shuffles, shared memory and a barrier sum rows") {
  everywhere([](Bench& b) {
    const int rows = 7, n = 301;
    std::vector<float> x(rows * n), want(rows);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i % 17) - 8);
    for (size_t i = 0; i < x.size(); ++i) want[i / n] += x[i];
    float* y = b.put(std::vector<float>(rows));
    ON_PLACE(b, row_sums, y, b.put(x), rows, n);
    CHECK(b.get(y, rows) == want);
  });
}

TEST_CASE("warp operations respect masks and widths") {
  everywhere([](Bench& b) {
    int* out = b.put(std::vector<int>(32 * sim::warp_operation_count, -1));
    ON_PLACE(b, warp_operations, out);
    const auto got = b.get(out, 32 * sim::warp_operation_count);
    for (int l = 0; l < 32; ++l) {
      const auto at = [&](int k) { return got[static_cast<size_t>(32 * k + l)]; };
      CHECK(at(0) == 100 + (l + 1) % 32);
      CHECK(at(1) == 100 + l / 8 * 8 + 3);
      CHECK(at(2) == 100 + (l >= 2 ? l - 2 : l));
      CHECK(at(3) == 100 + (l % 16 < 11 ? l + 5 : l));
      CHECK(at(4) == 100 + (l ^ 17));
      CHECK(at(5) == 0x49249249);
      CHECK(at(6) == 5);
      CHECK(at(7) == (l < 16 ? 8 : 4));
      CHECK(at(8) == __builtin_ffs(l) + 100 * (l ? __builtin_clz(static_cast<unsigned>(l)) : 32));
      CHECK(at(9) == 31 - l);
    }
  });
}

TEST_CASE("atomics") {
  everywhere([](Bench& b) {
    int* counts = b.put(std::vector<int>{0, -1, 1 << 20, 0, 0});
    float* sum = b.put(std::vector<float>{0});
    ON_PLACE(b, atomics, counts, sum, 5, 100);
    CHECK(b.get(counts, 5) == std::vector<int>{500, 499, 1, 7, 9});
    CHECK(b.get(sum, 1)[0] == 250);
  });
}

TEST_CASE("threads may exit before a barrier") {
  everywhere([](Bench& b) {
    int* count = b.put(std::vector<int>{0});
    ON_PLACE(b, early_exit, count, 40);
    CHECK(b.get(count, 1)[0] == 40);
  });
}

TEST_CASE("a cooperative grid meets at a grid barrier") {
  everywhere([](Bench& b) {
    const int size = 64, steps = 5;
    std::vector<float> u(size * size), x(steps * size), h((steps + 1) * size);
    for (size_t i = 0; i < u.size(); ++i) {
      u[i] = 0.01f * static_cast<float>(static_cast<int>(i * 7 % 13) - 6);
    }
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.1f * static_cast<float>(i % 5);
    float* h_device = b.put(h);
    for (size_t t = 0; t < steps; ++t) {
      for (size_t r = 0; r < size; ++r) {
        double sum = x[t * size + r];
        for (size_t k = 0; k < size; ++k) sum += double{u[r * size + k]} * h[t * size + k];
        h[(t + 1) * size + r] = static_cast<float>(std::tanh(sum));
      }
    }
    ON_PLACE(b, persistent_rnn, h_device, b.put(u), b.put(x), steps);
    const auto got = b.get(h_device, h.size());
    for (size_t i = 0; i < h.size(); ++i) CHECK(std::abs(got[i] - h[i]) <= 1e-6f);
  });
}

// What block k of clusters of 4 gets: the sum over its cluster of (block + 1) x (rank + 1).
float cluster_sum(int k) {
  float sum = 0;
  for (int r = 0; r < 4; ++r) sum += static_cast<float>((k / 4 * 4 + r + 1) * (r + 1));
  return sum;
}

TEST_CASE("clusters read each other's shared memory") {
  everywhere([](Bench& b) {
    float* y = b.put(std::vector<float>(12));
    ON_PLACE(b, cluster_sums, y, 3);
    const auto got = b.get(y, 12);
    for (int k = 0; k < 12; ++k) CHECK(got[static_cast<size_t>(k)] == cluster_sum(k));
  });
}

TEST_CASE("a cluster's barrier in two hands over what was stored before the arrival") {
  for (const int rounds : {1, 6}) {
    everywhere([rounds](Bench& b) {
      const int clusters = 3, blocks = 4 * clusters;
      float* y = b.put(std::vector<float>(static_cast<size_t>(blocks) * 32));
      ON_PLACE(b, split_barrier, y, clusters, rounds);
      const auto got = b.get(y, static_cast<size_t>(blocks) * 32);
      for (int block = 0; block < blocks; ++block) {
        const int from = block / 4 * 4 + (block - rounds + 8) % 4;
        for (int t = 0; t < 32; ++t) {
          const int want = 100 * from + 31 - t + rounds + rounds * (rounds - 1) / 2;
          CHECK(got[static_cast<size_t>(block * 32 + t)] == static_cast<float>(want));
        }
      }
    });
  }
}

TEST_CASE("clusters of 8 and of 16 store into each other's shared memory") {
  for (const int size : {2, 8, 16}) {
    everywhere([size](Bench& b) {
      const int clusters = 2;
      const auto blocks = static_cast<size_t>(size * clusters);
      float* y = b.put(std::vector<float>(blocks));
      ON_PLACE(b, cluster_stores, y, clusters, size);
      const auto got = b.get(y, blocks);
      for (int k = 0; k < size * clusters; ++k) {
        float want = 0;
        for (int r = 0; r < size; ++r)
          want += static_cast<float>((k / size * size + r + 1) * (r + 1));
        CHECK(got[static_cast<size_t>(k)] == want);
      }
    });
  }
}

TEST_CASE("warp groups give each other registers, and values live on") {
  everywhere([](Bench& b) {
    std::vector<float> x(384);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 29);
    float* y = b.put(std::vector<float>(384));
    ON_PLACE(b, trade_registers, y, b.put(x));
    const auto got = b.get(y, 384);
    for (size_t i = 0; i < 384; ++i) {
      float want = x[i] * x[i];
      for (size_t k = 0; i >= 128 && k < 64; ++k) want += x[i % 64 + k];
      CHECK(got[i] == want);
    }
  });
}

TEST_CASE("ranks count within the cluster in cooperative launches too") {
  everywhere([](Bench& b) {
    float* y = b.put(std::vector<float>(12));
    ON_PLACE(b, cooperative_clusters, y, 3);
    const auto got = b.get(y, 12);
    float total = 0;
    for (int k = 0; k < 12; ++k) total += cluster_sum(k);
    CHECK(got[0] == total);
    for (int k = 1; k < 12; ++k) CHECK(got[static_cast<size_t>(k)] == cluster_sum(k));
  });
}

TEST_CASE("stores that arrive at another block's mbarrier are there when it has waited") {
  everywhere([](Bench& b) {
    uint32_t* y = b.put(std::vector<uint32_t>(8 * 32));
    const uint32_t rounds = 7;
    ON_PLACE(b, pass_around, y, 2, static_cast<int>(rounds));
    const auto got = b.get(y, 8 * 32);
    for (uint32_t i = 0; i < 8 * 32; ++i) {
      const uint32_t block = i / 32, from = block / 4 * 4 + (block % 4 + 4 - rounds % 4) % 4;
      CHECK(got[i] == 100 * from + i % 32 + rounds);
    }
  });
}

TEST_CASE("cp.async copies 4, 8 and 16 bytes and zeroes the rest") {
  everywhere([](Bench& b) {
    std::vector<float> x(384);
    std::iota(x.begin(), x.end(), 1.0f);
    for (int valid : {128, 101, 4, 0}) {
      float* y = b.put(std::vector<float>(384, -1));
      ON_PLACE(b, async_reverse, y, b.put(x), valid);
      const auto got = b.get(y, 384);
      for (size_t i = 0; i < 384; ++i) {
        const size_t from = i / 128 * 128 + 127 - i % 128;
        const bool zeroed = from < 128 && from >= static_cast<size_t>(valid);
        CHECK(got[i] == (zeroed ? 0.0f : x[from]));
      }
    }
  });
}

TEST_CASE("mma multiplies bf16 tiles exactly for small integers") {
  everywhere([](Bench& b) {
    std::vector<bf16> a(256), bt(128);
    std::vector<float> want(128);
    for (int i = 0; i < 256; ++i) a[static_cast<size_t>(i)] = bf16(static_cast<float>(i % 11 - 5));
    for (int i = 0; i < 128; ++i) bt[static_cast<size_t>(i)] = bf16(static_cast<float>(i % 7 - 3));
    for (size_t r = 0; r < 16; ++r) {
      for (size_t c = 0; c < 8; ++c) {
        for (size_t k = 0; k < 16; ++k) {
          want[r * 8 + c] += static_cast<float>(a[r * 16 + k]) * static_cast<float>(bt[c * 16 + k]);
        }
      }
    }
    float* c = b.put(std::vector<float>(128));
    ON_PLACE(b, mma, c, b.put(a), b.put(bt));
    CHECK(b.get(c, 128) == want);
  });
}

TEST_CASE("mma multiplies TF32 tiles exactly for small integers") {
  everywhere([](Bench& b) {
    std::vector<float> a(128), bt(64), want(128);
    for (int i = 0; i < 128; ++i) a[static_cast<size_t>(i)] = static_cast<float>(i % 11 - 5);
    for (int i = 0; i < 64; ++i) bt[static_cast<size_t>(i)] = static_cast<float>(i % 13 - 6) / 8;
    for (size_t r = 0; r < 16; ++r) {
      for (size_t c = 0; c < 8; ++c) {
        for (size_t k = 0; k < 8; ++k) want[r * 8 + c] += a[r * 8 + k] * bt[c * 8 + k];
      }
    }
    float* c = b.put(std::vector<float>(128));
    ON_PLACE(b, mma_tf32, c, b.put(a), b.put(bt));
    CHECK(b.get(c, 128) == want);
  });
}

TEST_CASE("divide_fast divides within 2 ulp, and by what is huge or infinite to zero") {
  everywhere([](Bench& b) {
    const std::vector<float> x = {1, 2, 1, -3, 1, 1, 2, 1};
    const std::vector<float> by = {3, 7, 1e-30f, 1e30f, 0x1p127f, INFINITY, -0x1p126f, NAN};
    float* y = b.put(std::vector<float>(x.size()));
    ON_PLACE(b, divide, y, b.put(x), b.put(by), static_cast<int>(x.size()));
    const auto got = b.get(y, x.size());
    for (size_t i : {0, 1, 2, 3, 6}) {
      CHECK(std::abs(got[i] - x[i] / by[i]) <= 0x1p-22f * std::abs(x[i] / by[i]));
    }
    CHECK(got[4] == 0);
    CHECK(got[5] == 0);
    CHECK(std::isnan(got[7]));
  });
}

TEST_CASE("blocks hand a flag on") {
  everywhere([](Bench& b) {
    uint32_t* flags = b.put(std::vector<uint32_t>(9));
    int* y = b.put(std::vector<int>(9, -1));
    ON_PLACE(b, relay, flags, y, 9);
    const auto got = b.get(y, 9);
    for (int k = 0; k < 9; ++k) CHECK(got[static_cast<size_t>(k)] == k);
  });
}

TEST_CASE("words that say themselves that they are there pass between blocks") {
  everywhere([](Bench& b) {
    uint32_t* words = b.put(std::vector<uint32_t>(9 * 8));
    uint32_t* y = b.put(std::vector<uint32_t>(9));
    ON_PLACE(b, pass_words, words, y, 9);
    const auto got = b.get(y, 9);
    for (uint32_t k = 0; k < 9; ++k) CHECK(got[k] == 36 + 8 * k);
  });
}

TEST_CASE("bf16 rounds as on the host") {
  everywhere([](Bench& b) {
    std::vector<float> x = {0.0f,          -0.0f,  1.0f,     1.00390625f, 1.01171875f,
                            3.3895314e38f, 1e-40f, INFINITY, -INFINITY,   NAN};
    for (uint32_t i = 0; i < 4000; ++i) {
      const uint32_t bits = i * 1073789u + 12345u;
      float f;
      std::memcpy(&f, &bits, sizeof f);
      x.push_back(f);
    }
    float* y = b.put(std::vector<float>(x.size()));
    ON_PLACE(b, round_trip, y, b.put(x), static_cast<int>(x.size()));
    const auto got = b.get(y, x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const auto want = static_cast<float>(bf16(x[i]));
      CHECK(std::memcmp(&got[i], &want, sizeof want) == 0);
    }
  });
}

TEST_CASE("200 KB of shared memory") {
  everywhere([](Bench& b) {
    int* y = b.put(std::vector<int>(64, -1));
    ON_PLACE(b, large_shared, y);
    const auto got = b.get(y, 64);
    for (int i = 0; i < 64; ++i) CHECK(got[static_cast<size_t>(i)] == i);
  });
}

TEST_CASE("launches past the limits are refused by name") {
  everywhere([](Bench& b) {
    CHECK_THROWS_WITH(ON_PLACE(b, too_many_threads),
                      Catch::Contains("too_many_threads<<<") && Catch::Contains("1024 threads"));
    CHECK_THROWS_WITH(ON_PLACE(b, too_much_shared),
                      Catch::Contains("too_much_shared<<<") && Catch::Contains("232448 bytes"));
    CHECK_THROWS_WITH(ON_PLACE(b, nothing_to_launch), Catch::Contains("nothing to launch"));
  });
}

}  // namespace
}  // namespace rondo
