// Times an output layer with its CTC loss, forward and backward, in three ways, one JSON line per
// type:
//   build/bench/fused_output_bench [--threads N] [--rounds R] [--hidden H] [--classes V] [--frames
//   T]
//                                  [--sequences N] [f32|bf16 ...]
// products: the three matrix products of the layer alone; plain: those and CTC, with the logits in
// memory; fused: linear_ctc and linear_ctc_grad. They take turns, R times, and the median counts,
// with one thread of processor time. MB: all arrays of each, beside those that every way has:
// inputs, weights and the gradients of both. bench/peers/fused_output_peer.py does the same with
// PyTorch.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/clock.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/packed_host.h"
#include "kernels/ctc/ctc.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_ctc/linear_ctc.h"
#include "kernels/reduce/reduce.h"

using namespace rondo;

namespace {

struct Sizes {
  int64_t hidden = 512, classes = 18548;
  int32_t frames = 80, sequences = 128, rounds = 3;
};

// Arrays that are counted.
class Arrays {
 public:
  // Values in +-scale, the same in every run.
  TensorView add(DType dtype, std::initializer_list<int64_t> dims, float scale = 0) {
    TensorView view(nullptr, dtype, dims);
    buffers_.emplace_back(cpu_device(), view.bytes(), "fused_output_bench");
    view.data = buffers_.back().data();
    bytes_ += view.bytes();
    for (int64_t i = 0; i < view.numel() && dtype != DType::u8; ++i) {
      state_ = state_ * 1664525u + 1013904223u;
      const float x = (static_cast<float>(state_ >> 8) / 8388608.0f - 1.0f) * scale;
      if (dtype == DType::f32) view.as<float>()[i] = x;
      if (dtype == DType::bf16) view.as<bf16>()[i] = bf16(x);
    }
    return view;
  }
  TensorView workspace(size_t bytes) { return add(DType::u8, {static_cast<int64_t>(bytes)}); }
  double megabytes() const { return static_cast<double>(bytes_) / 1e6; }

 private:
  std::vector<Buffer> buffers_;
  size_t bytes_ = 0;
  uint32_t state_ = 1;
};

// What every way is given and gives.
struct Layer {
  PackedHost layout;
  std::vector<int32_t> labels, offsets = {0};
  int32_t longest;
  Arrays arrays;
  TensorView x, w, bias, dx, dw, dbias;

  Layer(const Sizes& s, DType t)
      : layout(build_packed(std::vector<int32_t>(static_cast<size_t>(s.sequences), s.frames))),
        longest(s.frames * 3 / 10) {
    uint32_t state = 1;
    for (int32_t n = 0; n < s.sequences; ++n) {
      for (int32_t i = 0; i < longest; ++i) {
        state = state * 1664525u + 1013904223u;
        labels.push_back(1 + static_cast<int32_t>((state >> 8) % (s.classes - 1)));
      }
      offsets.push_back(static_cast<int32_t>(labels.size()));
    }
    const int64_t rows = layout.extent.rows;
    x = arrays.add(t, {rows, s.hidden}, 1);
    w = arrays.add(t, {s.classes, s.hidden}, 0.1f);
    bias = arrays.add(DType::f32, {s.classes}, 0.1f);
    dx = arrays.add(t, {rows, s.hidden});
    dw = arrays.add(DType::f32, {s.classes, s.hidden});
    dbias = arrays.add(DType::f32, {s.classes});
  }
  int64_t rows() const { return layout.extent.rows; }
};

// The three products with logits in memory, and what lies between them.
class Plain {
 public:
  Plain(const Context& context, const Layer& l) : context_(context) {
    const int64_t rows = l.rows(), hidden = l.x.dim(1), classes = l.w.dim(0);
    const DType t = l.x.dtype;
    const TensorView logits = arrays_.add(t, {rows, classes});
    forward_.m = rows, forward_.n = classes, forward_.k = hidden;
    forward_.transpose_b = true;
    forward_.a = l.x.data, forward_.b = l.w.data, forward_.c = logits.data;
    forward_.lda = forward_.ldb = hidden, forward_.ldc = classes;
    forward_.dtype = forward_.c_dtype = t;
    forward_.bias = l.bias;
    dx_.m = rows, dx_.n = hidden, dx_.k = classes;
    dx_.a = logits.data, dx_.b = l.w.data, dx_.c = l.dx.data;
    dx_.lda = classes, dx_.ldb = dx_.ldc = hidden;
    dx_.dtype = dx_.c_dtype = t;
    dw_.m = classes, dw_.n = hidden, dw_.k = rows;
    dw_.transpose_a = true;
    dw_.a = logits.data, dw_.b = l.x.data, dw_.c = l.dw.data;
    dw_.lda = classes, dw_.ldb = dw_.ldc = hidden;
    dw_.dtype = t;
    dw_.beta = 1;
    ctc_.layout = l.layout.view();
    ctc_.logits = ctc_.grad = logits;
    ctc_.labels = l.labels.data(), ctc_.label_offsets = l.offsets.data();
    ctc_.max_label_length = l.longest;
    ctc_.loss = arrays_.add(DType::f32, {ctc_.layout.capacity.sequences});
    bias_.x = logits, bias_.y = l.dbias;
    bias_.accumulate = true;
    size_t bytes = ctc_workspace_bytes(context, ctc_.layout.capacity, t, classes, l.longest, true);
    bytes = std::max(bytes, reduce_rows_workspace_bytes(context, rows, classes));
    for (const GemmArgs* g : {&forward_, &dx_, &dw_})
      bytes = std::max(bytes, gemm_workspace_bytes(context, *g));
    const TensorView scratch = arrays_.workspace(bytes);
    forward_.workspace = dx_.workspace = dw_.workspace = scratch;
    ctc_.workspace = bias_.workspace = scratch;
  }

  void products() const {
    rondo::run(context_, forward_);
    rondo::run(context_, dx_);
    rondo::run(context_, dw_);
  }
  void all() const {
    rondo::run(context_, forward_);
    rondo::run(context_, ctc_);
    rondo::run(context_, dx_);
    rondo::run(context_, dw_);
    rondo::run(context_, bias_);
  }
  double megabytes() const { return arrays_.megabytes(); }

 private:
  const Context& context_;
  Arrays arrays_;
  GemmArgs forward_, dx_, dw_;
  CtcArgs ctc_;
  ReduceRowsArgs bias_;
};

class Fused {
 public:
  Fused(const Context& context, const Layer& l) : context_(context) {
    const PackedCapacity capacity = l.layout.view().capacity;
    LinearCtc common;
    common.layout = l.layout.view();
    common.x = l.x, common.w = l.w, common.bias = l.bias;
    common.labels = l.labels.data(), common.label_offsets = l.offsets.data();
    common.max_label_length = l.longest;
    common.label_grad = arrays_.add(DType::f32, {l.rows(), l.longest + 1});
    common.normalizer = arrays_.add(DType::f32, {l.rows()});
    common.workspace = arrays_.workspace(linear_ctc_workspace_bytes(
        context, capacity, l.x.dtype, l.x.dim(1), l.w.dim(0), l.longest));
    static_cast<LinearCtc&>(forward_) = static_cast<LinearCtc&>(grad_) = common;
    forward_.loss = arrays_.add(DType::f32, {capacity.sequences});
    grad_.dx = l.dx, grad_.dw = l.dw, grad_.dbias = l.dbias;
  }

  void all() const {
    rondo::run(context_, forward_);
    rondo::run(context_, grad_);
  }
  double megabytes() const { return arrays_.megabytes(); }

 private:
  const Context& context_;
  Arrays arrays_;
  LinearCtcArgs forward_;
  LinearCtcGradArgs grad_;
};

// Of one thread, processor time: other programs on the machine disturb it little.
template <class F>
void time_into(const Context& context, std::vector<double>& seconds, F f) {
  const auto now = context.pool->size() == 1 ? thread_seconds : wall_seconds;
  const double begin = now();
  f();
  seconds.push_back(now() - begin);
}

double median_ms(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return 1e3 * seconds[seconds.size() / 2];
}

void time_layer(const Context& context, const Sizes& s, DType t) {
  const Layer layer(s, t);
  const Plain plain(context, layer);
  const Fused fused(context, layer);
  std::vector<double> products, with, without;
  plain.all();
  fused.all();
  for (int r = 0; r < s.rounds; ++r) {
    time_into(context, products, [&] { plain.products(); });
    time_into(context, with, [&] { plain.all(); });
    time_into(context, without, [&] { fused.all(); });
  }
  std::printf(
      "{\"op\": \"linear_ctc\", \"case\": \"%s/T %d, N %d, H %lld, V %lld\", \"threads\": %d, "
      "\"products_ms\": %.1f, "
      "\"plain_ms\": %.1f, \"fused_ms\": %.1f, \"common_mb\": %.1f, \"plain_mb\": %.1f, "
      "\"fused_mb\": %.1f}\n",
      name_of(t), s.frames, s.sequences, static_cast<long long>(s.hidden),
      static_cast<long long>(s.classes), context.pool->size(), median_ms(products), median_ms(with),
      median_ms(without), layer.arrays.megabytes(), plain.megabytes(), fused.megabytes());
}

int number(const std::string& word, const char* text) {
  const int value = std::atoi(text);
  if (value >= 1) return value;
  std::fprintf(stderr, "fused_output_bench: %s %s, expected a number from 1 on\n", word.c_str(),
               text);
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  Sizes s;
  int threads = usable_cpus();
  std::vector<DType> types;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return number(word, i + 1 < argc ? argv[++i] : ""); };
    if (word == "--threads")
      threads = value();
    else if (word == "--rounds")
      s.rounds = value();
    else if (word == "--hidden")
      s.hidden = value();
    else if (word == "--classes")
      s.classes = value();
    else if (word == "--frames")
      s.frames = value();
    else if (word == "--sequences")
      s.sequences = value();
    else if (word == "f32")
      types.push_back(DType::f32);
    else if (word == "bf16")
      types.push_back(DType::bf16);
    else {
      std::fprintf(stderr, "fused_output_bench: '%s' is none of its words\n", word.c_str());
      return 2;
    }
  }
  if (types.empty()) types = {DType::f32, DType::bf16};
  if (s.classes < 2) s.classes = 2;
  ThreadPool pool(threads);
  const Context context{Backend::cpu, &cpu_device(), nullptr, &pool};
  for (DType t : types) time_layer(context, s, t);
}
