// Depthwise convolutions on CPUs: what each pixel is made of, y of x and dx of dy. A copy of the
// frames would take as long as all the products (conv_direct.cc makes one where there are many), so
// windows are read where they lie; what reaches above a frame or below it is left out.
#include <algorithm>

#include "kernels/base/arithmetic.h"
#include "kernels/conv/conv_driver.h"
#include "kernels/conv/conv_strip.h"
#include "kernels/conv/conv_tiles.h"

namespace rondo {
namespace {

// A thread's frames of the result at a time: so many places of as many neighbouring sequences as
// have their windows in half the second cache. Memory is gone through in its own order.
constexpr int64_t most_places = 16;
constexpr int64_t near_bytes = int64_t{256} << 10;

struct Item {
  int64_t place, sequence;  // the first ones
};

class Items : public ConvFrames {
 public:
  Items(const ConvTargets& frames, int64_t sequences) : ConvFrames(frames), at_once_(sequences) {
    for (int64_t place = 0, n; (n = active(place)) > 0; place += most_places)
      count_ += ceil_div(n, at_once_);
  }
  int64_t count() const { return count_; }
  Item at(int64_t i) const {
    int64_t place = 0;
    for (int64_t n; i >= (n = ceil_div(active(place), at_once_)); place += most_places) i -= n;
    return {place, i * at_once_};
  }
  // f(sequence, place) for the frames of an item.
  template <class F>
  void each(const Item& item, F f) const {
    for (int64_t j = item.place; j < item.place + most_places; ++j) {
      const int64_t end = std::min(active(j), item.sequence + at_once_);
      for (int64_t n = item.sequence; n < end; ++n) f(n, j);
    }
  }

 private:
  // Sequences with a frame at place j.
  int64_t active(int64_t j) const {
    int64_t n = sequences();
    while (n > 0 && length(n - 1) <= j) --n;
    return n;
  }

  int64_t at_once_, count_ = 0;
};

struct Thread {
  ConvColumn* columns = nullptr;
  const char** frames = nullptr;

  Thread(Carver& carver, const ConvGather& g) {
    carver.take(columns, int64_t{g.height.count} * g.time.count);
    carver.take(frames, g.time.count);
  }
};

struct Call {
  const ConvKernel& kernel;
  const ConvGather& g;
  const ConvSource& source;
  const DType dtype;
  const ConvTerms& terms;

  // Frame t of sequence n, to y.
  void frame(Thread& thread, int64_t n, int64_t t, char* y) const {
    for (int64_t l = 0; l < g.time.count; ++l) thread.frames[l] = source_frame(n, t, l);
    for (const ConvHeightClass& c : terms.classes()) {
      // Pixels whose windows do not leave the frame: [low, high).
      int64_t low = 0, high = c.pixels;
      for (const ConvRun& run : terms.runs(c)) {
        const int64_t step = g.height.multiply, last = g.source_height - run.taps - run.offset;
        low = std::max(low, ceil_div<int64_t>(std::max(-run.offset, 0), step));
        high = std::min(high, last < 0 ? 0 : last / step + 1);
      }
      low = std::min<int64_t>(low, c.pixels);
      high = std::max(low, high);
      for (int64_t p = 0; p < low; ++p) pixels(thread, c, p, 1, y);
      if (low < high) pixels(thread, c, low, high - low, y);
      for (int64_t p = high; p < c.pixels; ++p) pixels(thread, c, p, 1, y);
    }
  }

 private:
  // The one that column l of the kernel meets; nullptr: there is none.
  const char* source_frame(int64_t n, int64_t t, int64_t l) const {
    const int64_t at = t * g.time.multiply + l * g.time.step + g.time.offset;
    if (at % g.time.divide != 0) return nullptr;
    const ConvPlace place = conv_place(source, n, at / g.time.divide);
    if (place.part == ConvPart::none) return nullptr;
    return conv_from_channel(static_cast<const char*>(conv_array(source, place.part)),
                             place.row * g.source_height * g.source_pixel, dtype);
  }

  // What lies behind the latest frame of the window: the next sequence's.
  const char* ahead(const Thread& thread, int64_t first) const {
    const char* latest = thread.frames[g.time.step > 0 ? g.time.count - 1 : 0];
    if (latest == nullptr) return nullptr;
    return conv_from_channel(latest, (g.source_height + first) * g.source_pixel, dtype);
  }

  // Pixels first, first + 1, ... of a class, whose windows have the same rows inside the frame.
  void pixels(Thread& thread, const ConvHeightClass& c, int64_t first, int64_t count,
              char* y) const {
    ConvDepthwise d;
    d.columns = thread.columns;
    for (int64_t l = 0; l < g.time.count; ++l) {
      if (thread.frames[l] == nullptr) continue;
      for (const ConvRun& run : terms.runs(c)) {
        const int64_t row = run.offset + first * g.height.multiply;
        const int64_t begin = std::max<int64_t>(row, 0);
        const int64_t end = std::min<int64_t>(row + run.taps, g.source_height);
        if (begin >= end) continue;
        const int64_t tap = run.first_tap + begin - row;
        thread.columns[d.count++] = {
            conv_from_channel(thread.frames[l], begin * g.source_pixel, dtype),
            terms.weights(0) + terms.first_term(c, l, tap), end - begin};
      }
    }
    d.pixels = count;
    d.x_step = g.height.multiply * g.source_pixel;
    d.channels = g.target_channels;
    d.bias = terms.bias(0);
    d.ahead = ahead(thread, first);
    d.y = conv_from_channel(y, (c.first + first * c.step) * g.target_pixel, dtype);
    d.y_step = c.step * g.target_pixel;
    d.dtype = dtype;
    kernel.depthwise_pixels(d);
  }
};

}  // namespace

size_t conv_depthwise_workspace(const Context& context, const ConvGather& g) {
  Carver carver(nullptr);
  const ConvTerms terms(carver, g, ConvSlots::values, 1);
  return carver.used() + static_cast<size_t>(context.pool->size()) * conv_thread_bytes<Thread>(g);
}

void conv_depthwise_gather(const ConvKernel& kernel, const Context& context, const ConvGather& g,
                           const ConvSource& source, DType dtype, const TensorView& w,
                           const TensorView& bias, std::span<const ConvTarget> targets,
                           const TensorView& workspace) {
  Carver carver(workspace.data);
  ConvTerms terms(carver, g, ConvSlots::values, 1);
  terms.list_classes();
  terms.arrange(context, w, bias, 0);
  char* memory = static_cast<char*>(workspace.data) + carver.used();
  const Call call{kernel, g, source, dtype, terms};
  const int64_t window = int64_t{g.time.count} * g.source_height * g.source_pixel *
                         static_cast<int64_t>(size_of(dtype));
  for (const ConvTarget& target : targets) {
    if (!target.out) continue;
    const Items items(target.frames, std::max<int64_t>(1, near_bytes / window));
    const auto frame = [&](Thread& thread, int64_t n, int64_t j) {
      char* y = conv_from_channel(static_cast<char*>(target.out.data),
                                  items.row(n, j) * g.target_cols(), dtype);
      if (items.exists(n)) return call.frame(thread, n, j + items.shift(n), y);
      std::fill_n(y, static_cast<size_t>(g.target_cols()) * size_of(dtype), char{0});
    };
    conv_for_items<Thread>(
        context, memory, items.count(),
        [&](Thread& thread, int64_t i) {
          items.each(items.at(i), [&](int64_t n, int64_t j) { frame(thread, n, j); });
        },
        g);
  }
}

}  // namespace rondo
