// Kernels that no op of its own stands for, and checkop therefore has no cases of: what cuBLASLt
// and cuDNN need around their calls. In three orders of threads; compiled for the race detector and
// AddressSanitizer too.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ctc/ctc_gpu.h"
#include "kernels/gemm/gemm_impl.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#ifdef RONDO_INSTRUMENTED
#include "kernels/simt/instrument/instrument.h"
#endif

namespace rondo {
namespace {

// Sections of a test run once in each order.
struct Sim {
  Sim() {
#ifdef RONDO_INSTRUMENTED
    simt::instrument();
#endif
    set_sim_options({GENERATE(SimOrder::forward, SimOrder::reverse, SimOrder::shuffled), 5});
  }
  ~Sim() { set_sim_options({}); }
  Sim(const Sim&) = delete;
  Sim& operator=(const Sim&) = delete;
  Stream stream = sim_device().make_stream();
  Context context{Backend::sim, &sim_device(), &stream, nullptr};
};

// Device memory that holds these values.
template <class T>
Buffer on_device(const std::vector<T>& values) {
  Buffer buffer(sim_device(), values.size() * sizeof(T), "test");
  std::copy(values.begin(), values.end(), buffer.as<T>());
  return buffer;
}

std::vector<float> values_of(const Buffer& buffer, DType dtype, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(dtype == DType::f32 ? buffer.as<float>()[i]
                                         : static_cast<float>(buffer.as<bf16>()[i]));
  }
  return values;
}

}  // namespace

TEST_CASE("zero_tail clears the rows or columns past a count, and nothing else") {
  Sim sim;
  constexpr int64_t ld = 70, rows = 37, cols = 67;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool of_rows : {true, false}) {
      for (const int32_t live : {0, 1, 30, static_cast<int32_t>(of_rows ? rows : cols)}) {
        const std::vector<int32_t> count = {live};
        const Buffer device_count = on_device(count);
        const Buffer data = dtype == DType::f32
                                ? on_device(std::vector<float>(rows * ld, 1.5f))
                                : on_device(std::vector<bf16>(rows * ld, bf16(1.5f)));
        sim::gemm_zero_tail(
            sim.context, {data.data(), dtype, ld, rows, cols, device_count.as<int32_t>(), of_rows});
        sim.stream.synchronize();
        const std::vector<float> got = values_of(data, dtype, rows * ld);
        int wrong = 0;
        for (int64_t i = 0; i < rows * ld; ++i) {
          const bool tail = i % ld < cols && (of_rows ? i / ld : i % ld) >= live;
          wrong += !(got[static_cast<size_t>(i)] == (tail ? 0.0f : 1.5f));
        }
        CAPTURE(name_of(dtype), of_rows, live);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("add_bias rounds results, bias and what was there once") {
  Sim sim;
  constexpr int64_t ldc = 45, rows = 19, cols = 41;
  for (const float beta : {0.0f, 0.5f}) {
    std::vector<float> results, bias;
    for (int64_t i = 0; i < rows * cols; ++i)
      results.push_back(0.37f * static_cast<float>(i % 101));
    for (int64_t i = 0; i < cols; ++i) bias.push_back(1.0f / static_cast<float>(i + 3));
    // With beta 0 what was there may be anything.
    const bf16 before = bf16(beta == 0 ? NAN : 3.25f);
    const Buffer c = on_device(std::vector<bf16>(rows * ldc, before));
    const Buffer device_results = on_device(results), device_bias = on_device(bias);
    sim::gemm_add_bias(sim.context, {device_results.as<float>(), c.as<bf16>(), ldc, rows, cols,
                                     beta, device_bias.as<float>()});
    sim.stream.synchronize();
    int wrong = 0;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < ldc; ++j) {
        const bf16 got = c.as<bf16>()[i * ldc + j];
        bf16 want = before;
        if (j < cols) {
          float value = results[static_cast<size_t>(i * cols + j)] + bias[static_cast<size_t>(j)];
          if (beta != 0) value += beta * static_cast<float>(before);
          want = bf16(value);
        }
        wrong += got.bits != want.bits;
      }
    }
    CAPTURE(beta);
    CHECK(wrong == 0);
  }
}

TEST_CASE("label lengths are the differences of offsets") {
  Sim sim;
  std::vector<int32_t> offsets = {0};
  for (int32_t n = 0; n < 300; ++n) offsets.push_back(offsets.back() + n % 7);
  for (const int32_t count : {1, 127, 128, 129, 300}) {
    const Buffer device_offsets = on_device(offsets);
    const Buffer lengths = on_device(std::vector<int32_t>(301, -1));
    sim::ctc_label_lengths(sim.context, device_offsets.as<int32_t>(), count, lengths.as<int32_t>());
    sim.stream.synchronize();
    int wrong = 0;
    for (int32_t n = 0; n <= 300; ++n)
      wrong += lengths.as<int32_t>()[n] != (n < count ? n % 7 : -1);
    CAPTURE(count);
    CHECK(wrong == 0);
  }
}

}  // namespace rondo
