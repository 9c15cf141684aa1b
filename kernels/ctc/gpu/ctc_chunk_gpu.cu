// CTC in chunks of time on GPUs: the walk of the log-space variant (ctc_log_space.h), one block per
// sequence, between two borders. A border's column is log alpha by state, or log beta with the
// emission of the first frame to its right. Bits are those of the whole sequence, because every
// column is made from the one beside it in the same way, whoever has made that.
#include "kernels/ctc/ctc_chunk_impl.h"
#include "kernels/ctc/gpu/ctc_log_space.h"

namespace rondo::RONDO_GPU {
namespace {

// nullptr: absent.
struct Borders {
  const int32_t* total_frames;
  const double *alpha_in, *beta_in;
  double *alpha_out, *beta_out;
  int64_t width;
};

__device__ inline double* column_of(double* border) {
  return border ? border + ctc_border_header : nullptr;
}

template <class T>
struct ChunkSequence {
  const Problem<T>& p;
  LogSequence<T> s;
  const int32_t begin, total;
  const double *alpha_in, *beta_in;
  double *alpha_out, *beta_out;
  const int64_t width;

  __device__ ChunkSequence(const Problem<T>& problem, const Borders& b, int64_t n,
                           LogShared& shared_state)
      : p(problem),
        s(problem, n, problem.layout.lengths[n], shared_state),
        begin(problem.layout.first_frame[n]),
        total(b.total_frames[n]),
        alpha_in(b.alpha_in ? b.alpha_in + n * b.width : nullptr),
        beta_in(b.beta_in ? b.beta_in + n * b.width : nullptr),
        alpha_out(b.alpha_out ? b.alpha_out + n * b.width : nullptr),
        beta_out(b.beta_out ? b.beta_out + n * b.width : nullptr),
        width(b.width) {
    if (begins_left() && alpha_in) s.alpha_before = alpha_in + ctc_border_header;
    if (goes_on() && beta_in) s.beta_after = beta_in + ctc_border_header;
  }

  __device__ bool begins_left() const { return begin > 0; }
  __device__ bool goes_on() const { return begin + s.frames < total; }
  __device__ bool feasible() const { return total > 0 && total >= s.needed_frames(); }

  // What no caller may ask for, and the host cannot see.
  __device__ bool broken() const {
    return begin < 0 || s.frames < 0 || begin + s.frames > total || (begins_left() && !alpha_in);
  }

  __device__ static CtcBorderHeader header_of(const double* border) {
    CtcBorderHeader header;
    if (border) header = *reinterpret_cast<const CtcBorderHeader*>(border);
    return header;
  }
  __device__ static void write_header(const CtcBorderHeader& header, double* border) {
    if (border && threadIdx.x == 0) *reinterpret_cast<CtcBorderHeader*>(border) = header;
  }
  // A border from another, or cleared.
  __device__ void pass_on(const double* from, double* to) const {
    if (!to) return;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = from ? from[i] : 0.0;
  }
  // What of a border's column the sequence does not use.
  __device__ void clear_rest(double* border) const {
    if (!border) return;
    for (int64_t i = ctc_border_header + s.states + threadIdx.x; i < width; i += blockDim.x) {
      border[i] = 0;
    }
  }

  __device__ void alpha() {
    if (!broken() && (!feasible() || s.frames == 0)) {
      pass_on(feasible() && begins_left() && goes_on() ? alpha_in : nullptr, alpha_out);
      return;
    }
    CtcBorderHeader header = forward_header();
    if (header.kind == CtcBorderHeader::finite) {
      s.forward(column_of(alpha_out));
      clear_rest(alpha_out);
    } else {
      pass_on(nullptr, alpha_out);
      __syncthreads();
    }
    write_header(header, alpha_out);
  }

  // The sequence's loss as far as this chunk knows it. The gradient is written.
  __device__ float gradient(float scale) {
    if (broken() || (goes_on() && s.frames > 0 && !beta_in)) {
      CtcBorderHeader header;
      header.kind = CtcBorderHeader::not_a_number;
      return end_without_gradient(header);
    }
    if (!feasible() || s.frames == 0) return without_lattice();
    CtcBorderHeader header = goes_on() ? header_of(beta_in) : forward_header();
    if (header.kind != CtcBorderHeader::finite) return end_without_gradient(header);
    const double* last = s.forward(nullptr);
    if (!goes_on()) {
      header.total = s.log_total(last);
      header.loss = -header.total;
      if (header.total == minus_infinity()) {
        header.kind = CtcBorderHeader::impossible;
        return end_without_gradient(header);
      }
    }
    s.backward(header.total, double{scale}, column_of(beta_out));
    clear_rest(beta_out);
    write_header(header, beta_out);
    return loss_of(header);
  }

 private:
  // alpha's: whether a row that counts is no number, here or further left. For all threads alike.
  __device__ CtcBorderHeader forward_header() {
    CtcBorderHeader header;
    header.kind = broken() || header_of(begins_left() ? alpha_in : nullptr).kind ==
                                  CtcBorderHeader::not_a_number
                      ? CtcBorderHeader::not_a_number
                      : CtcBorderHeader::finite;
    if (header.kind == CtcBorderHeader::finite && s.any_bad()) {
      header.kind = CtcBorderHeader::not_a_number;
    }
    return header;
  }

  __device__ float loss_of(const CtcBorderHeader& header) const {
    if (header.kind == CtcBorderHeader::finite) return static_cast<float>(header.loss);
    return header.kind == CtcBorderHeader::not_a_number ? NAN : p.impossible_loss();
  }

  __device__ float end_without_gradient(const CtcBorderHeader& header) const {
    s.fill_grad(header.kind == CtcBorderHeader::impossible ? 0 : NAN);
    pass_on(nullptr, beta_out);
    __syncthreads();
    write_header(header, beta_out);
    return loss_of(header);
  }

  // No frame here, or no alignment of the whole.
  __device__ float without_lattice() const {
    s.fill_grad(0);
    const bool passes = feasible() && goes_on();
    pass_on(passes ? beta_in : nullptr, beta_out);
    if (passes) return beta_in ? loss_of(header_of(beta_in)) : NAN;
    const bool counts = s.frames > 0 || goes_on() || total == 0;
    const bool nothing = total == 0 && s.labels == 0;
    return feasible() || !counts || nothing ? 0 : p.impossible_loss();
  }
};

template <class T>
__global__ void __launch_bounds__(log_space_threads, 1) chunk_alpha(Problem<T> p, Borders b) {
  LogShared& s = shared<LogShared>();
  const int64_t n = blockIdx.x;
  if (n < p.layout.extent->sequences) ChunkSequence<T>(p, b, n, s).alpha();
}

template <class T>
__global__ void __launch_bounds__(log_space_threads, 1) chunk_grad(Problem<T> p, Borders b) {
  LogShared& s = shared<LogShared>();
  const int64_t n = blockIdx.x;
  float loss = 0;
  if (n < p.layout.extent->sequences) {
    loss = ChunkSequence<T>(p, b, n, s).gradient(p.grad_scale ? p.grad_scale[n] : 1.0f);
  }
  if (p.loss && threadIdx.x == 0) p.loss[n] = loss;
}

// What the whole-sequence kernels read.
CtcArgs whole_args(const CtcChunk& a) {
  CtcArgs whole;
  whole.layout = a.layout;
  whole.logits = a.logits;
  whole.labels = a.labels;
  whole.label_offsets = a.label_offsets;
  whole.max_label_length = a.max_label_length;
  whole.blank = a.blank;
  whole.input = a.input;
  whole.workspace = a.workspace;
  return whole;
}

template <class T>
void run_chunk(const Context& context, const char* name, const CtcArgs& whole, const Borders& b,
               void (*kernel)(Problem<T>, Borders)) {
  const Problem<T> p(whole, CtcGpuParts::log_space);
  if (p.layout.capacity.sequences == 0) return;
  ctc_prepare_log_space(context, whole);
  launch(context,
         {.kernel = name,
          .grid = {static_cast<unsigned>(p.layout.capacity.sequences)},
          .block = {log_space_block(p)},
          .shared_bytes = sizeof(LogShared)},
         kernel, p, b);
}

}  // namespace

void ctc_chunk_alpha(const Context& context, const CtcChunkAlphaArgs& a) {
  check_ctc_chunk_shapes(a);
  const CtcArgs whole = whole_args(a);
  const Borders b{a.total_frames, a.alpha_in.as<double>(), nullptr, a.alpha_out.as<double>(),
                  nullptr,        a.alpha_out.dim(1)};
  constexpr const char* name = "ctc chunk alpha";
  a.logits.dtype == DType::f32 ? run_chunk(context, name, whole, b, chunk_alpha<float>)
                               : run_chunk(context, name, whole, b, chunk_alpha<bf16>);
}

void ctc_chunk_grad(const Context& context, const CtcChunkGradArgs& a) {
  check_ctc_chunk_shapes(a);
  CtcArgs whole = whole_args(a);
  whole.zero_infinity = a.zero_infinity;
  whole.grad_scale = a.grad_scale;
  whole.loss = a.loss;
  whole.grad = a.grad;
  const Borders b{a.total_frames, a.alpha_in.as<double>(), a.beta_in.as<double>(),
                  nullptr,        a.beta_out.as<double>(), ctc_border_width(a.max_label_length)};
  constexpr const char* name = "ctc chunk grad";
  a.logits.dtype == DType::f32 ? run_chunk(context, name, whole, b, chunk_grad<float>)
                               : run_chunk(context, name, whole, b, chunk_grad<bf16>);
}

}  // namespace rondo::RONDO_GPU
