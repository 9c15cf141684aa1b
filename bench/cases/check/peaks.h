// This machine's rates, to compare benchmarks with: measured, in a fraction of a second each.
#pragma once

#include <string>

#include "kernels/base/op.h"

namespace rondo::check {

// Of a clock that never goes back.
double now_seconds();

// GFLOP/s of the best run of a 1024 x 1024 x 1024 product of such inputs (f32, bf16: f32 results;
// f64), on all threads of the context, which must be the CPU's.
double gemm_peak_gflops(const Context& cpu, DType inputs);

// 1e9 bytes read plus bytes written per second by memcpy of 64 MiB on each thread; the best run.
double copy_peak_gbytes_per_s(ThreadPool& pool);

// Seconds of one of many copies in a row, within the context's device, that read half of so many
// bytes and write the other half.
double device_copy_seconds(const Context& gpu, double bytes);

// A rate's share of a peak as JSON: "null" where either is not known (0).
std::string share_json(double rate, double peak);

}  // namespace rondo::check
