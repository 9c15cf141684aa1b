// Convolutions over images on GPUs: a thread per value of the result, neighbouring threads for
// neighbouring channels, so that weights or pixels are read in rows. Gradients of the weights are
// sums of columns, 32 output channels to a block. No tile is kept in shared memory: this is for
// correct results on every GPU, not for speed.
#include "kernels/conv/conv_impl.h"
#include "kernels/simt/column_sums.h"

namespace rondo::RONDO_GPU {
namespace {

// Row `height` of frame t of sequence n of a source of `gather`; nullptr: zeros.
template <class T>
__device__ const T* pixel_at(const ConvGather& g, const ConvSource& source, int64_t n, int64_t t,
                             int64_t height) {
  if (height < 0 || height >= g.source_height) return nullptr;
  const ConvPlace place = conv_place(source, n, t);
  if (place.part == ConvPart::none) return nullptr;
  return static_cast<const T*>(conv_array(source, place.part)) +
         (place.row * g.source_height + height) * g.source_pixel;
}

// The position of the source that tap k of `position` reaches; false: a stride jumps over it.
__device__ inline bool tap_reaches(const ConvTaps& taps, int64_t position, int64_t k, int64_t* at) {
  const int64_t x = position * taps.multiply + k * taps.step + taps.offset;
  if (taps.divide == 1) {
    *at = x;
    return true;
  }
  *at = x / taps.divide;
  return x >= 0 && x % taps.divide == 0;
}

template <class T>
struct GatherArgs {
  ConvGather gather;
  ConvSource source;
  ConvTargets targets;
  const T* w;
  const float* bias;
  T* out;
};

template <class T>
__device__ float gathered(const GatherArgs<T>& a, int64_t n, int64_t t, int64_t height,
                          int64_t channel) {
  const ConvGather& g = a.gather;
  const int64_t group = channel / g.target_channels, o = channel % g.target_channels;
  float sum = 0;
  for (int64_t l = 0; l < g.time.count; ++l) {
    int64_t frame;
    if (!tap_reaches(g.time, t, l, &frame)) continue;
    for (int64_t k = 0; k < g.height.count; ++k) {
      int64_t row;
      if (!tap_reaches(g.height, height, k, &row)) continue;
      const T* pixel = pixel_at<T>(g, a.source, n, frame, row);
      if (pixel == nullptr) continue;
      pixel += group * g.source_channels;
      const T* w = a.w + group * g.group_weights() + o * g.target_stride + k * g.time.count + l;
      for (int64_t c = 0; c < g.source_channels; ++c) {
        sum = fmaf(to_float(pixel[c]), to_float(w[c * g.source_stride]), sum);
      }
    }
  }
  return sum;
}

template <class T>
__global__ void conv_gather(GatherArgs<T> a) {
  const ConvGather& g = a.gather;
  const int64_t cols = g.target_cols();
  for_elements<1>(conv_target_rows(a.targets) * cols, true, [&](int64_t i, auto) {
    const int64_t col = i % cols, channel = col % g.target_pixel;
    int64_t n, t;
    float value = 0;
    if (conv_target_frame(a.targets, i / cols, &n, &t)) {
      value = gathered(a, n, t, col / g.target_pixel, channel);
      if (a.bias) value += a.bias[channel];
    }
    a.out[i] = to<T>(value);
  });
}

template <class T>
struct WeightArgs {
  ConvGather gather;
  ConvSource source;
  PackedView to;
  const T* dy;
  float* dw;     // or nullptr
  float* dbias;  // or nullptr
  bool accumulate;
};

// Block (32 output channels, term): the term (channel of the group, row, column) of the weights
// that is number blockIdx.y, or the bias behind the last.
template <class T>
__global__ void conv_grad_weight(WeightArgs<T> a, int64_t terms) {
  const ConvGather& g = a.gather;
  const int64_t o = int64_t{blockIdx.x} * 32 + threadIdx.x % 32, height = g.target_height;
  const int64_t pixels = a.to.extent->rows * height;
  for (int64_t term = blockIdx.y; term <= terms; term += gridDim.y) {
    const bool bias = term == terms;
    const int64_t l = term % g.time.count, k = term / g.time.count % g.height.count;
    const int64_t c = term / g.time.count / g.height.count;
    double total[1] = {};
    const int64_t first = o / g.target_channels * g.source_channels;  // of the group
    sum_columns<1>(0, pixels, o < g.target_pixel, total, [&](int64_t p) -> Floats<1> {
      const float dy = to_float(a.dy[p * g.target_pixel + o]);
      if (bias) return {{dy}};
      int64_t n, t, frame, row;
      conv_target_frame({ConvPart::frames, a.to, 0}, p / height, &n, &t);
      tap_reaches(g.time, t, l, &frame);
      tap_reaches(g.height, p % height, k, &row);
      const T* pixel = pixel_at<T>(g, a.source, n, frame, row);
      return {{pixel ? dy * to_float(pixel[first + c]) : 0.0f}};
    });
    float* out = bias ? a.dbias : a.dw;
    if (out == nullptr || threadIdx.x >= 32 || o >= g.target_pixel) continue;
    out += bias ? o : o * g.target_stride + term;
    *out = static_cast<float>(total[0] + (a.accumulate ? static_cast<double>(*out) : 0.0));
  }
}

template <class T>
void gather(const Context& context, const GatherArgs<T>& a) {
  const int64_t rows = a.targets.capacity();
  if (rows == 0) return;
  launch(context, elements_launch("conv_gather", rows * a.gather.target_cols(), 1), conv_gather<T>,
         a);
}

}  // namespace

void conv_direct_gpu(const Context& context, const ConvArgs& a) {
  check_conv(a);
  visit_narrow(a.x.dtype, [&]<class T>(T) {
    gather<T>(context, {conv_forward(a.dims),
                        conv_source(a.from, a.x, a.before, a.after),
                        {ConvPart::frames, a.to, 0},
                        a.w.as<T>(),
                        a.bias.as<float>(),
                        a.y.as<T>()});
  });
}

void conv_direct_gpu(const Context& context, const ConvGradInputArgs& a) {
  check_conv(a);
  visit_narrow(a.dy.dtype, [&]<class T>(T) {
    for (const ConvTarget& target : conv_grad_targets(a).parts) {
      if (!target.out) continue;
      gather<T>(context, {conv_backward(a.dims), conv_source(a.to, a.dy), target.frames,
                          a.w.as<T>(), nullptr, target.out.as<T>()});
    }
  });
}

void conv_direct_gpu(const Context& context, const ConvGradWeightArgs& a) {
  check_conv(a);
  const ConvGather g = conv_forward(a.dims);
  const int64_t terms = g.target_stride;
  visit_narrow(a.x.dtype, [&]<class T>(T) {
    const WeightArgs<T> args{g,
                             conv_source(a.from, a.x, a.before, a.after),
                             a.to,
                             a.dy.as<T>(),
                             a.dw.as<float>(),
                             a.dbias.as<float>(),
                             a.accumulate};
    launch(context,
           {.kernel = "conv_grad_weight",
            .grid = {blocks_for(g.target_pixel, 32),
                     static_cast<unsigned>(terms < 65535 ? terms + 1 : 65535)},
            .block = {block_threads},
            .shared_bytes = sizeof(ColumnSums<1>)},
           conv_grad_weight<T>, args, terms);
  });
}

}  // namespace rondo::RONDO_GPU
