// The cpu variants' driver: tables of each sequence, the workspace, threads.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <new>

#include "kernels/ctc/cpu/ctc_cpu.h"

#include "kernels/base/cpu/parallel.h"

namespace rondo {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr size_t stream_bytes = size_t{4} << 20;  // more than a core's share of the caches

struct Dimensions {
  int32_t frames, labels;
  int64_t classes;
  DType dtype;
  bool with_grad;
};

int64_t real_bytes(const Dimensions& d) { return d.dtype == DType::f64 ? 8 : 4; }

// Numbers that ctc_wide keeps of the lattice.
int64_t wide_columns(const Dimensions& d, int64_t column) {
  const int64_t frames = d.frames, block = ctc_wide_block(d.frames);
  return (block + (frames + block - 1) / std::max<int64_t>(block, 1) + 2) * 2 * column;
}

// Frames of a segment, so that a direction's heads and one segment's columns are as few as can be.
int32_t segment_of(int32_t frames) {
  return std::max(static_cast<int32_t>(std::sqrt((frames + 1) / 2)), 1);
}
// Of the frames on one side of the middle, both ends in segments of the other side as well.
int64_t segments_of(int32_t frames) { return (frames + 1) / 2 / segment_of(frames) + 2; }

void carve_sweep(Carver& c, CtcSweep& sweep, const CtcSequence& s) {
  c.take(sweep.exponent, s.tiles);
  c.take(sweep.carry, s.padded);
  c.take(sweep.skip, s.padded);
}

// What grows with frames times labels: y, and of the lattice its columns and their exponents.
void carve_lattice(Carver& c, CtcSequence& s, const Dimensions& d) {
  const int64_t frames = d.frames, column = static_cast<int64_t>(s.tiles) * ctc_column_tile;
  s.y = c.take(frames * s.padded * real_bytes(d), 1);
  c.take(s.columns, std::max(frames * column, wide_columns(d, column)));
  for (CtcSide& side : s.side) {
    side.stored.columns = s.columns;
    c.take(side.stored.profiles, (frames / 2 + 3) * s.tiles);
  }
}

// What takes its place in segments.
void carve_segments(Carver& c, CtcSequence& s, const Dimensions& d) {
  const int64_t column = static_cast<int64_t>(s.tiles) * ctc_column_tile;
  const int64_t segment = segment_of(d.frames), segments = segments_of(d.frames);
  s.y = c.take(2 * segment * s.padded * real_bytes(d), 1);
  const int64_t own = (segment + segments) * column;
  c.take(s.columns, std::max(2 * own, wide_columns(d, column)));
  for (CtcSide& side : s.side) {
    carve_sweep(c, side.again, s);
    CtcStored& stored = side.stored;
    if (s.columns != nullptr) {
      stored.columns = s.columns + (&side - s.side) * own;
      stored.head_columns = stored.columns + segment * column;
    }
    c.take(stored.profile_of, segment);
    c.take(stored.profiles, (segment + 1) * s.tiles);
    c.take(stored.head_exponents, segments * s.tiles);
    c.take(stored.heads, segments);
  }
}

void set_tiles(CtcSequence& s, int32_t labels) {
  s.tiles = labels / ctc_tile + 1;
  s.padded = static_cast<int32_t>(round_up<int64_t>(s.tiles * ctc_tile, ctc_lanes));
}

size_t lattice_bytes(const Dimensions& d) {
  CtcSequence s{};
  set_tiles(s, d.labels);
  Carver c(nullptr);
  carve_lattice(c, s, d);
  return c.used();
}

// Per sequence: there are as many of them at once as threads.
size_t bytes_to_keep(size_t lattice_limit) { return lattice_limit / 4; }

bool keeps_lattice(const Dimensions& d, size_t lattice_limit) {
  return !d.with_grad || lattice_bytes(d) <= bytes_to_keep(lattice_limit);
}

// Points the tables and scratch of `s` into the slot at `base`; returns the slot's size.
size_t carve(CtcSequence& s, const Dimensions& d, bool kept, std::byte* base) {
  Carver c(base);
  const int64_t real = real_bytes(d);
  set_tiles(s, d.labels);
  s.kept = kept;
  s.ring = !kept ? segment_of(d.frames) : d.with_grad ? 0 : ctc_ring_frames;
  const int64_t frames = d.frames, rows = s.ring ? 2 * s.ring : frames;
  const int64_t column = static_cast<int64_t>(s.tiles) * ctc_column_tile;
  c.take(s.label_class, s.padded);
  c.take(s.may_skip, s.padded + ctc_tile);
  c.take(s.reach, column);
  c.take(s.finish, column);
  c.take(s.first_tile, frames);
  c.take(s.last_tile, frames);
  s.y_blank = c.take(rows * real, 1);
  c.take(s.drop, rows);
  s.row_max = c.take(frames * real, 1);
  s.row_sum = c.take(frames * real, 1);
  c.take(s.wide_y, 2 * s.padded);
  for (CtcSide& side : s.side) {
    carve_sweep(c, side.sweep, s);
    c.take(side.scratch, 2 * column);
  }
  s.scratch = s.side[0].scratch;
  if (!d.with_grad) {
    s.y = c.take(rows * s.padded * real, 1);
    return c.used();
  }
  if (kept) {
    carve_lattice(c, s, d);
    c.take(s.side[0].stored.profile_of, frames);
    s.side[1].stored.profile_of = s.side[0].stored.profile_of;
  } else {
    carve_segments(c, s, d);
  }
  const int64_t bins = ctc_bins(d.classes, d.labels);
  s.bin_stride = round_up(bins, ctc_lanes);
  c.take(s.bin_class, bins);
  c.take(s.bin_begin, bins + 1);
  c.take(s.bin_position, d.labels);
  for (CtcSide& side : s.side) {
    c.take(side.factor, s.tiles);
    ctc_carve_gather(c, side.gather, s, real);
  }
  s.post = c.take(frames * s.bin_stride * real, 1);
  return c.used();
}

// When states can be part of a complete alignment.
void make_tables(CtcSequence& s) {
  const int32_t count = s.label_count;
  ctc_make_label_tables(s);
  const int32_t column = s.tiles * ctc_column_tile;
  std::fill_n(s.reach, column, infinity);
  std::fill_n(s.finish, column, infinity);
  const auto place = [](int32_t i) { return i / ctc_tile * ctc_column_tile + i % ctc_tile; };
  int32_t frame = 0;
  for (int32_t i = 0; i <= count; ++i) {
    s.reach[place(i)] = frame;  // one frame after label i - 1 at the earliest
    if (i == count) break;
    if (i > 0 && s.may_skip[i] == 0) ++frame;
    s.reach[place(i) + ctc_tile] = frame++;
  }
  frame = 0;
  s.finish[place(count)] = 0;
  for (int32_t i = count - 1; i >= 0; --i) {
    s.finish[place(i) + ctc_tile] = frame++;
    s.finish[place(i)] = frame;
    if (i > 0 && s.may_skip[i] == 0) ++frame;
  }
  int32_t first = 0, last = 0;
  for (int32_t t = 0; t < s.frames; ++t) {
    while (last + 1 < s.tiles && s.reach[(last + 1) * ctc_column_tile] <= t) ++last;
    // The last state of a tile is the first one to be near enough to the end.
    while (first + 1 < s.tiles &&
           s.finish[first * ctc_column_tile + ctc_column_tile - 1] > s.frames - 1 - t) {
      ++first;
    }
    s.first_tile[t] = first;
    s.last_tile[t] = last;
  }
}

// A slot holds the CtcSequence itself, then what it points to.
constexpr size_t header_bytes = (sizeof(CtcSequence) + 63) / 64 * 64;

// For every sequence within `d`. Of those that are kept the lattice takes bytes_to_keep() at most,
// and all else no more than for the largest one.
size_t slot_bytes(const Dimensions& d, size_t lattice_limit) {
  CtcSequence s{};
  const size_t with_lattice = header_bytes + carve(s, d, true, nullptr);
  if (keeps_lattice(d, lattice_limit)) return with_lattice;
  return std::max(with_lattice - lattice_bytes(d) + bytes_to_keep(lattice_limit),
                  header_bytes + carve(s, d, false, nullptr));
}

int64_t slots(const Context& context, const PackedCapacity& capacity) {
  return std::min<int64_t>(context.pool->size(), capacity.sequences);
}

class Run {
 public:
  Run(const Context& context, const CtcArgs& args, const CtcKernels& kernels)
      : context_(context),
        a_(args),
        kernels_(kernels),
        dtype_(args.logits.dtype),
        sequences_(args.layout.extent->sequences) {
    slot_bytes_ = slot_bytes(dimensions(), a_.lattice_limit);
    slots_ = slots(context, args.layout.capacity);
    RONDO_CHECK(a_.workspace.bytes() >= slot_bytes_ * static_cast<size_t>(slots_), "workspace of ",
                a_.workspace.bytes(), " bytes, needs ", slot_bytes_, " for each of ", slots_);
  }

  void run() {
    for (int32_t n = sequences_; n < a_.layout.capacity.sequences; ++n) set_loss(n, 0);
    if (sequences_ < context_.pool->size() && a_.grad) {
      run_few();
    } else {
      run_many();
    }
  }

 private:
  Dimensions dimensions() const {
    return {a_.layout.capacity.frames, a_.max_label_length, a_.logits.dim(1), dtype_,
            static_cast<bool>(a_.grad)};
  }

  // A thread takes a sequence after the other, each from logits to gradient while it is in cache.
  void run_many() {
    std::atomic<int32_t> next{0};
    const auto work = [&](int worker) {
      for (int32_t n; (n = next.fetch_add(1, std::memory_order_relaxed)) < sequences_;) {
        CtcSequence* s = begin(n, worker);
        if (s == nullptr) continue;
        if (a_.grad && s->kept) kernels_.rows(*s, dtype_, 0, s->frames, 0);
        if (finish(*s, walk(*s))) kernels_.grad_rows(*s, dtype_, 0, s->frames);
      }
    };
    context_.pool->run(work, static_cast<int>(std::min<int64_t>(slots_, sequences_)));
  }

  // Fewer sequences than threads: the threads share the rows of each, and each direction of a
  // lattice has one.
  void run_few() {
    for (int32_t n = 0; n < sequences_; ++n) {
      CtcSequence* s = begin(n, n);
      if (s && s->kept)
        each_row(*s, [&](int64_t first, int64_t last) {
          kernels_.rows(*s, dtype_, static_cast<int32_t>(first), static_cast<int32_t>(last), 0);
        });
    }
    const auto each_direction = [&](const auto& f) {
      context_.pool->for_each(2 * sequences_, [&](int64_t i) {
        CtcSequence& s = *in_slot(i / 2);
        if (s.wants_grad && s.met.kind == CtcLoss::finite) f(s, dtype_, i % 2 == 1);
      });
    };
    if (kernels_.first_half) {
      each_direction(kernels_.first_half);
      for (int32_t n = 0; n < sequences_; ++n) {
        CtcSequence& s = *in_slot(n);
        if (s.wants_grad) s.met = kernels_.meet(s, dtype_);
      }
      each_direction(kernels_.second_half);
    }
    context_.pool->for_each(sequences_, [&](int64_t n) {
      CtcSequence* s = in_slot(n);
      if (s->wants_grad) s->wants_grad = finish(*s, with_halves(*s));
    });
    for (int32_t n = 0; n < sequences_; ++n) {
      const CtcSequence& s = *in_slot(n);
      if (s.wants_grad)
        each_row(s, [&](int64_t first, int64_t last) {
          kernels_.grad_rows(s, dtype_, static_cast<int32_t>(first), static_cast<int32_t>(last));
        });
    }
  }

  template <class F>
  void each_row(const CtcSequence& s, const F& f) {
    context_.pool->for_range(s.frames, 16384 / s.classes + 1, f);
  }

  CtcSequence* in_slot(int64_t slot) const {
    return reinterpret_cast<CtcSequence*>(a_.workspace.as<uint8_t>() +
                                          static_cast<size_t>(slot) * slot_bytes_);
  }

  // Sequence n with its tables, in a slot. nullptr: nothing left to do for it.
  CtcSequence* begin(int32_t n, int64_t slot) {
    CtcSequence& s = *new (in_slot(slot)) CtcSequence{};
    s.logits = a_.logits.data;
    s.grad = a_.grad.data;
    s.row_offsets = a_.layout.row_offsets;
    s.labels = a_.labels + a_.label_offsets[n];
    s.classes = a_.logits.dim(1);
    s.sequence = n;
    s.frames = a_.layout.lengths[n];
    s.label_count = a_.label_offsets[n + 1] - a_.label_offsets[n];
    s.blank = a_.blank;
    s.input = a_.input;
    s.grad_scale = !a_.grad_scale         ? 1.0
                   : dtype_ == DType::f64 ? a_.grad_scale.as<double>()[n]
                                          : static_cast<double>(a_.grad_scale.as<float>()[n]);
    RONDO_CHECK(s.frames <= a_.layout.capacity.frames && s.label_count <= a_.max_label_length,
                "sequence ", n, " has ", s.frames, " frames and ", s.label_count,
                " labels, more than the capacity of ", a_.layout.capacity.frames, " and ",
                a_.max_label_length);
    const std::span<const int32_t> labels(s.labels, static_cast<size_t>(s.label_count));
    if (s.frames == 0 || s.frames < ctc_min_frames(labels)) {
      set_loss(n, s.label_count == 0 || a_.zero_infinity ? 0 : infinity);
      if (a_.grad) fill_grad(s, 0);
      return nullptr;
    }
    const Dimensions d{s.frames, s.label_count, s.classes, dtype_, static_cast<bool>(a_.grad)};
    const size_t used = carve(s, d, keeps_lattice(d, a_.lattice_limit),
                              reinterpret_cast<std::byte*>(&s) + header_bytes);
    RONDO_CHECK(header_bytes + used <= slot_bytes_, "sequence ", n, " needs ", used,
                " bytes of a slot of ", slot_bytes_);
    make_tables(s);
    if (a_.grad) ctc_make_bins(s);
    s.wants_grad = static_cast<bool>(a_.grad);
    s.stream = a_.grad && a_.grad.bytes() > stream_bytes;
    return &s;
  }

  // What the lattice of a sequence says once both halves are done.
  CtcLoss with_halves(const CtcSequence& s) const {
    const bool all = s.side[0].in_range && s.side[1].in_range;
    return s.met.kind == CtcLoss::finite && !all ? CtcLoss{0, CtcLoss::out_of_range} : s.met;
  }

  // The lattice on this thread alone.
  CtcLoss walk(CtcSequence& s) const {
    if (!kernels_.first_half) return {0, CtcLoss::out_of_range};
    if (!a_.grad) return kernels_.loss(s, dtype_);
    for (const bool up : {true, false}) kernels_.first_half(s, dtype_, up);
    s.met = kernels_.meet(s, dtype_);
    if (s.met.kind != CtcLoss::finite) return s.met;
    for (const bool up : {true, false}) {
      if (s.side[0].in_range && s.side[1].in_range) kernels_.second_half(s, dtype_, up);
    }
    return with_halves(s);
  }

  // Writes the loss, by ctc_wide where the lattice could not; true if the gradient is still to be
  // written.
  bool finish(CtcSequence& s, CtcLoss loss) {
    if (loss.kind == CtcLoss::out_of_range) {
      // Of rows that lie in a ring the lattice may not have come to all.
      if (s.ring > 0) kernels_.rows(s, dtype_, 0, s.frames, 0);
      loss = kernels_.wide(s, dtype_);
    }
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    switch (loss.kind) {
      case CtcLoss::finite:
        set_loss(s.sequence, loss.value);
        return static_cast<bool>(a_.grad);
      case CtcLoss::impossible:
        set_loss(s.sequence, a_.zero_infinity ? 0 : infinity);
        if (a_.grad) fill_grad(s, 0);
        return false;
      case CtcLoss::not_a_number:
      case CtcLoss::out_of_range:
        break;
    }
    set_loss(s.sequence, nan);
    if (a_.grad) fill_grad(s, nan);
    return false;
  }

  void set_loss(int32_t n, double loss) {
    if (dtype_ == DType::f64) {
      a_.loss.as<double>()[n] = loss;
    } else {
      a_.loss.as<float>()[n] = static_cast<float>(loss);
    }
  }

  void fill_grad(const CtcSequence& s, double value) {
    visit_floating(dtype_, [&]<class T>(T) {
      for (int32_t t = 0; t < s.frames; ++t) {
        const int64_t row = static_cast<int64_t>(s.row_offsets[t]) + s.sequence;
        std::fill_n(a_.grad.as<T>() + row * s.classes, s.classes, static_cast<T>(value));
      }
    });
  }

  const Context& context_;
  const CtcArgs& a_;
  const CtcKernels& kernels_;
  const DType dtype_;
  const int32_t sequences_;
  size_t slot_bytes_ = 0;
  int64_t slots_ = 0;
};

}  // namespace

void ctc_carve_gather(Carver& c, CtcGather& gather, const CtcSequence& s, int64_t real) {
  gather.rows = c.take(ctc_lanes * s.padded * real, 1);
  gather.transposed = c.take(s.padded * ctc_lanes * real, 1);
  gather.bin_sums = c.take(s.bin_stride * ctc_lanes * real, 1);
}

void ctc_make_label_tables(CtcSequence& s) {
  std::fill_n(s.label_class, s.padded, s.blank);
  std::copy_n(s.labels, s.label_count, s.label_class);
  std::fill_n(s.may_skip, s.padded + ctc_tile, 0.0);
  for (int32_t i = 1; i < s.label_count; ++i) s.may_skip[i] = s.labels[i] != s.labels[i - 1];
}

void ctc_make_bins(CtcSequence& s) {
  const bool dense = s.classes <= ctc_dense_classes;
  int64_t bins = 0;
  if (dense) {
    for (; bins < s.classes; ++bins) s.bin_class[bins] = static_cast<int32_t>(bins);
  } else {
    std::copy_n(s.labels, s.label_count, s.bin_position);
    std::sort(s.bin_position, s.bin_position + s.label_count);
    bool blank_done = false;
    const auto push = [&](int32_t v) {
      if (bins == 0 || s.bin_class[bins - 1] != v) s.bin_class[bins++] = v;
    };
    for (int32_t j = 0; j < s.label_count; ++j) {
      if (!blank_done && s.bin_position[j] > s.blank) push(s.blank), blank_done = true;
      push(s.bin_position[j]);
    }
    if (!blank_done) push(s.blank);
  }
  s.bins = bins;
  const auto bin_of = [&](int32_t v) {
    if (dense) return v;
    return static_cast<int32_t>(std::lower_bound(s.bin_class, s.bin_class + bins, v) - s.bin_class);
  };
  s.blank_bin = bin_of(s.blank);
  std::fill_n(s.bin_begin, bins + 1, 0);
  for (int32_t i = 0; i < s.label_count; ++i) ++s.bin_begin[bin_of(s.labels[i]) + 1];
  for (int64_t b = 0; b < bins; ++b) s.bin_begin[b + 1] += s.bin_begin[b];
  // Filling moves each start to its end, that is to the next one's start; moved back after.
  for (int32_t i = 0; i < s.label_count; ++i) {
    s.bin_position[s.bin_begin[bin_of(s.labels[i])]++] = i;
  }
  for (int64_t b = bins; b > 0; --b) s.bin_begin[b] = s.bin_begin[b - 1];
  s.bin_begin[0] = 0;
}

int32_t ctc_wide_block(int32_t frames) {
  return std::max(static_cast<int32_t>(std::sqrt(static_cast<double>(frames))), 1);
}

size_t ctc_cpu_workspace_bytes(const Context& context, const PackedCapacity& capacity, DType dtype,
                               int64_t classes, int32_t max_label_length, bool with_grad,
                               size_t lattice_limit) {
  return slot_bytes({capacity.frames, max_label_length, classes, dtype, with_grad}, lattice_limit) *
         static_cast<size_t>(slots(context, capacity));
}

void ctc_run(const Context& context, const CtcArgs& args, const CtcKernels& kernels) {
  Run(context, args, kernels).run();
}

void ctc_wide_generic(const Context& context, const CtcArgs& args) {
  using namespace isa_generic;
  ctc_run(context, args, {ctc_rows, ctc_grad_rows, ctc_wide});
}
void ctc_wide_avx2(const Context& context, const CtcArgs& args) {
  using namespace isa_avx2;
  ctc_run(context, args, {ctc_rows, ctc_grad_rows, ctc_wide});
}
void ctc_wide_avx512(const Context& context, const CtcArgs& args) {
  using namespace isa_avx512;
  ctc_run(context, args, {ctc_rows, ctc_grad_rows, ctc_wide});
}

#define RONDO_KERNELS                                                                              \
  {                                                                                                \
    ctc_rows, ctc_grad_rows, ctc_wide, ctc_lattice_loss, ctc_lattice_first_half, ctc_lattice_meet, \
        ctc_lattice_second_half                                                                    \
  }
void ctc_generic(const Context& context, const CtcArgs& args) {
  using namespace isa_generic;
  ctc_run(context, args, RONDO_KERNELS);
}
void ctc_avx2(const Context& context, const CtcArgs& args) {
  using namespace isa_avx2;
  ctc_run(context, args, RONDO_KERNELS);
}
void ctc_avx512(const Context& context, const CtcArgs& args) {
  using namespace isa_avx512;
  ctc_run(context, args, RONDO_KERNELS);
}
#undef RONDO_KERNELS

}  // namespace rondo
