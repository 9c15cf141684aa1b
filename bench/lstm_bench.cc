// Times one LSTM layer's training step (forward, backward, weight gradients, one after the other,
// as in training), one JSON line per shape:
//   build/bench/lstm_bench [--threads N] [--seconds S] h512_b16_t100_d1_f32_ragged ...
// The batch has b sequences: all of t frames (even), or of t down to t / 2 (ragged), packed. The
// input is as wide as the layer. us is wall time; thread_us the calling thread's processor time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/cases/check/peaks.h"
#include "bench/cases/lstm_bytes.h"
#include "bench/clock.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/packed_host.h"

using namespace rondo;

namespace {

struct Shape {
  int hidden = 0, batch = 0, frames = 0, directions = 0;
  DType dtype = DType::f32;
  std::vector<int32_t> lengths;
};

Shape parse(const std::string& text) {
  Shape s;
  char type[8] = "", kind[8] = "";
  const int found = std::sscanf(text.c_str(), "h%d_b%d_t%d_d%d_%7[a-z0-9]_%7s", &s.hidden, &s.batch,
                                &s.frames, &s.directions, type, kind);
  const bool ragged = kind == std::string("ragged"), narrow = type == std::string("bf16");
  if (found != 6 || s.hidden < 1 || s.batch < 1 || s.frames < 1 || s.directions < 1 ||
      s.directions > 2 || (!narrow && type != std::string("f32")) ||
      (!ragged && kind != std::string("even"))) {
    std::fprintf(stderr, "lstm_bench: '%s' is no shape like h512_b16_t100_d1_f32_ragged\n",
                 text.c_str());
    std::exit(2);
  }
  if (narrow) s.dtype = DType::bf16;
  for (int n = 0; n < s.batch; ++n) {
    s.lengths.push_back(ragged ? s.frames - n * (s.frames / 2) / std::max(s.batch - 1, 1)
                               : s.frames);
  }
  return s;
}

class Step {
 public:
  Step(const Context& context, const Shape& s)
      : context_(context), layout_(build_packed(s.lengths)) {
    const LstmDims dims{s.directions, s.hidden, s.hidden, 0};
    const int64_t D = s.directions, H = s.hidden, rows = layout_.extent.rows;
    forward_.dims = backward_.dims = weight_grad_.dims = dims;
    forward_.layout = backward_.layout = weight_grad_.layout = layout_.view();
    forward_.x = weight_grad_.x = array(s.dtype, {rows, H});
    for (int d = 0; d < s.directions; ++d) {
      forward_.weights[d].w = array(s.dtype, {4 * H, H});
      forward_.weights[d].r = array(s.dtype, {4 * H, H});
      forward_.weights[d].b = array(DType::f32, {4 * H});
      backward_.weights[d] = forward_.weights[d];
      weight_grad_.grads[d].w = array(DType::f32, {4 * H, H});
      weight_grad_.grads[d].r = array(DType::f32, {4 * H, H});
      weight_grad_.grads[d].b = array(DType::f32, {4 * H});
    }
    forward_.y = weight_grad_.y = array(s.dtype, {rows, D * H});
    forward_.gates = backward_.gates = array(s.dtype, {D, rows, 4 * H});
    forward_.cells = backward_.cells = array(DType::f32, {D, rows, H});
    backward_.dy = array(s.dtype, {rows, D * H});
    backward_.dgates = weight_grad_.dgates = array(s.dtype, {D, rows, 4 * H});
    backward_.dx = array(s.dtype, {rows, H});
    size_t bytes = 0;
    for (LstmPhase phase : {LstmPhase::forward, LstmPhase::backward, LstmPhase::weight_grad}) {
      bytes = std::max(
          bytes, lstm_workspace_bytes(context, phase, dims, s.dtype, layout_.view().capacity));
    }
    forward_.workspace = backward_.workspace = weight_grad_.workspace =
        array(DType::u8, {static_cast<int64_t>(bytes)});
    flops_ = 3.0 * 2 * static_cast<double>(rows * D * 4 * H * 2 * H);
    for (LstmPhase phase : {LstmPhase::forward, LstmPhase::backward, LstmPhase::weight_grad}) {
      bytes_ += lstm_bytes(phase, {dims, rows, s.dtype});
    }
  }

  void run() {
    rondo::run(context_, forward_);
    rondo::run(context_, backward_);
    rondo::run(context_, weight_grad_);
  }
  double flops() const { return flops_; }
  double bytes() const { return bytes_; }
  int64_t rows() const { return layout_.extent.rows; }

 private:
  // Values in +-0.1, the same in every run.
  TensorView array(DType dtype, std::initializer_list<int64_t> dims) {
    TensorView view(nullptr, dtype, dims);
    buffers_.emplace_back(cpu_device(), view.bytes(), "lstm_bench");
    view.data = buffers_.back().data();
    for (int64_t i = 0; i < view.numel(); ++i) {
      state_ = state_ * 1664525u + 1013904223u;
      const float x = (static_cast<float>(state_ >> 8) / 16777216.0f - 0.5f) * 0.2f;
      if (dtype == DType::f32) view.as<float>()[i] = x;
      if (dtype == DType::bf16) view.as<bf16>()[i] = bf16(x);
    }
    return view;
  }

  const Context& context_;
  PackedHost layout_;
  std::vector<Buffer> buffers_;
  uint32_t state_ = 1;
  LstmForwardArgs forward_;
  LstmBackwardArgs backward_;
  LstmWeightGradArgs weight_grad_;
  double flops_ = 0, bytes_ = 0;
};

struct Peaks {
  double gemm[2] = {};  // f32, bf16; GFLOP/s
  double copy = 0;      // GB/s
};

void time_shape(const Context& context, const std::string& name, double seconds, Peaks& peaks) {
  const Shape shape = parse(name);
  Step step(context, shape);
  double& gemm = peaks.gemm[shape.dtype == DType::bf16];
  if (gemm == 0) gemm = check::gemm_peak_gflops(context, shape.dtype);
  if (peaks.copy == 0) peaks.copy = check::copy_peak_gbytes_per_s(*context.pool);
  // Threads may begin on one core, and the clock may be low.
  for (const double end = wall_seconds() + 0.15;;) {
    step.run();
    if (wall_seconds() > end) break;
  }
  std::vector<double> wall, thread;
  for (const double end = wall_seconds() + seconds; wall.size() < 3 || wall_seconds() < end;) {
    const double begin = wall_seconds(), thread_begin = thread_seconds();
    step.run();
    thread.push_back(thread_seconds() - thread_begin);
    wall.push_back(wall_seconds() - begin);
  }
  std::sort(wall.begin(), wall.end());
  std::sort(thread.begin(), thread.end());
  const double median = wall[wall.size() / 2];
  const double gflops = step.flops() / median * 1e-9, gbytes = step.bytes() / median * 1e-9;
  std::printf(
      "{\"op\": \"lstm_step\", \"case\": \"%s\", \"dtype\": \"%s\", \"shape\": {\"hidden\": %d, "
      "\"input\": %d, \"batch\": %d, \"frames\": %d, \"directions\": %d, \"rows\": %lld}, "
      "\"threads\": %d, \"runs\": %zu, \"median_us\": %.1f, \"min_us\": %.1f, "
      "\"median_thread_us\": %.1f, \"min_thread_us\": %.1f, \"flops\": %.0f, \"bytes\": %.0f, "
      "\"gflops\": %.1f, \"gbytes_per_s\": %.2f, \"share_of_gemm_peak\": %s, "
      "\"share_of_copy_peak\": %s}\n",
      name.c_str(), name_of(shape.dtype), shape.hidden, shape.hidden, shape.batch, shape.frames,
      shape.directions, static_cast<long long>(step.rows()), context.pool->size(), wall.size(),
      median * 1e6, wall.front() * 1e6, thread[thread.size() / 2] * 1e6, thread.front() * 1e6,
      step.flops(), step.bytes(), gflops, gbytes, check::share_json(gflops, gemm).c_str(),
      check::share_json(gbytes, peaks.copy).c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int threads = usable_cpus();
  double seconds = 0.3;
  std::vector<std::string> shapes;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--threads" && i + 1 < argc) {
      threads = std::max(std::atoi(argv[++i]), 1);
    } else if (word == "--seconds" && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else {
      shapes.push_back(word);
    }
  }
  ThreadPool pool(threads);
  Stream stream = cpu_device().make_stream();
  const Context context{Backend::cpu, &cpu_device(), &stream, &pool};
  Peaks peaks;
  for (const std::string& shape : shapes) time_shape(context, shape, seconds, peaks);
}
