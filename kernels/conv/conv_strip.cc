#include "kernels/conv/conv_strip.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/arithmetic.h"
#include "kernels/base/cpu/parallel.h"

namespace rondo {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

template <class To, class T>
void scatter(To* to, int64_t step, const T* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<To>(from[i]);
}

void copy_channels(uint16_t* to, const void* from, int64_t count) {
  if (from == nullptr) {
    std::fill_n(to, count, uint16_t{0});
  } else {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(uint16_t));
  }
}

}  // namespace

void conv_floats(float* to, const void* from, DType dtype, int64_t count) {
  if (from == nullptr) {
    std::fill_n(to, count, 0.0f);
  } else if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else {
    const auto* narrow = static_cast<const bf16*>(from);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(narrow[i]);
  }
}

void conv_add(float* sums, const void* from, DType dtype, int64_t count) {
  const auto add = [&](const auto* x) {
    for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<float>(x[i]);
  };
  if (dtype == DType::f32) {
    add(static_cast<const float*>(from));
  } else {
    add(static_cast<const bf16*>(from));
  }
}

void conv_pairs(float* to, const void* first, const void* second, int64_t count) {
  typedef uint32_t slot __attribute__((may_alias));
  auto* slots = reinterpret_cast<slot*>(to);
  const auto* a = static_cast<const uint16_t*>(first);
  const auto* b = static_cast<const uint16_t*>(second);
  if (a && b) {
    for (int64_t i = 0; i < count; ++i) slots[i] = a[i] | uint32_t{b[i]} << 16;
  } else {
    for (int64_t i = 0; i < count; ++i)
      slots[i] = (a ? a[i] : 0u) | (b ? uint32_t{b[i]} : 0u) << 16;
  }
}

ConvReach conv_reach(const ConvTaps& t, int64_t first, int64_t last) {
  const int64_t end = int64_t{t.count - 1} * t.step;
  const int64_t low = first * t.multiply + std::min<int64_t>(0, end) + t.offset;
  const int64_t high = last * t.multiply + std::max<int64_t>(0, end) + t.offset;
  return {floor_div(low, t.divide), floor_div(high, t.divide)};
}

ConvStrip::ConvStrip(Carver& carver, const ConvGather& g, ConvSlots slots, int64_t block)
    : time_(g.time),
      beside_(g.beside),
      slots_(slots),
      channels_(g.source_channels / g.beside.count),
      height_(g.source_height),
      pixel_(g.source_pixel),
      pair_step_(g.height.multiply),
      pixel_slots_(conv_pixel_slots(slots, g.source_channels)) {
  const ConvReach rows = conv_reach(g.height, 0, g.target_height - 1);
  above_ = std::max<int64_t>(0, -rows.low);
  rows_ = above_ + std::max<int64_t>(g.source_height, rows.high + 1);
  const ConvReach times = conv_reach(g.time, 0, block - 1);
  frames_ = times.high - times.low + 2;  // elsewhere the division may round the other way
  carver.take(values_, frames_ * rows_ * pixel_slots_);
  carver.take(columns_, frames_);
  carver.take(beside_frames_, beside_.count);
}

// The frames that are beside each other in column t; false: none of them exists.
bool ConvStrip::find_frames(const ConvSource& source, DType dtype, int64_t n, int64_t t) {
  bool any = false;
  for (int64_t l = 0; l < beside_.count; ++l) {
    const ConvPlace place =
        conv_place(source, n, t * beside_.multiply + l * beside_.step + beside_.offset);
    beside_frames_[l] = nullptr;
    if (place.part == ConvPart::none) continue;
    any = true;
    beside_frames_[l] = static_cast<const char*>(conv_array(source, place.part)) +
                        static_cast<size_t>(place.row * height_ * pixel_) * size_of(dtype);
  }
  return any;
}

void ConvStrip::fill_column(float* column, DType dtype) const {
  if (beside_.count > 1) return fill_beside(column, dtype);
  for (int64_t row = 0; row < rows_; ++row, column += pixel_slots_)
    fill_row(column, row - above_, dtype);
}

// The channels of a pixel of the one frame; nullptr: it is padding.
const char* ConvStrip::pixel(int64_t row, DType dtype) const {
  if (row < 0 || row >= height_) return nullptr;
  return beside_frames_[0] + static_cast<size_t>(row * pixel_) * size_of(dtype);
}

void ConvStrip::fill_row(float* to, int64_t row, DType dtype) const {
  const char* from = pixel(row, dtype);
  if (slots_ == ConvSlots::values) {
    conv_floats(to, from, dtype, channels_);
  } else if (slots_ == ConvSlots::pixel_pairs) {
    conv_pairs(to, from, pixel(row + pair_step_, dtype), channels_);
  } else {
    auto* pairs = reinterpret_cast<uint16_t*>(to);
    pairs[2 * pixel_slots_ - 1] = 0;  // of an odd number
    copy_channels(pairs, from, channels_);
  }
}

// Frames of one channel each, side by side.
void ConvStrip::fill_beside(float* column, DType dtype) const {
  auto* values = reinterpret_cast<uint16_t*>(column);
  std::fill_n(column, rows_ * pixel_slots_, 0.0f);
  for (int64_t l = 0; l < beside_.count; ++l) {
    const char* frame = beside_frames_[l];
    if (frame == nullptr) continue;
    if (slots_ == ConvSlots::values) {
      float* to = column + above_ * pixel_slots_ + l;
      if (dtype == DType::f32) {
        scatter(to, pixel_slots_, reinterpret_cast<const float*>(frame), height_);
      } else {
        scatter(to, pixel_slots_, reinterpret_cast<const bf16*>(frame), height_);
      }
      continue;
    }
    const auto* from = reinterpret_cast<const uint16_t*>(frame);
    if (slots_ == ConvSlots::channel_pairs) {
      scatter(values + 2 * above_ * pixel_slots_ + l, 2 * pixel_slots_, from, height_);
    } else {
      scatter(values + 2 * (above_ * pixel_slots_ + l), 2 * pixel_slots_, from, height_);
      const int64_t hidden = std::clamp<int64_t>(pair_step_ - above_, 0, height_);
      scatter(values + 2 * ((above_ + hidden - pair_step_) * pixel_slots_ + l) + 1,
              2 * pixel_slots_, from + hidden, height_ - hidden);
    }
  }
}

void ConvStrip::fill(const ConvSource& source, DType dtype, int64_t n, int64_t first,
                     int64_t last) {
  const ConvReach times = conv_reach(time_, first, last);
  first_ = times.low;
  RONDO_CHECK(times.high - times.low < frames_, "a strip of ", frames_, " frames for ", times.low,
              " to ", times.high);
  for (int64_t t = times.low; t <= times.high; ++t) {
    float* column = values_ + (t - first_) * rows_ * pixel_slots_;
    const bool any = find_frames(source, dtype, n, t);
    columns_[t - first_] = any ? column : nullptr;
    if (any) fill_column(column, dtype);
  }
}

ConvTerms::ConvTerms(Carver& carver, const ConvGather& g, ConvSlots slots, int64_t panel)
    : gather_(g),
      slots_(slots),
      pixel_slots_(conv_pixel_slots(slots, g.source_channels)),
      panel_(panel),
      panels_(g.depthwise ? 1 : ceil_div(g.target_channels, panel)),
      count_(int64_t{g.height.count} * g.time.count * pixel_slots_) {
  carver.take(classes_, g.height.divide);
  carver.take(runs_, g.height.count);
  carver.take(rows_, g.height.count);
  carver.take(weights_, panels_ * count_ * panel);
  carver.take(bias_, std::max(panels_ * panel, g.target_channels));
}

void ConvTerms::list_classes() {
  const ConvTaps& t = gather_.height;
  int32_t taps = 0, runs = 0;
  for (int32_t p = 0; p < t.divide; ++p) {
    ConvHeightClass c{p, t.divide, 0, runs, 0, taps, 0};
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

// to[(k / depth) * panel + o][k % depth] = channel k of output channel o, T's as the slots hold
// them.
template <class To, class T>
void ConvTerms::arrange_pixel(To* to, int64_t depth, const T* from, int64_t channels) const {
  const ConvGather& g = gather_;
  std::fill_n(to, pixel_slots_ * depth * panel_, To(0.0f));
  for (int64_t k = 0; k < g.source_channels; ++k) {
    To* slots = to + k / depth * depth * panel_ + k % depth;
    const T* channel = from + k * g.source_stride;
    for (int64_t o = 0; o < channels; ++o)
      slots[o * depth] = static_cast<To>(channel[o * g.target_stride]);
  }
}

template <class T>
void ConvTerms::arrange_panel(const T* w, int64_t p, int64_t column) const {
  const ConvGather& g = gather_;
  const int64_t first = p * panel_, channels = std::min(panel_, g.target_channels - first);
  for (const ConvHeightClass& c : classes()) {
    for (int64_t i = 0; i < c.taps; ++i) {
      const T* from = w + first * g.target_stride + kernel_row(c, i) * g.row_stride + column;
      float* to = weights_ + (p * count_ + first_term(c, column, i)) * panel_;
      if (slots_ == ConvSlots::values) {
        arrange_pixel(to, 1, from, channels);
      } else {
        arrange_pixel(reinterpret_cast<bf16*>(to), 2, from, channels);
      }
    }
  }
}

void ConvTerms::arrange(const Context& context, const TensorView& w, const TensorView& bias,
                        int64_t group) {
  const int64_t columns = gather_.time.count, first = group * gather_.group_weights();
  context.pool->for_range(panels_ * columns, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (w.dtype == DType::f32) {
        arrange_panel(w.as<float>() + first, i / columns, i % columns);
      } else {
        arrange_panel(w.as<bf16>() + first, i / columns, i % columns);
      }
    }
  });
  const int64_t channels = gather_.target_channels;
  std::fill_n(bias_, std::max(panels_ * panel_, channels), 0.0f);
  if (bias) std::copy_n(bias.as<float>() + group * channels, channels, bias_);
}

}  // namespace rondo
