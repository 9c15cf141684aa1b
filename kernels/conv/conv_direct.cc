// The driver of the CPU kernels, one for all instruction sets: who computes what. The register
// tiles are in conv_simd.cc.
#include <algorithm>

#include "kernels/base/arithmetic.h"
#include "kernels/conv/conv_driver.h"
#include "kernels/conv/conv_strip.h"
#include "kernels/conv/conv_tiles.h"

namespace rondo {
namespace {

// Frames of the result that a thread takes at a time: so many that those before and behind, which
// are copied as well, are at most as many again.
int64_t block_frames(const ConvGather& g) { return std::max(16, g.time.count); }

// Sums of weight gradients are made in so many parts, each by one thread, and added in order: the
// bits are the same for any number of threads.
constexpr int64_t most_partitions = 8;

// Slots of dy that stay in the first cache while the kernel's columns go over them.
constexpr int64_t near_slots = 4096;

// Values in a slot: depthwise convolutions have no sums over neighbouring channels.
int depth_of(const ConvKernel& kernel, const ConvGather& g) {
  return g.depthwise ? 1 : kernel.depth;
}
ConvSlots gather_slots(const ConvKernel& kernel) {
  return kernel.depth == 2 ? ConvSlots::channel_pairs : ConvSlots::values;
}
ConvSlots outer_slots(const ConvKernel& kernel, const ConvGather& g) {
  return depth_of(kernel, g) == 2 ? ConvSlots::pixel_pairs : ConvSlots::values;
}

// As CPUs compute it.
ConvGather cpu_gather(const ConvGather& g) { return conv_depthwise(conv_unfolded(g)); }

// Neighbouring frames of one sequence: places first to last among the wanted ones.
struct Block {
  int64_t sequence, first, last;
};

// Frames that are wanted, in blocks. Sequences without any have none.
class Blocks : public ConvFrames {
 public:
  Blocks(const ConvTargets& frames, int64_t size) : ConvFrames(frames), size_(size) {
    for (int64_t n = 0; n < sequences(); ++n) count_ += ceil_div(length(n), size);
  }
  int64_t count() const { return count_; }
  Block at(int64_t i) const {
    int64_t n = 0;
    for (; i >= ceil_div(length(n), size_); ++n) i -= ceil_div(length(n), size_);
    return {n, i * size_, std::min((i + 1) * size_, length(n)) - 1};
  }

 private:
  int64_t size_, count_ = 0;
};

// ---- what each pixel is made of: y of x, dx of dy ----

struct GatherThread {
  ConvStrip strip;
  ConvSegment* segments = nullptr;

  GatherThread(Carver& carver, const ConvGather& g, ConvSlots slots)
      : strip(carver, g, slots, block_frames(g)) {
    carver.take(segments, int64_t{g.height.count} * g.time.count);
  }
};

ConvTerms gather_terms(Carver& carver, const ConvKernel& kernel, const ConvGather& g) {
  return {carver, g, gather_slots(kernel),
          kernel.panel(g.target_channels, ceil_div(g.target_height, g.height.divide))};
}

struct GatherCall {
  const ConvKernel& kernel;
  const ConvGather& g;
  const ConvSource& source;  // from the group's first channel on
  const DType dtype;
  const ConvTerms& terms;
  const int64_t group;

  void block(GatherThread& thread, const Blocks& blocks, const Block& b, void* out) const {
    const int64_t cols = g.target_cols(), n = b.sequence;
    const auto row = [&](int64_t j, int64_t channel) {
      return conv_from_channel(static_cast<char*>(out), blocks.row(n, j) * cols + channel, dtype);
    };
    if (!blocks.exists(n)) {
      if (group > 0) return;  // the first one has cleared all
      for (int64_t j = b.first; j <= b.last; ++j)
        std::fill_n(row(j, 0), static_cast<size_t>(cols) * size_of(dtype), char{0});
      return;
    }
    const int64_t shift = blocks.shift(n);
    thread.strip.fill(source, dtype, n, b.first + shift, b.last + shift);
    for (int64_t j = b.first; j <= b.last; ++j)
      frame(thread, j + shift, row(j, group * g.target_channels));
  }

 private:
  // Frame t, to y; the strip has what it is made of.
  void frame(GatherThread& thread, int64_t t, char* y) const {
    for (const ConvHeightClass& c : terms.classes()) {
      if (c.pixels == 0) continue;
      ConvPixels p;
      p.segments = thread.segments;
      p.segment_count = list_segments(thread, c, t);
      p.pixels = c.pixels;
      p.x_step = g.height.multiply * terms.pixel_slots();
      p.panel = terms.panel();
      p.dtype = dtype;
      p.y_step = c.step * g.target_pixel;
      for (int64_t i = 0; i < terms.panels(); ++i) {
        const int64_t channel = i * p.panel;
        p.w = terms.weights(i);
        p.bias = terms.bias(i);
        p.y = conv_from_channel(y, c.first * g.target_pixel + channel, dtype);
        p.channels = std::min(p.panel, g.target_channels - channel);
        kernel.pixels(p);
      }
    }
  }

  int64_t list_segments(GatherThread& thread, const ConvHeightClass& c, int64_t t) const {
    int64_t count = 0;
    for (int64_t l = 0; l < g.time.count; ++l) {
      const int64_t at = t * g.time.multiply + l * g.time.step + g.time.offset;
      if (at % g.time.divide != 0) continue;
      for (const ConvRun& run : terms.runs(c)) {
        const float* x = thread.strip.at(at / g.time.divide, run.offset);
        if (x == nullptr) continue;
        thread.segments[count++] = {x, terms.first_term(c, l, run.first_tap),
                                    run.taps * terms.pixel_slots()};
      }
    }
    return count;
  }
};

size_t gather_workspace(const ConvKernel& kernel, const Context& context, const ConvGather& g) {
  if (g.depthwise) return conv_depthwise_workspace(context, g);
  Carver carver(nullptr);
  gather_terms(carver, kernel, g);
  return carver.used() + static_cast<size_t>(context.pool->size()) *
                             conv_thread_bytes<GatherThread>(g, gather_slots(kernel));
}

void gather(const ConvKernel& kernel, const Context& context, const ConvGather& g,
            const ConvSource& source, DType dtype, const TensorView& w, const TensorView& bias,
            std::span<const ConvTarget> targets, const TensorView& workspace) {
  RONDO_CHECK(dtype != DType::f64, "conv on cpu takes f32 or bf16");
  conv_check_workspace(workspace, gather_workspace(kernel, context, g));
  if (g.depthwise)
    return conv_depthwise_gather(kernel, context, g, source, dtype, w, bias, targets, workspace);
  Carver carver(workspace.data);
  ConvTerms terms = gather_terms(carver, kernel, g);
  terms.list_classes();
  char* memory = static_cast<char*>(workspace.data) + carver.used();
  for (int64_t group = 0; group < g.groups; ++group) {
    terms.arrange(context, w, bias, group);
    const ConvSource of_group = conv_from_channel(source, group * g.source_channels, dtype);
    const GatherCall call{kernel, g, of_group, dtype, terms, group};
    for (const ConvTarget& target : targets) {
      if (!target.out) continue;
      const Blocks blocks(target.frames, block_frames(g));
      conv_for_items<GatherThread>(
          context, memory, blocks.count(),
          [&](GatherThread& thread, int64_t i) {
            call.block(thread, blocks, blocks.at(i), target.out.data);
          },
          g, gather_slots(kernel));
    }
  }
}

// ---- gradients of the weights ----

// Sums over a part of the frames: [panels][terms][panel] of the weights, then [panels][panel] of
// the bias. Of depthwise convolutions a term is a place of the kernel, and one panel has all
// channels.
struct WeightSums {
  int64_t panel, panels, terms;
  int64_t floats() const { return panels * (terms + 1) * panel; }
  float* weights(float* sums, int64_t p) const { return sums + p * terms * panel; }
  float* bias(float* sums, int64_t p) const { return sums + (panels * terms + p) * panel; }
};

struct WeightThread {
  ConvStrip strip;
  float* dy = nullptr;  // [frames of a block, pixels, panels * panel], zero past the last channel
  const float** x_frames = nullptr;
  const float** dy_frames = nullptr;

  WeightThread(Carver& carver, const ConvGather& g, ConvSlots slots, const WeightSums& sums)
      : strip(carver, g, slots, block_frames(g)) {
    const int64_t frames = block_frames(g);
    carver.take(dy, frames * g.target_height * sums.panels * sums.panel);
    carver.take(x_frames, frames);
    carver.take(dy_frames, frames);
  }
};

struct WeightCall {
  const ConvKernel& kernel;
  const ConvGather& g;
  const ConvSource& source;
  const ConvGradWeightArgs& args;
  const ConvTerms& terms;
  const WeightSums& layout;
  const int64_t group;
  const int depth;
  const int64_t pixels;  // slots of a column of dy

  void block(WeightThread& thread, const Blocks& blocks, const Block& b, float* sums) const {
    thread.strip.fill(source, args.dy.dtype, b.sequence, b.first, b.last);
    copy_dy(thread, blocks, b, sums);
    const int64_t near =
        std::clamp<int64_t>(near_slots / (pixels * layout.panel), 1, block_frames(g));
    for (int64_t t = b.first; t <= b.last; t += near) {
      const int64_t end = std::min(t + near, b.last + 1);
      for (int64_t p = 0; p < layout.panels; ++p) {
        for (int64_t l = 0; l < g.time.count; ++l) column(thread, b.first, t, end, p, l, sums);
      }
    }
  }

 private:
  int64_t dy_cols() const { return layout.panels * layout.panel; }

  // dy in whole panels; and its sums, which are the bias's gradient.
  void copy_dy(WeightThread& thread, const Blocks& blocks, const Block& b, float* sums) const {
    const int64_t channels = g.target_channels, cols = dy_cols();
    const DType dtype = args.dy.dtype;
    const size_t pixel = static_cast<size_t>(g.target_pixel) * size_of(dtype);
    float* to = thread.dy;
    for (int64_t t = b.first; t <= b.last; ++t) {
      const int64_t at = blocks.row(b.sequence, t) * g.target_cols() + group * channels;
      const char* from = conv_from_channel(static_cast<const char*>(args.dy.data), at, dtype);
      for (int64_t h = 0; h < g.target_height; ++h)
        conv_add(layout.bias(sums, 0), from + static_cast<size_t>(h) * pixel, dtype, channels);
      for (int64_t h = 0; h < g.target_height; h += depth, to += cols) {
        const char* one = from + static_cast<size_t>(h) * pixel;
        if (depth == 1) {
          conv_floats(to, one, dtype, channels);
        } else {
          conv_pairs(to, one, h + 1 < g.target_height ? one + pixel : nullptr, channels);
        }
        std::fill(to + channels, to + cols, 0.0f);
      }
    }
  }

  // Column l of the kernel, panel p, frames [t, end) of the block that begins at `first`.
  void column(WeightThread& thread, int64_t first, int64_t t, int64_t end, int64_t p, int64_t l,
              float* sums) const {
    const ConvHeightClass& all = terms.classes()[0];  // forward there is no other
    for (const ConvRun& run : terms.runs(all)) {
      ConvOuter o;
      o.x = thread.x_frames;
      o.dy = thread.dy_frames;
      for (int64_t f = t; f < end; ++f) {
        const float* x =
            thread.strip.at(f * g.time.multiply + l * g.time.step + g.time.offset, run.offset);
        if (x == nullptr) continue;
        thread.x_frames[o.frames] = x;
        thread.dy_frames[o.frames++] =
            thread.dy + (f - first) * pixels * dy_cols() + p * layout.panel;
      }
      o.pixels = pixels;
      o.x_step = depth * g.height.multiply * g.source_channels;
      o.dy_step = dy_cols();
      o.terms = run.taps * g.source_channels;
      o.panel = g.depthwise ? 1 : layout.panel;
      o.channels = g.source_channels;
      o.sums = layout.weights(sums, p) + terms.first_term(all, l, run.first_tap) * o.panel;
      if (o.frames > 0) (g.depthwise ? kernel.depthwise_outer : kernel.outer)(o);
    }
  }
};

WeightSums weight_sums(const ConvKernel& kernel, const ConvGather& g) {
  WeightSums s;
  const int64_t taps = int64_t{g.height.count} * g.time.count;
  if (g.depthwise) return {.panel = g.target_channels, .panels = 1, .terms = taps};
  s.terms = taps * g.source_channels;
  s.panel = kernel.panel(g.target_channels, g.height.count * g.source_channels);
  s.panels = ceil_div(g.target_channels, s.panel);
  return s;
}

size_t weight_workspace(const ConvKernel& kernel, const Context& context, const ConvGather& g) {
  const WeightSums sums = weight_sums(kernel, g);
  Carver carver(nullptr);
  const ConvTerms terms(carver, g, outer_slots(kernel, g), sums.panel);
  carver.take<float>(most_partitions * sums.floats(), sizeof(float));
  return carver.used() + static_cast<size_t>(context.pool->size()) *
                             conv_thread_bytes<WeightThread>(g, outer_slots(kernel, g), sums);
}

// dw and dbias of a group (+)= the partitions' sums.
void add_partitions(const Context& context, const ConvGather& g, const ConvTerms& terms,
                    const WeightSums& s, float* sums, int64_t partitions,
                    const ConvGradWeightArgs& a, int64_t group) {
  const auto total = [&](const float* first, bool accumulate, float& out) {
    double sum = accumulate ? static_cast<double>(out) : 0;
    for (int64_t i = 0; i < partitions; ++i) sum += static_cast<double>(first[i * s.floats()]);
    out = static_cast<float>(sum);
  };
  float* dw = a.dw ? a.dw.as<float>() + group * g.group_weights() : nullptr;
  float* dbias = a.dbias ? a.dbias.as<float>() + group * g.target_channels : nullptr;
  const ConvHeightClass& all = terms.classes()[0];
  // A term has a slot for each channel of the source, and the target's in a panel beside it; or, of
  // depthwise convolutions, a slot for each channel of both.
  const int64_t slots = g.depthwise ? 1 : g.source_channels, step = g.depthwise ? 1 : s.panel;
  context.pool->for_range(g.target_channels, 4, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const int64_t p = o / s.panel, lane = o % s.panel;
      if (dbias) total(s.bias(sums, p) + lane, a.accumulate, dbias[o]);
      if (dw == nullptr) continue;
      const float* weights = s.weights(sums, p) + lane;
      for (int64_t l = 0; l < g.time.count; ++l) {
        for (int64_t k = 0; k < g.height.count; ++k) {
          const float* term = weights + terms.first_term(all, l, k) * step;
          float* to = dw + o * g.target_stride + terms.kernel_row(all, k) * g.row_stride + l;
          for (int64_t c = 0; c < slots; ++c)
            total(term + c * step, a.accumulate, to[c * g.source_stride]);
        }
      }
    }
  });
}

}  // namespace

size_t conv_direct_workspace(const ConvKernel& kernel, const Context& context, ConvPhase phase,
                             const ConvDims& dims) {
  if (phase == ConvPhase::grad_weight)
    return weight_workspace(kernel, context, cpu_gather(conv_forward(dims)));
  return gather_workspace(
      kernel, context,
      cpu_gather(phase == ConvPhase::forward ? conv_forward(dims) : conv_backward(dims)));
}

void conv_direct(const ConvKernel& kernel, const Context& context, const ConvArgs& a) {
  check_conv(a);
  const ConvTarget y{{ConvPart::frames, a.to, 0}, a.y};
  gather(kernel, context, cpu_gather(conv_forward(a.dims)),
         conv_source(a.from, a.x, a.before, a.after), a.x.dtype, a.w, a.bias, {&y, 1}, a.workspace);
}

void conv_direct(const ConvKernel& kernel, const Context& context, const ConvGradInputArgs& a) {
  check_conv(a);
  gather(kernel, context, cpu_gather(conv_backward(a.dims)), conv_source(a.to, a.dy), a.dy.dtype,
         a.w, {}, conv_grad_targets(a).parts, a.workspace);
}

void conv_direct(const ConvKernel& kernel, const Context& context, const ConvGradWeightArgs& a) {
  check_conv(a);
  RONDO_CHECK(a.x.dtype != DType::f64, "conv on cpu takes f32 or bf16");
  const ConvGather g = cpu_gather(conv_forward(a.dims));
  const WeightSums s = weight_sums(kernel, g);
  conv_check_workspace(a.workspace, weight_workspace(kernel, context, g));
  Carver carver(a.workspace.data);
  ConvTerms terms(carver, g, outer_slots(kernel, g), s.panel);
  terms.list_classes();
  float* sums = carver.take<float>(most_partitions * s.floats(), sizeof(float));
  char* memory = static_cast<char*>(a.workspace.data) + carver.used();
  const ConvSource source = conv_source(a.from, a.x, a.before, a.after);
  const Blocks blocks({ConvPart::frames, a.to, 0}, block_frames(g));
  const int64_t partitions = std::min(most_partitions, blocks.count());
  const int depth = depth_of(kernel, g);
  const int64_t pixels = ceil_div<int64_t>(g.target_height, depth);
  for (int64_t group = 0; group < g.groups; ++group) {
    const ConvSource of_group = conv_from_channel(source, group * g.source_channels, a.x.dtype);
    const WeightCall call{kernel, g, of_group, a, terms, s, group, depth, pixels};
    conv_for_items<WeightThread>(
        context, memory, partitions,
        [&](WeightThread& thread, int64_t i) {
          float* part = sums + i * s.floats();
          std::fill_n(part, s.floats(), 0.0f);
          const int64_t end = blocks.count() * (i + 1) / partitions;
          for (int64_t b = blocks.count() * i / partitions; b < end; ++b)
            call.block(thread, blocks, blocks.at(b), part);
        },
        g, outer_slots(kernel, g), s);
    add_partitions(context, g, terms, s, sums, partitions, a, group);
  }
}

}  // namespace rondo
