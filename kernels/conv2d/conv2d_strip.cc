#include "kernels/conv2d/conv2d_strip.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/arithmetic.h"
#include "kernels/base/cpu/parallel.h"

namespace rondo {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

float widened(float x) { return x; }
float widened(bf16 x) { return static_cast<float>(x); }

}  // namespace

void conv2d_floats(float* to, const void* from, DType dtype, int64_t count) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const auto* narrow = static_cast<const bf16*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = widened(narrow[i]);
}

Conv2dReach conv2d_reach(const ConvTaps& t, int64_t first, int64_t last) {
  const int64_t end = int64_t{t.count - 1} * t.step;
  const int64_t low = first * t.multiply + std::min<int64_t>(0, end) + t.offset;
  const int64_t high = last * t.multiply + std::max<int64_t>(0, end) + t.offset;
  return {floor_div(low, t.divide), floor_div(high, t.divide)};
}

Conv2dStrip::Conv2dStrip(Carver& carver, const Conv2dGather& g, int64_t block)
    : time_(g.time), source_cols_(g.source_cols()), channels_(g.source_channels) {
  const Conv2dReach rows = conv2d_reach(g.height, 0, g.target_height - 1);
  above_ = std::max<int64_t>(0, -rows.low);
  size_ = (above_ + std::max<int64_t>(g.source_height, rows.high + 1)) * channels_;
  const Conv2dReach times = conv2d_reach(g.time, 0, block - 1);
  frames_ = times.high - times.low + 2;  // elsewhere the division may round the other way
  carver.take(values_, frames_ * size_);
  carver.take(columns_, frames_);
}

void Conv2dStrip::fill(const ConvSource& source, DType dtype, int64_t n, int64_t first,
                       int64_t last) {
  const Conv2dReach times = conv2d_reach(time_, first, last);
  const int64_t above = above_ * channels_;
  first_ = times.low;
  RONDO_CHECK(times.high - times.low < frames_, "a strip of ", frames_, " frames for ", times.low,
              " to ", times.high);
  for (int64_t t = times.low; t <= times.high; ++t) {
    const ConvPlace place = conv_place(source, n, t);
    float* column = values_ + (t - first_) * size_;
    columns_[t - first_] = place.part == ConvPart::none ? nullptr : column;
    if (place.part == ConvPart::none) continue;
    const auto* from = static_cast<const char*>(conv_array(source, place.part));
    std::fill_n(column, above, 0.0f);
    conv2d_floats(column + above,
                  from + static_cast<size_t>(place.row * source_cols_) * size_of(dtype), dtype,
                  source_cols_);
    std::fill_n(column + above + source_cols_, size_ - above - source_cols_, 0.0f);
  }
}

Conv2dTerms::Conv2dTerms(Carver& carver, const Conv2dGather& g, int64_t panel)
    : gather_(g),
      panel_(panel),
      panels_(ceil_div(g.target_channels, panel)),
      count_(int64_t{g.height.count} * g.time.count * g.source_channels) {
  carver.take(classes_, g.height.divide);
  carver.take(runs_, g.height.count);
  carver.take(rows_, g.height.count);
  carver.take(weights_, panels_ * count_ * panel);
  carver.take(bias_, panels_ * panel);
}

void Conv2dTerms::list_classes() {
  const ConvTaps& t = gather_.height;
  int32_t taps = 0, runs = 0;
  for (int32_t p = 0; p < t.divide; ++p) {
    Conv2dHeightClass c{p, t.divide, 0, runs, 0, taps, 0};
    if (p < gather_.target_height) c.pixels = (gather_.target_height - 1 - p) / t.divide + 1;
    int64_t behind = 0;  // the row behind the last tap's
    for (int32_t i = 0; i < t.count; ++i) {
      const int32_t k = t.step > 0 ? i : t.count - 1 - i;  // from top to bottom
      const int64_t at = int64_t{p} * t.multiply + int64_t{k} * t.step + t.offset;
      const int64_t row = floor_div(at, t.divide);
      if (row * t.divide != at) continue;
      rows_[taps++] = k;
      if (c.runs > 0 && row == behind) {
        ++runs_[runs - 1].taps;
      } else {
        runs_[runs++] = {c.taps, 1, static_cast<int32_t>(row)};
        ++c.runs;
      }
      ++c.taps;
      behind = row + 1;
    }
    classes_[p] = c;
  }
}

template <class T>
void Conv2dTerms::arrange_panel(const T* w, int64_t p, int64_t column) const {
  const Conv2dGather& g = gather_;
  const int64_t first = p * panel_, channels = std::min(panel_, g.target_channels - first);
  for (const Conv2dHeightClass& c : classes()) {
    for (int64_t i = 0; i < c.taps; ++i) {
      const T* from = w + first * g.target_stride + kernel_row(c, i) * g.time.count + column;
      float* to = weights_ + (p * count_ + first_term(c, column, i)) * panel_;
      for (int64_t k = 0; k < g.source_channels; ++k, to += panel_) {
        const T* channel = from + k * g.source_stride;
        for (int64_t o = 0; o < channels; ++o) to[o] = widened(channel[o * g.target_stride]);
        std::fill(to + channels, to + panel_, 0.0f);
      }
    }
  }
}

void Conv2dTerms::arrange(const Context& context, const TensorView& w, const TensorView& bias) {
  const int64_t columns = gather_.time.count;
  context.pool->for_range(panels_ * columns, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (w.dtype == DType::f32) {
        arrange_panel(w.as<float>(), i / columns, i % columns);
      } else {
        arrange_panel(w.as<bf16>(), i / columns, i % columns);
      }
    }
  });
  std::fill_n(bias_, panels_ * panel_, 0.0f);
  if (bias) std::copy_n(bias.as<float>(), gather_.target_channels, bias_);
}

}  // namespace rondo
