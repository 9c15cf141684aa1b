// The portable CTC variant: one block per sequence, the lattices in log space in f64, alpha kept
// for every frame, beta walked back while the gradient is written. Right for any label length and
// any logits; every sum has a fixed order, so it is deterministic.
//
// Notation as in Graves et al. 2006: states s = 0..2L, blanks at the even ones.
#include "kernels/ctc/ctc_gpu.h"
#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr unsigned all_lanes = 0xffffffffu;

__device__ double minus_infinity() { return -INFINITY; }

__device__ double log_add(double a, double b) {
  if (a == minus_infinity()) return b;
  if (b == minus_infinity()) return a;
  return fmax(a, b) + log1p(exp(-fabs(a - b)));
}

template <class T>
struct Problem {
  PackedView layout;
  const int32_t *labels, *label_offsets;
  const T* logits;
  T* grad;
  const float* grad_scale;
  float* loss;
  int64_t classes, max_states;
  int32_t blank;
  bool log_probabilities, zero_infinity;
  CtcGpuWorkspace work;

  explicit Problem(const CtcArgs& a)
      : layout(a.layout),
        labels(a.labels),
        label_offsets(a.label_offsets),
        logits(a.logits.as<T>()),
        grad(a.grad.as<T>()),
        grad_scale(a.grad_scale.as<float>()),
        loss(a.loss.as<float>()),
        classes(a.logits.dim(1)),
        max_states(2 * int64_t{a.max_label_length} + 1),
        blank(a.blank),
        log_probabilities(a.input == CtcInput::log_softmax),
        zero_infinity(a.zero_infinity),
        work(a.layout.capacity, classes, a.max_label_length, static_cast<bool>(a.grad)) {
    work.place(static_cast<std::byte*>(a.workspace.data));
  }
};

// work.normaliser[row] = log-sum-exp of the row, one warp per row; NaN for +inf and NaN logits.
template <class T>
__global__ void normalise(Problem<T> p) {
  const int64_t row = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= p.layout.extent->rows) return;
  const T* x = p.logits + row * p.classes;
  const int64_t lane = threadIdx.x % 32;
  float top = -INFINITY;
  for (int64_t v = lane; v < p.classes; v += 32) top = fmaxf(top, to_float(x[v]));
  for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(all_lanes, top, d));
  double sum = 0;
  for (int64_t v = lane; v < p.classes; v += 32) sum += exp(double{to_float(x[v])} - double{top});
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(all_lanes, sum, d);
  if (lane == 0) p.work.normaliser[row] = double{top} + log(sum);
}

struct Shared {
  int bad;
  double blank_posterior;
};

// One sequence, by one block. Threads share the states; sync() separates the frames.
template <class T>
struct Sequence {
  const Problem<T>& p;
  const int64_t n, frames, labels, states;
  const int32_t* label;
  Shared& shared_state;

  __device__ Sequence(const Problem<T>& problem, int64_t sequence, int64_t length, Shared& s)
      : p(problem),
        n(sequence),
        frames(length),
        labels(problem.label_offsets[sequence + 1] - problem.label_offsets[sequence]),
        states(2 * labels + 1),
        label(problem.labels + problem.label_offsets[sequence]),
        shared_state(s) {}

  __device__ int64_t row(int64_t t) const { return p.layout.row_offsets[t] + n; }
  __device__ int32_t class_of(int64_t s) const { return s % 2 == 0 ? p.blank : label[s / 2]; }
  __device__ double log_probability(int64_t t, int64_t v) const {
    const double x = to_float(p.logits[row(t) * p.classes + v]);
    return p.log_probabilities ? x : x - p.work.normaliser[row(t)];
  }
  // From s to s + 2: between two labels that differ.
  __device__ bool may_skip(int64_t s) const {
    return s % 2 == 1 && label[s / 2] != label[s / 2 + 1];
  }
  __device__ double* alpha(int64_t t) const {
    return p.grad ? p.work.alpha + row(t) * p.max_states
                  : p.work.alpha + (2 * n + t % 2) * p.max_states;
  }
  __device__ bool feasible() const {
    int64_t needed = labels;
    for (int64_t i = 1; i < labels; ++i) needed += label[i] == label[i - 1];
    return frames >= needed;
  }

  // Whether a column that counts holds NaN or +inf anywhere, for all threads alike.
  __device__ bool any_bad() {
    if (threadIdx.x == 0) shared_state.bad = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < frames * (labels + 1); i += blockDim.x) {
      const int64_t k = i % (labels + 1);
      const double x = log_probability(i / (labels + 1), k < labels ? label[k] : p.blank);
      if (!(x < INFINITY)) atomicExch(&shared_state.bad, 1);
    }
    __syncthreads();
    return shared_state.bad != 0;
  }

  // Fills alpha; log of the total probability.
  __device__ double forward() {
    for (int64_t t = 0; t < frames; ++t) {
      const double* before = t > 0 ? alpha(t - 1) : nullptr;
      double* now = alpha(t);
      for (int64_t s = threadIdx.x; s < states; s += blockDim.x) {
        double sum = minus_infinity();
        if (t == 0) {
          if (s < 2) sum = 0;
        } else {
          sum = before[s];
          if (s >= 1) sum = log_add(sum, before[s - 1]);
          if (s >= 2 && may_skip(s - 2)) sum = log_add(sum, before[s - 2]);
        }
        now[s] = sum + log_probability(t, class_of(s));
      }
      __syncthreads();
    }
    const double* last = alpha(frames - 1);
    return states > 1 ? log_add(last[states - 1], last[states - 2]) : last[0];
  }

  __device__ void fill_grad(float value) {
    for (int64_t t = 0; t < frames; ++t) {
      for (int64_t v = threadIdx.x; v < p.classes; v += blockDim.x) {
        p.grad[row(t) * p.classes + v] = to<T>(value);
      }
    }
  }

  // first[v]: the first label position of class v, next[i]: the next of the same class; -1: none.
  __device__ void group_labels(int32_t* first, int32_t* next) {
    for (int64_t v = threadIdx.x; v < p.classes; v += blockDim.x) first[v] = -1;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int64_t i = labels - 1; i >= 0; --i) {
        next[i] = first[label[i]];
        first[label[i]] = static_cast<int32_t>(i);
      }
    }
    __syncthreads();
  }

  // beta at frame t from `onward` (beta plus emission at t + 1), and the posteriors.
  __device__ void step_back(int64_t t, double log_z, const double* onward, double* onward_now,
                            double* posterior) {
    for (int64_t s = threadIdx.x; s < states; s += blockDim.x) {
      double beta = minus_infinity();
      if (t == frames - 1) {
        if (s >= states - 2) beta = 0;
      } else {
        beta = onward[s];
        if (s + 1 < states) beta = log_add(beta, onward[s + 1]);
        if (s + 2 < states && may_skip(s)) beta = log_add(beta, onward[s + 2]);
      }
      posterior[s] = exp(alpha(t)[s] + beta - log_z);
      onward_now[s] = beta + log_probability(t, class_of(s));
    }
  }

  // Sum of the blanks' posteriors, by the first warp, into shared memory.
  __device__ void sum_blanks(const double* posterior) {
    if (threadIdx.x >= 32) return;
    double sum = 0;
    for (int64_t s = 2 * int64_t{threadIdx.x}; s < states; s += 64) sum += posterior[s];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(all_lanes, sum, d);
    if (threadIdx.x == 0) shared_state.blank_posterior = sum;
  }

  // Walks back from the last frame. A row of logits may be overwritten by its gradient: it is read
  // for the last time just before, by the thread that writes.
  __device__ void backward(double log_z, double scale) {
    double* onward = p.work.onward + 2 * n * p.max_states;
    double* posterior = p.work.posterior + n * p.max_states;
    int32_t* first = p.work.first + n * p.classes;
    int32_t* next = p.work.next + n * (p.max_states / 2);
    group_labels(first, next);
    for (int64_t t = frames - 1; t >= 0; --t) {
      step_back(t, log_z, onward + (t + 1) % 2 * p.max_states, onward + t % 2 * p.max_states,
                posterior);
      __syncthreads();
      sum_blanks(posterior);
      __syncthreads();
      for (int64_t v = threadIdx.x; v < p.classes; v += blockDim.x) {
        double g = p.log_probabilities ? 0.0 : exp(log_probability(t, v));
        if (v == p.blank) g -= shared_state.blank_posterior;
        for (int32_t i = first[v]; i >= 0; i = next[i]) g -= posterior[2 * i + 1];
        p.grad[row(t) * p.classes + v] = to<T>(static_cast<float>(scale * g));
      }
      __syncthreads();
    }
  }

  // The loss; writes the gradient if wanted.
  __device__ float run(double scale) {
    const float impossible = p.zero_infinity ? 0.0f : INFINITY;
    if (!feasible()) {
      if (p.grad) fill_grad(0);
      return impossible;
    }
    if (frames == 0) return 0;
    if (any_bad()) {
      if (p.grad) fill_grad(NAN);
      return NAN;
    }
    const double log_z = forward();
    if (log_z == minus_infinity()) {
      if (p.grad) fill_grad(0);
      return impossible;
    }
    if (p.grad) backward(log_z, scale);
    return static_cast<float>(-log_z);
  }
};

template <class T>
__global__ void one_sequence(Problem<T> p) {
  Shared& s = shared<Shared>();
  const int64_t n = blockIdx.x;
  float loss = 0;
  if (n < p.layout.extent->sequences) {
    const double scale = p.grad_scale ? p.grad_scale[n] : 1.0;
    loss = Sequence<T>(p, n, p.layout.lengths[n], s).run(scale);
  }
  if (threadIdx.x == 0) p.loss[n] = loss;
}

template <class T>
void run_as(const Context& context, const CtcArgs& a) {
  const Problem<T> p(a);
  const int64_t rows = a.layout.capacity.rows, sequences = a.layout.capacity.sequences;
  constexpr int warps_per_block = 4;
  if (sequences == 0) return;
  if (rows > 0 && !p.log_probabilities) {
    launch(context,
           {.kernel = "ctc normalise",
            .grid = {blocks_for(rows, warps_per_block)},
            .block = {32 * warps_per_block}},
           normalise<T>, p);
  }
  const auto threads = static_cast<unsigned>(
      std::clamp<int64_t>((std::max(p.max_states, p.classes / 8) + 31) / 32 * 32, 32, 256));
  launch(context,
         {.kernel = "ctc one_sequence",
          .grid = {static_cast<unsigned>(sequences)},
          .block = {threads},
          .shared_bytes = sizeof(Shared)},
         one_sequence<T>, p);
}

}  // namespace

void ctc_gpu(const Context& context, const CtcArgs& a) {
  const CtcGpuWorkspace need(a.layout.capacity, a.logits.dim(1), a.max_label_length,
                             static_cast<bool>(a.grad));
  RONDO_CHECK(a.workspace.bytes() >= need.bytes, "ctc: the workspace has ", a.workspace.bytes(),
              " bytes, needs ", need.bytes);
  a.logits.dtype == DType::f32 ? run_as<float>(context, a) : run_as<bf16>(context, a);
}

}  // namespace rondo::RONDO_GPU
