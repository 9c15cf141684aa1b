// The cpu variants' driver: tables of each sequence's chunk, the workspace, threads.
#include <atomic>
#include <new>

#include "kernels/base/cpu.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/ctc/cpu/ctc_cpu.h"
#include "kernels/ctc/ctc_chunk_impl.h"

namespace rondo {
namespace {

constexpr size_t stream_bytes = size_t{4} << 20;  // more than a core's share of the caches

struct Dimensions {
  int32_t frames, labels;
  int64_t classes;
  DType dtype;
};

// Points the tables and scratch of `c` into the slot at `base`; returns the slot's size.
size_t carve(CtcChunkSequence& c, const Dimensions& d, std::byte* base) {
  Carver carver(base);
  CtcSequence& s = c.s;
  const int64_t real = d.dtype == DType::f64 ? 8 : 4;
  s.tiles = d.labels / ctc_tile + 1;
  s.padded = static_cast<int32_t>(round_up<int64_t>(s.tiles * ctc_tile, ctc_lanes));
  s.ring = ctc_ring_frames;  // of y nothing is kept: only row_max and row_sum are wanted
  const int64_t frames = d.frames, bins = ctc_bins(d.classes, d.labels);
  const int64_t column = static_cast<int64_t>(s.tiles) * ctc_wide_column_tile;
  const int64_t block = ctc_wide_block(d.frames);
  s.bin_stride = round_up(bins, ctc_lanes);
  carver.take(s.label_class, s.padded);
  carver.take(s.may_skip, s.padded + ctc_tile);
  s.y = carver.take(ctc_ring_frames * s.padded * real, 1);
  s.y_blank = carver.take(ctc_ring_frames * real, 1);
  carver.take(s.drop, ctc_ring_frames);
  s.row_max = carver.take(frames * real, 1);
  s.row_sum = carver.take(frames * real, 1);
  carver.take(s.wide_y, 2 * s.padded);
  carver.take(s.scratch, 2 * column);
  carver.take(s.columns, (block + (frames + block - 1) / block) * column);
  carver.take(s.bin_class, bins);
  carver.take(s.bin_begin, bins + 1);
  carver.take(s.bin_position, d.labels);
  ctc_carve_gather(carver, s.side[0].gather, s, real);
  s.post = carver.take(frames * s.bin_stride * real, 1);
  return carver.used();
}

// A slot holds the CtcChunkSequence itself, then what it points to.
constexpr size_t header_bytes = (sizeof(CtcChunkSequence) + 63) / 64 * 64;

size_t slot_bytes(const Dimensions& d) {
  CtcChunkSequence c{};
  return header_bytes + carve(c, d, nullptr);
}

int64_t slots(const Context& context, const PackedCapacity& capacity) {
  return std::min<int64_t>(context.pool->size(), capacity.sequences);
}

class Run {
 public:
  Run(const Context& context, const CtcChunk& args, const CtcChunkKernels& kernels)
      : context_(context), a_(args), kernels_(kernels), dtype_(args.logits.dtype) {
    slot_bytes_ =
        slot_bytes({a_.layout.capacity.frames, a_.max_label_length, a_.logits.dim(1), dtype_});
    slots_ = slots(context, args.layout.capacity);
    RONDO_CHECK(a_.workspace.bytes() >= slot_bytes_ * static_cast<size_t>(slots_), "workspace of ",
                a_.workspace.bytes(), " bytes, needs ", slot_bytes_, " for each of ", slots_);
  }

  void alpha(const CtcChunkAlphaArgs& args) {
    each([&](int32_t n, int slot, ThreadPool*) {
      const CtcChunkPart part(a_, n);
      if (ctc_pass_on_alpha(args, part, n)) return;
      CtcChunkSequence& c = begin(n, part, slot);
      kernels_.rows(c.s, dtype_, 0, c.s.frames, 0);
      double* out = ctc_border(args.alpha_out, n);
      c.alpha_out = out + ctc_border_header;
      CtcBorderHeader header = alpha_header(n, part);
      kernels_.alpha(c, dtype_, header);
      ctc_write_header(header, out);
    });
  }

  void grad(const CtcChunkGradArgs& args) {
    ctc_clear_spare_losses(args);
    each([&](int32_t n, int slot, ThreadPool* pool) {
      const CtcChunkPart part(a_, n);
      if (!part.feasible) fill_grad(args, n, 0);
      if (ctc_pass_on_beta(args, part, n)) return;
      CtcChunkSequence& c = begin(n, part, slot);
      prepare_grad(c, args);
      kernels_.rows(c.s, dtype_, 0, c.s.frames, 0);
      CtcBorderHeader header;
      if (!part.has_last) header = ctc_read_header(ctc_border(args.beta_in, n));
      kernels_.beta(c, dtype_, alpha_header(n, part), header);
      ctc_write_header(header, ctc_border(args.beta_out, n));
      ctc_set_loss(args.loss, n, ctc_loss_of(header, args.zero_infinity));
      if (header.kind != CtcBorderHeader::finite) {
        fill_grad(args, n,
                  header.kind == CtcBorderHeader::impossible
                      ? 0
                      : std::numeric_limits<double>::quiet_NaN());
        return;
      }
      each_row(c.s, pool, [&](int64_t first, int64_t last) {
        kernels_.grad_rows(c.s, dtype_, static_cast<int32_t>(first), static_cast<int32_t>(last));
      });
    });
  }

 private:
  // f(sequence, slot, pool): a thread per sequence, or, for fewer sequences than threads, one after
  // the other with all threads for the rows.
  template <class F>
  void each(const F& f) {
    const int32_t sequences = a_.layout.extent->sequences;
    if (sequences < context_.pool->size()) {
      for (int32_t n = 0; n < sequences; ++n) f(n, 0, context_.pool);
      return;
    }
    std::atomic<int32_t> next{0};
    const auto work = [&](int worker) {
      for (int32_t n; (n = next.fetch_add(1, std::memory_order_relaxed)) < sequences;) {
        f(n, worker, nullptr);
      }
    };
    context_.pool->run(work, static_cast<int>(std::min<int64_t>(slots_, sequences)));
  }

  template <class F>
  void each_row(const CtcSequence& s, ThreadPool* pool, const F& f) const {
    if (pool == nullptr) return f(0, s.frames);
    pool->for_range(s.frames, 16384 / s.classes + 1, f);
  }

  CtcChunkSequence& begin(int32_t n, const CtcChunkPart& part, int slot) const {
    std::byte* at =
        static_cast<std::byte*>(a_.workspace.data) + static_cast<size_t>(slot) * slot_bytes_;
    CtcChunkSequence& c = *new (at) CtcChunkSequence{};
    CtcSequence& s = c.s;
    s.logits = a_.logits.data;
    s.row_offsets = a_.layout.row_offsets;
    s.labels = a_.labels + a_.label_offsets[n];
    s.classes = a_.logits.dim(1);
    s.sequence = n;
    s.frames = part.frames;
    s.label_count = a_.label_offsets[n + 1] - a_.label_offsets[n];
    s.blank = a_.blank;
    s.input = a_.input;
    c.has_first = part.has_first;
    c.has_last = part.has_last;
    if (part.begins_left) c.alpha_in = ctc_border(a_.alpha_in, n) + ctc_border_header;
    RONDO_CHECK(s.frames <= a_.layout.capacity.frames && s.label_count <= a_.max_label_length,
                "sequence ", n, " has ", s.frames, " frames and ", s.label_count,
                " labels, more than the capacity of ", a_.layout.capacity.frames, " and ",
                a_.max_label_length);
    carve(c, {s.frames, s.label_count, s.classes, dtype_}, at + header_bytes);
    ctc_make_label_tables(s);
    return c;
  }

  static void prepare_grad(CtcChunkSequence& c, const CtcChunkGradArgs& args) {
    ctc_make_bins(c.s);
    c.s.grad = args.grad.data;
    c.s.grad_scale = ctc_scale_of(args.grad_scale, c.s.sequence);
    c.s.stream = args.grad.bytes() > stream_bytes;
    if (!c.has_last) c.beta_in = ctc_border(args.beta_in, c.s.sequence) + ctc_border_header;
    if (args.beta_out) c.beta_out = ctc_border(args.beta_out, c.s.sequence) + ctc_border_header;
  }

  CtcBorderHeader alpha_header(int32_t n, const CtcChunkPart& part) const {
    return part.begins_left ? ctc_read_header(ctc_border(a_.alpha_in, n)) : CtcBorderHeader();
  }

  void fill_grad(const CtcChunkGradArgs& args, int32_t n, double value) const {
    visit_floating(dtype_, [&]<class T>(T) {
      for (int32_t t = 0; t < a_.layout.lengths[n]; ++t) {
        const int64_t row = static_cast<int64_t>(a_.layout.row_offsets[t]) + n;
        std::fill_n(args.grad.as<T>() + row * args.grad.dim(1), args.grad.dim(1),
                    static_cast<T>(value));
      }
    });
  }

  const Context& context_;
  const CtcChunk& a_;
  const CtcChunkKernels& kernels_;
  const DType dtype_;
  size_t slot_bytes_ = 0;
  int64_t slots_ = 0;
};

template <const CtcChunkKernels& kernels>
void run_alpha(const Context& context, const CtcChunkAlphaArgs& args) {
  check_ctc_chunk(args);
  Run(context, args, kernels).alpha(args);
}
template <const CtcChunkKernels& kernels>
void run_grad(const Context& context, const CtcChunkGradArgs& args) {
  check_ctc_chunk(args);
  Run(context, args, kernels).grad(args);
}

#define RONDO_KERNELS(isa)                                                         \
  {                                                                                \
    rondo::isa::ctc_rows, rondo::isa::ctc_chunk_alpha, rondo::isa::ctc_chunk_beta, \
        rondo::isa::ctc_grad_rows                                                  \
  }
constexpr CtcChunkKernels generic = RONDO_KERNELS(isa_generic);
constexpr CtcChunkKernels avx2 = RONDO_KERNELS(isa_avx2);
constexpr CtcChunkKernels avx512 = RONDO_KERNELS(isa_avx512);
#undef RONDO_KERNELS

template <class Args>
bool gpu_accepts(const Context&, const void* args) {
  return !args || static_cast<const Args*>(args)->logits.dtype != DType::f64;
}

}  // namespace

size_t ctc_chunk_cpu_workspace_bytes(const Context& context, const PackedCapacity& capacity,
                                     DType dtype, int64_t classes, int32_t max_label_length) {
  return slot_bytes({capacity.frames, max_label_length, classes, dtype}) *
         static_cast<size_t>(slots(context, capacity));
}

std::span<const Variant> ctc_chunk_alpha_variants() {
  using Args = CtcChunkAlphaArgs;
  static constexpr Variant variants[] = {
      variant<Args, ctc_chunk_alpha_ref>("ref", Backend::ref),
      variant<Args, run_alpha<avx512>>("avx512", Backend::cpu, Role::standard, has_avx512),
      variant<Args, run_alpha<avx2>>("avx2", Backend::cpu, Role::standard, has_avx2),
      variant<Args, run_alpha<generic>>("generic", Backend::cpu),
      RONDO_GPU_VARIANTS(Args, ctc_chunk_alpha, "log_space", Role::standard, gpu_accepts<Args>),
  };
  return variants;
}

std::span<const Variant> ctc_chunk_grad_variants() {
  using Args = CtcChunkGradArgs;
  static constexpr Variant variants[] = {
      variant<Args, ctc_chunk_grad_ref>("ref", Backend::ref),
      variant<Args, run_grad<avx512>>("avx512", Backend::cpu, Role::standard, has_avx512),
      variant<Args, run_grad<avx2>>("avx2", Backend::cpu, Role::standard, has_avx2),
      variant<Args, run_grad<generic>>("generic", Backend::cpu),
      RONDO_GPU_VARIANTS(Args, ctc_chunk_grad, "log_space", Role::standard, gpu_accepts<Args>),
  };
  return variants;
}

}  // namespace rondo
