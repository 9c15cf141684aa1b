#include "kernels/lstm/lstm_cpu.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/cpu.h"
#include "kernels/base/cpu/packed_weights.h"
#include "kernels/base/dispatch.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lstm/cpu/lstm_cpu_space.h"
#include "kernels/lstm/cpu/lstm_team.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo {
namespace {

// ---- threads ----

LstmTeamProblem team_problem(const LstmKernels& kernels, const LstmDims& dims, LstmRun run,
                             const PackedExtent& extent) {
  LstmTeamProblem p;
  p.directions = lstm_end_direction(dims, run) - lstm_first_direction(run);
  p.hidden = dims.hidden;
  p.output = dims.output();
  p.rows = extent.rows, p.frames = extent.frames, p.sequences = extent.sequences;
  p.panels = (p.output + 4 * kernels.width - 1) / (4 * kernels.width);
  p.operand_bytes = static_cast<int>(kernels.operand_bytes);
  p.rows_at_once = kernels.rows_at_once;
  p.products_per_ns = kernels.products_per_ns;
  p.l2_bytes = static_cast<double>(l2_cache_bytes());
  return p;
}

LstmLoopShape loop_shape(const LstmDims& dims, LstmRun run, const PackedView& layout) {
  LstmLoopShape s;
  s.hidden = dims.hidden;
  s.output = dims.output();
  s.first_direction = lstm_first_direction(run);
  s.directions = lstm_end_direction(dims, run) - s.first_direction;
  s.projected = dims.projection != 0;
  s.frames = layout.extent->frames;
  s.sequences = layout.extent->sequences;
  s.lengths = layout.lengths;
  s.batch_sizes = layout.batch_sizes;
  s.row_offsets = layout.row_offsets;
  return s;
}

void pack(const Context& context, const LstmKernels& kernels, const LstmMatrix& m) {
  context.pool->for_range(kernels.panels(m), 1,
                          [&](int64_t first, int64_t last) { kernels.pack(m, first, last); });
}

// ---- states ----

// rows x width elements from `from` (absent: zeros), one direction of a state, to rows of `stride`
// floats, or bf16 as they are.
void load_state(const TensorView& from, int64_t first, int64_t rows, int64_t width, bool to_bf16,
                int64_t stride, void* to) {
  const size_t element = to_bf16 ? 2 : 4;
  std::memset(to, 0, static_cast<size_t>(rows * stride) * element);
  if (!from) return;
  for (int64_t r = 0; r < rows; ++r) {
    const char* source = lstm_at(from, first + r * width);
    char* target = static_cast<char*>(to) + static_cast<size_t>(r * stride) * element;
    if (from.dtype == DType::f32 || to_bf16) {
      std::memcpy(target, source, static_cast<size_t>(width) * element);
      continue;
    }
    for (int64_t k = 0; k < width; ++k) {
      reinterpret_cast<float*>(target)[k] =
          static_cast<float>(reinterpret_cast<const bf16*>(source)[k]);
    }
  }
}

// One sequence's state back, from floats or from bf16 as it is.
void store_state(const TensorView& to, int64_t first, int64_t width, bool from_bf16,
                 const void* from) {
  char* target = lstm_at_mutable(to, first);
  if (to.dtype == DType::f32 || from_bf16) {
    std::memcpy(target, from, static_cast<size_t>(width) * size_of(to.dtype));
    return;
  }
  for (int64_t k = 0; k < width; ++k) {
    reinterpret_cast<bf16*>(target)[k] = bf16(static_cast<const float*>(from)[k]);
  }
}

bool works_alone(const LstmCrew& crew, const Context& context, const LstmDims& dims) {
  return crew.team().threads == 1 && crew.threads() > 1 &&
         crew.threads() <= lstm_own_groups(context, dims);
}

// ---- forward ----

class ForwardCall {
 public:
  ForwardCall(const LstmKernels& kernels, const Context& context, const LstmForwardArgs& args,
              Carver& carver)
      : kernels_(kernels),
        context_(context),
        a_(args),
        crew_(team_problem(kernels, args.dims, args.run, extent_), args.layout.lengths,
              context.pool->size()),
        space_(carver, context, args.dims, args.x.dtype, args.layout.capacity) {
    loop_.shape = loop_shape(a_.dims, a_.run, a_.layout);
    loop_.shape.team = crew_.team();
    loop_.integers = space_.integers;
    loop_.integers_bytes = lstm_integers_bytes(a_.dims, extent_.sequences);
  }

  void run() {
    for (int d = begin_; d < end_; ++d) prepare(d);
    if (alone_) {
      context_.pool->run([&](int worker) { run_alone(worker); }, crew_.threads());
    } else {
      run_together();
    }
    for (int d = begin_; d < end_; ++d) final_states(d);
  }

 private:
  void run_together() {
    const int64_t frames = extent_.frames;
    for (int64_t begin = 0, end = 0; begin < frames; begin = end) {
      end = begin + 1;
      while (end < frames && rows_of(0, begin, end + 1).count <= chunk_ &&
             (D == 1 || rows_of(1, begin, end + 1).count <= chunk_)) {
        ++end;
      }
      loop_.begin = begin;
      loop_.end = end;
      for (int d = begin_; d < end_; ++d) project_inputs(d, rows_of(d, begin, end));
      context_.pool->run([&](int worker) { kernels_.forward(loop_, worker); }, crew_.threads());
    }
  }

  // A worker whose steps wait for nobody packs R for itself and makes its own pre-activations:
  // between cores without a common cache, handing them over costs as much as a third of the loop.
  void run_alone(int worker) {
    const LstmTeam& team = crew_.team();
    const int64_t first = team.first_sequences[worker % team.splits];
    const int64_t sequences = team.first_sequences[worker % team.splits + 1] - first;
    const int first_direction = begin_ + (team.directions_apart ? worker / team.splits : 0);
    const int end_direction = team.directions_apart ? first_direction + 1 : end_;
    const auto active = [&](int d, int64_t step) {
      const int64_t t = lstm_frame(d, step, extent_.frames);
      return std::clamp<int64_t>(a_.layout.batch_sizes[t] - first, 0, sequences);
    };
    const int64_t most =
        lstm_own_rows(a_.dims, a_.layout.capacity, lstm_own_groups(context_, a_.dims));
    LstmForwardLoop loop = loop_;
    loop.own_inputs = true;
    for (int d = first_direction; d < end_direction && !a_.packed[d].r; ++d) {
      const LstmMatrix r = recurrent_matrix(d, space_.own[worker].r[d]);
      kernels_.pack(r, 0, kernels_.panels(r));
      loop.direction[d].r = r.packed;
    }
    for (loop.begin = 0; loop.begin < extent_.frames; loop.begin = loop.end) {
      int64_t rows[2] = {0, 0};
      for (loop.end = loop.begin; loop.end < extent_.frames; ++loop.end) {
        bool fits = true;
        for (int d = first_direction; d < end_direction; ++d) {
          fits = fits && rows[d] + active(d, loop.end) <= most;
        }
        if (!fits) break;
        for (int d = first_direction; d < end_direction; ++d) rows[d] += active(d, loop.end);
      }
      for (int d = first_direction; d < end_direction; ++d) {
        const LstmForwardSpace::Own& own = space_.own[worker];
        char* to = own.x;
        for (int64_t step = loop.begin; step < loop.end; ++step) {
          const int64_t t = lstm_frame(d, step, extent_.frames);
          const size_t bytes =
              static_cast<size_t>(active(d, step) * a_.dims.input) * size_of(a_.x.dtype);
          std::memcpy(to, lstm_at(a_.x, (a_.layout.row_offsets[t] + first) * a_.dims.input), bytes);
          to += bytes;
        }
        project_own_inputs(d, own, rows[d], most);
        loop.direction[d].pre = own.pre[d];
      }
      kernels_.forward(loop, worker);
    }
  }

  void project_own_inputs(int d, const LstmForwardSpace::Own& own, int64_t rows,
                          int64_t most) const {
    Context alone = context_;
    alone.pool = &lstm_one_thread();
    const auto count = static_cast<int32_t>(rows);
    GemmArgs g = lstm_input_product(a_.dims, a_.x.dtype, most);
    g.row_count = &count;
    g.a = own.x;
    g.b = a_.weights[d].w.data;
    g.c = own.pre[d];
    g.bias = a_.weights[d].b;
    g.packed_b = a_.packed[d].w;
    lstm_set_gemm_workspace(g, own);
    rondo::run(alone, g);
  }

  struct Rows {
    int64_t first, count;
  };
  // Rows that direction d reads in steps [begin, end).
  Rows rows_of(int d, int64_t begin, int64_t end) const {
    const int64_t frames = extent_.frames;
    const int64_t first = d == 0 ? begin : frames - end, last = d == 0 ? end : frames - begin;
    const int32_t* offsets = a_.layout.row_offsets;
    return {offsets[first], offsets[last] - offsets[first]};
  }

  bool bf16_states() const { return kernels_.operand_bytes == 2; }
  size_t operand_size() const { return bf16_states() ? 2 : 4; }

  void prepare(int d) {
    const auto& s = space_.direction[d];
    auto& l = loop_.direction[d];
    const int64_t N = a_.layout.capacity.sequences, rows = a_.layout.capacity.rows;
    const int64_t live = extent_.sequences, stride = lstm_state_stride(P);
    l.r = packed(a_.packed[d].r, recurrent_matrix(d, s.r), !alone_);
    if (a_.dims.projection) {
      l.p = packed(a_.packed[d].p, {a_.weights[d].p.data, P, H, H, 1, false, s.p}, true);
      std::memset(s.projected, 0, static_cast<size_t>(live * lstm_state_stride(H)) * 4);
    }
    // Both parities: a sequence of direction 1 may begin at either.
    for (int parity = 0; parity < 2; ++parity) {
      load_state(a_.h0, d * N * P, live, P, bf16_states(), stride,
                 static_cast<char*>(s.state) +
                     static_cast<size_t>(parity * live * stride) * operand_size());
    }
    load_state(a_.c0, d * N * H, live, H, false, H, s.c);
    l.state = s.state, l.projected = s.projected, l.c = s.c;
    l.gates = lstm_at_mutable(a_.gates, d * rows * 4 * H);
    l.cells = reinterpret_cast<float*>(lstm_at_mutable(a_.cells, d * rows * H));
    l.hidden = lstm_at_mutable(a_.hidden, d * rows * H);
    l.y = lstm_at_mutable(a_.y, d * P);
    loop_.y_stride = D * P;
  }

  LstmMatrix recurrent_matrix(int d, void* packed) const {
    return {a_.weights[d].r.data, H, P, P, 1, true, packed};
  }

  // Where `m` is packed: as it is kept, or in m.packed, where it is packed now if `now`.
  const void* packed(PackedWeights* kept, LstmMatrix m, bool now) const {
    if (!kept) {
      if (now) pack(context_, kernels_, m);
      return m.packed;
    }
    const auto bytes =
        static_cast<size_t>(lstm_packed_elements(a_.dims, m.columns, m.k, m.cells)) * sizeof(float);
    return kept->get({reinterpret_cast<int64_t>(&kernels_), m.columns, m.k, m.cells}, bytes,
                     [&](void* to) {
                       m.packed = to;
                       pack(context_, kernels_, m);
                     });
  }

  void project_inputs(int d, Rows rows) {
    const auto live = static_cast<int32_t>(rows.count);
    GemmArgs g = lstm_input_product(a_.dims, a_.x.dtype, chunk_);
    g.row_count = &live;
    g.a = lstm_at(a_.x, rows.first * a_.dims.input);
    g.b = a_.weights[d].w.data;
    g.c = space_.direction[d].pre;
    g.bias = a_.weights[d].b;
    g.packed_b = a_.packed[d].w;
    lstm_set_gemm_workspace(g, space_);
    rondo::run(context_, g);
    loop_.direction[d].pre = space_.direction[d].pre;
    loop_.direction[d].pre_row = rows.first;
  }

  void final_states(int d) const {
    const int64_t N = a_.layout.capacity.sequences, stride = lstm_state_stride(P);
    for (int64_t n = 0; n < extent_.sequences; ++n) {
      // The parity of the step after a sequence's last one.
      const int64_t parity = (d == 0 ? a_.layout.lengths[n] : extent_.frames) % 2;
      const auto& s = space_.direction[d];
      if (a_.hn) {
        store_state(
            a_.hn, (d * N + n) * P, P, bf16_states(),
            static_cast<char*>(s.state) +
                static_cast<size_t>((parity * extent_.sequences + n) * stride) * operand_size());
      }
      if (a_.cn) store_state(a_.cn, (d * N + n) * H, H, false, s.c + n * H);
    }
  }

  const LstmKernels& kernels_;
  const Context& context_;
  const LstmForwardArgs& a_;
  const PackedExtent& extent_ = *a_.layout.extent;
  const int D = a_.dims.directions;
  const int begin_ = lstm_first_direction(a_.run), end_ = lstm_end_direction(a_.dims, a_.run);
  const int64_t H = a_.dims.hidden, P = a_.dims.output();
  const int64_t chunk_ = lstm_chunk_rows(a_.dims, a_.layout.capacity);
  LstmCrew crew_;
  const bool alone_ = works_alone(crew_, context_, a_.dims);
  LstmForwardSpace space_;
  LstmForwardLoop loop_;
};

// ---- backward ----

class BackwardCall {
 public:
  BackwardCall(const LstmKernels& kernels, const Context& context, const LstmBackwardArgs& args,
               Carver& carver)
      : kernels_(kernels),
        context_(context),
        a_(args),
        crew_(team_problem(kernels, args.dims, args.run, extent_), args.layout.lengths,
              context.pool->size()),
        space_(carver, context, args.dims, args.dy.dtype, args.layout.capacity) {
    loop_.shape = loop_shape(a_.dims, a_.run, a_.layout);
    loop_.shape.team = crew_.team();
  }

  void run() {
    for (int d = begin_; d < end_; ++d) prepare(d);
    const int64_t frames = extent_.frames;
    const int32_t* offsets = a_.layout.row_offsets;
    for (int64_t begin = 0, end = 0; begin < frames; begin = end) {
      end = begin + 1;
      while (end < frames && offsets[frames - begin] - offsets[frames - end - 1] <= chunk_) ++end;
      loop_.begin = begin;
      loop_.end = end;
      context_.pool->run([&](int worker) { run_loop(worker); }, crew_.threads());
      // While the chunk's dgates are in the cache.
      if (a_.dx && a_.run == LstmRun::both)
        input_gradients(0, offsets[frames - end], offsets[frames - begin]);
    }
    // The second direction's part is added last whatever the batch, so that bf16 is rounded alike.
    if (a_.dx && a_.run != LstmRun::both) input_gradients(0, 0, extent_.rows);
    if (a_.dx && D == 2) input_gradients(1, 0, extent_.rows);
    final_gradients();
  }

 private:
  void prepare(int d) {
    const auto& s = space_.direction[d];
    auto& l = loop_.direction[d];
    const int64_t N = a_.layout.capacity.sequences, rows = a_.layout.capacity.rows;
    const int64_t live = extent_.sequences;
    if (!alone_) pack(context_, kernels_, recurrent_matrix(d, s.r));
    if (a_.dims.projection) {
      pack(context_, kernels_, {a_.weights[d].p.data, H, P, 1, H, false, s.p});
      std::memset(s.dp, 0, static_cast<size_t>(live * lstm_state_stride(P)) * 4);
    }
    load_state(a_.dhn, d * N * P, live, P, false, P, s.dh);
    load_state(a_.dcn, d * N * H, live, H, false, H, s.dc);
    l.r = s.r, l.p = s.p;
    l.dh = s.dh, l.dc = s.dc, l.dz = s.dz, l.dp = s.dp;
    l.gates = lstm_at(a_.gates, d * rows * 4 * H);
    l.cells = reinterpret_cast<const float*>(lstm_at(a_.cells, d * rows * H));
    l.c0 = reinterpret_cast<const float*>(lstm_at(a_.c0, d * N * H));
    l.dy = lstm_at(a_.dy, d * P);
    l.dgates = lstm_at_mutable(a_.dgates, d * rows * 4 * H);
    l.dprojected = lstm_at_mutable(a_.dprojected, d * rows * P);
    loop_.y_stride = D * P;
  }

  LstmMatrix recurrent_matrix(int d, void* packed) const {
    return {a_.weights[d].r.data, P, 4 * H, 1, P, false, packed};
  }

  // Steps [loop_.begin, loop_.end); alone, with a packed R of one's own.
  void run_loop(int worker) {
    if (!alone_) return kernels_.backward(loop_, worker);
    LstmBackwardLoop loop = loop_;
    const LstmTeam& team = crew_.team();
    for (int d = begin_; d < end_; ++d) {
      if (team.directions_apart && d != begin_ + worker / team.splits) continue;
      const LstmMatrix r = recurrent_matrix(d, space_.own_r[worker][d]);
      if (loop.begin == 0) kernels_.pack(r, 0, kernels_.panels(r));
      loop.direction[d].r = r.packed;
    }
    kernels_.backward(loop, worker);
  }

  // dx of rows [first, last). With bf16 and two directions the first one's part is rounded on the
  // way.
  void input_gradients(int d, int64_t first, int64_t last) {
    const auto count = static_cast<int32_t>(last - first);
    GemmArgs g = lstm_input_gradient(a_.dims, a_.dy.dtype, a_.layout.capacity.rows);
    g.row_count = &count;
    g.a = lstm_at(a_.dgates, (d * a_.layout.capacity.rows + first) * 4 * H);
    g.b = a_.weights[d].w.data;
    g.c = lstm_at_mutable(a_.dx, first * a_.dims.input);
    g.beta = d == 0 ? 0 : 1;
    lstm_set_gemm_workspace(g, space_);
    rondo::run(context_, g);
  }

  void final_gradients() const {
    const int64_t N = a_.layout.capacity.sequences;
    for (int d = begin_; d < end_; ++d) {
      for (int64_t n = 0; n < extent_.sequences; ++n) {
        const auto& s = space_.direction[d];
        if (a_.dh0) store_state(a_.dh0, (d * N + n) * P, P, false, s.dh + n * P);
        if (a_.dc0) store_state(a_.dc0, (d * N + n) * H, H, false, s.dc + n * H);
      }
    }
  }

  const LstmKernels& kernels_;
  const Context& context_;
  const LstmBackwardArgs& a_;
  const PackedExtent& extent_ = *a_.layout.extent;
  const int D = a_.dims.directions;
  const int begin_ = lstm_first_direction(a_.run), end_ = lstm_end_direction(a_.dims, a_.run);
  const int64_t H = a_.dims.hidden, P = a_.dims.output();
  const int64_t chunk_ = lstm_chunk_rows(a_.dims, a_.layout.capacity);
  LstmCrew crew_;
  const bool alone_ = works_alone(crew_, context_, a_.dims);
  LstmBackwardSpace space_;
  LstmBackwardLoop loop_;
};

}  // namespace

void lstm_forward_cpu(const LstmCpu& cpu, const Context& context, const LstmForwardArgs& args) {
  check_lstm(args);
  Carver carver(args.workspace.data);
  ForwardCall call(*cpu.of(args.x.dtype, args.dims), context, args, carver);
  lstm_check_workspace(args.workspace, carver.used());
  call.run();
}

void lstm_backward_cpu(const LstmCpu& cpu, const Context& context, const LstmBackwardArgs& args) {
  check_lstm(args);
  Carver carver(args.workspace.data);
  BackwardCall call(*cpu.of(args.dy.dtype, args.dims), context, args, carver);
  lstm_check_workspace(args.workspace, carver.used());
  call.run();
}

size_t lstm_cpu_workspace_bytes(const Context& context, LstmPhase phase, const LstmDims& dims,
                                DType compute, const PackedCapacity& capacity) {
  if (phase == LstmPhase::weight_grad) {
    return lstm_weight_grad_workspace_bytes(context, dims, compute, capacity);
  }
  Carver carver(nullptr);
  if (phase == LstmPhase::forward) {
    LstmForwardSpace(carver, context, dims, compute, capacity);
  } else {
    LstmBackwardSpace(carver, context, dims, compute, capacity);
  }
  return carver.used();
}

}  // namespace rondo
