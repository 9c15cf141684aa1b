#include "bench/cases/check/peaks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/gemm/gemm.h"

namespace rondo::check {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace {

// The fastest of the runs within `seconds`, at least three, after one to warm up.
template <class F>
double fastest(double seconds, F&& run) {
  run();
  double best = std::numeric_limits<double>::infinity();
  const double end = now_seconds() + seconds;
  for (int runs = 0; runs < 3 || now_seconds() < end; ++runs) {
    const double begin = now_seconds();
    run();
    best = std::min(best, now_seconds() - begin);
  }
  return best;
}

// Values in +-1 of that type, in memory that is large enough for the widest: zeros would draw less
// power, and the clock could be higher.
void fill(std::vector<double>& memory, DType dtype, uint32_t state) {
  for (size_t i = 0; i < memory.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(state >> 8) / 8388608.0f - 1;
    if (dtype == DType::f64) memory[i] = static_cast<double>(x);
    if (dtype == DType::f32) reinterpret_cast<float*>(memory.data())[i] = x;
    if (dtype == DType::bf16) reinterpret_cast<bf16*>(memory.data())[i] = bf16(x);
  }
}

}  // namespace

double gemm_peak_gflops(const Context& cpu, DType inputs) {
  RONDO_CHECK(cpu.backend == Backend::cpu, "the peak of ", name_of(cpu.backend));
  constexpr int64_t n = 1024;
  GemmArgs g;
  g.m = g.n = g.k = g.lda = g.ldb = g.ldc = n;
  g.dtype = inputs;
  g.c_dtype = inputs == DType::f64 ? DType::f64 : DType::f32;
  std::vector<double> a(n * n), b(n * n), c(n * n);
  fill(a, inputs, 1);
  fill(b, inputs, 2);
  g.a = a.data(), g.b = b.data(), g.c = c.data();
  std::vector<double> workspace(gemm_workspace_bytes(cpu, g) / sizeof(double) + 1);
  g.workspace = TensorView(workspace.data(), DType::u8,
                           {static_cast<int64_t>(workspace.size() * sizeof(double))});
  return 2.0 * n * n * n / fastest(0.15, [&] { run(cpu, g); }) * 1e-9;
}

double copy_peak_gbytes_per_s(ThreadPool& pool) {
  constexpr size_t size = size_t{64} << 20;
  const auto threads = static_cast<size_t>(pool.size());
  std::vector<std::vector<char>> from(threads), to(threads);
  pool.run([&](int worker) {  // pages belong to who touches them first
    from[static_cast<size_t>(worker)].assign(size, 1);
    to[static_cast<size_t>(worker)].assign(size, 2);
  });
  const double took = fastest(0.15, [&] {
    pool.run([&](int worker) {
      const auto w = static_cast<size_t>(worker);
      std::memcpy(to[w].data(), from[w].data(), size);
    });
  });
  return 2.0 * static_cast<double>(size * threads) / took * 1e-9;
}

double device_copy_seconds(const Context& gpu, double bytes) {
  constexpr int copies = 20;
  const auto half = static_cast<size_t>(bytes / 2) + 1;
  const Buffer from(*gpu.device, half, "a copy"), to(*gpu.device, half, "a copy");
  gpu.device->fill_bytes(*gpu.stream, from.data(), 1, half);
  return fastest(0.005,
                 [&] {
                   for (int i = 0; i < copies; ++i) {
                     gpu.device->copy(*gpu.stream, to.data(), from.data(), half);
                   }
                   gpu.stream->synchronize();
                 }) /
         copies;
}

std::string share_json(double rate, double peak) {
  if (!(rate > 0) || !(peak > 0)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", rate / peak);
  return text;
}

}  // namespace rondo::check
