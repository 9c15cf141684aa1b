// One sequence by one block, in log space in f64: right for any label length and any logits; every
// sum has a fixed order. alpha is kept at every `block`th frame and made again from there, block by
// block, while beta walks back; the gradient of a frame is written when beta gets there.
// A chunk of a sequence (ctc_chunk_gpu.cu) is the same walk between two borders.
// Notation as in Graves et al. 2006: states s = 0..2L, blanks at the even ones.
// For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_device.h"

namespace rondo::RONDO_GPU {
namespace {

__device__ inline double minus_infinity() { return -INFINITY; }

__device__ inline double log_add(double a, double b) {
  if (a == minus_infinity()) return b;
  if (b == minus_infinity()) return a;
  return fmax(a, b) + log1p(exp(-fabs(a - b)));
}

struct LogShared {
  int bad;
  double blank_posterior;
};

// Threads share the states; __syncthreads() separates the frames.
template <class T>
struct LogSequence {
  const Problem<T>& p;
  const int64_t n, frames, labels, states;
  const int32_t* label;
  double* const memory;  // columns of work.states: checkpoints, block, 2 + 2 + 1 in turn
  LogShared& shared_state;
  // nullptr: the sequence begins, ends with these frames.
  const double* alpha_before = nullptr;  // alpha of the frame before them
  const double* beta_after = nullptr;    // beta of the frame after them, with its emission

  __device__ LogSequence(const Problem<T>& problem, int64_t sequence, int64_t length, LogShared& s)
      : p(problem),
        n(sequence),
        frames(length),
        labels(problem.label_count(sequence)),
        states(2 * labels + 1),
        label(problem.labels_of(sequence)),
        memory(problem.work.checkpoints +
               sequence * problem.work.columns_per_sequence * problem.work.states),
        shared_state(s) {}

  __device__ double* column(int64_t i) const { return memory + i * p.work.states; }
  __device__ double* scratch(int64_t i) const {
    return column(p.grad ? p.work.block_count + p.work.block + i : i);
  }
  __device__ int64_t row(int64_t t) const { return p.layout.row_offsets[t] + n; }
  __device__ int32_t class_of(int64_t s) const { return s % 2 == 0 ? p.blank : label[s / 2]; }
  __device__ double normaliser(int64_t t) const {
    if (p.log_probabilities) return 0;
    const CtcSoftmax softmax = p.work.softmax[row(t)];
    return double{softmax.top} + log(double{softmax.sum});
  }
  __device__ double logit(int64_t t, int64_t v) const {
    return to_float(p.logits[row(t) * p.classes + v]);
  }
  // From s to s + 2: between two labels that differ.
  __device__ bool may_skip(int64_t s) const {
    return s % 2 == 1 && label[s / 2] != label[s / 2 + 1];
  }
  __device__ int64_t needed_frames() const {
    int64_t needed = labels;
    for (int64_t i = 1; i < labels; ++i) needed += label[i] == label[i - 1];
    return needed;
  }

  // Whether a column that counts holds NaN or +inf anywhere, for all threads alike.
  __device__ bool any_bad() {
    if (threadIdx.x == 0) shared_state.bad = 0;
    __syncthreads();
    for (int64_t t = 0; t < frames; ++t) {
      const double shift = normaliser(t);
      for (int64_t k = threadIdx.x; k <= labels; k += blockDim.x) {
        const double x = logit(t, k < labels ? label[k] : p.blank) - shift;
        if (!(x < INFINITY)) atomicExch(&shared_state.bad, 1);
      }
    }
    __syncthreads();
    return shared_state.bad != 0;
  }

  // `before` nullptr: frame t is the first of the sequence.
  __device__ void alpha_step(const double* before, double* now, int64_t t) const {
    const double shift = normaliser(t);
    for (int64_t s = threadIdx.x; s < states; s += blockDim.x) {
      double sum = minus_infinity();
      if (before == nullptr) {
        if (s < 2) sum = 0;
      } else {
        sum = before[s];
        if (s >= 1) sum = log_add(sum, before[s - 1]);
        if (s >= 2 && may_skip(s - 2)) sum = log_add(sum, before[s - 2]);
      }
      now[s] = sum + (logit(t, class_of(s)) - shift);
    }
    __syncthreads();
  }

  // The checkpoints, and alpha of the last frame: into `last` unless that is nullptr.
  __device__ const double* forward(double* last) const {
    const double* before = alpha_before;
    for (int64_t t = 0; t < frames; ++t) {
      double* now = p.grad && t % p.work.block == 0 ? column(t / p.work.block) : scratch(t % 2);
      if (last && t == frames - 1) now = last;
      alpha_step(before, now, t);
      before = now;
    }
    return before;
  }
  // log of the total probability, from alpha of the sequence's last frame.
  __device__ double log_total(const double* last) const {
    return states > 1 ? log_add(last[states - 1], last[states - 2]) : last[0];
  }

  __device__ void fill_grad(float value) const {
    for (int64_t t = 0; t < frames; ++t) {
      for (int64_t v = threadIdx.x; v < p.classes; v += blockDim.x) {
        p.grad[row(t) * p.classes + v] = to<T>(value);
      }
    }
  }

  // beta at frame t from `onward` (beta plus emission at t + 1; nullptr: there is none), and the
  // posteriors.
  __device__ void step_back(int64_t t, double log_z, const double* alpha, const double* onward,
                            double* onward_now, double* posterior) const {
    const double shift = normaliser(t);
    for (int64_t s = threadIdx.x; s < states; s += blockDim.x) {
      double beta = minus_infinity();
      if (onward == nullptr) {
        if (s >= states - 2) beta = 0;
      } else {
        beta = onward[s];
        if (s + 1 < states) beta = log_add(beta, onward[s + 1]);
        if (s + 2 < states && may_skip(s)) beta = log_add(beta, onward[s + 2]);
      }
      posterior[s] = exp(alpha[s] + beta - log_z);
      onward_now[s] = beta + (logit(t, class_of(s)) - shift);
    }
    __syncthreads();
  }

  // Sum of the blanks' posteriors, by the first warp, into shared memory.
  __device__ void sum_blanks(const double* posterior) {
    if (threadIdx.x < 32) {
      double sum = 0;
      for (int64_t s = 2 * int64_t{threadIdx.x}; s < states; s += 64) sum += posterior[s];
      for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(all_lanes, sum, d);
      if (threadIdx.x == 0) shared_state.blank_posterior = sum;
    }
    __syncthreads();
  }

  // The gradient of a row may overwrite its logits: first come the classes that have posteriors,
  // into scratch memory, then all others in place.
  __device__ void write_row(int64_t t, double scale, const double* posterior) const {
    const double shift = normaliser(t);
    T* grad = p.grad + row(t) * p.classes;
    const auto softmax = [&](int64_t v) {
      return p.log_probabilities ? 0.0 : exp(logit(t, v) - shift);
    };
    const int32_t* order = p.work.order + n * p.work.max_labels;
    const int32_t* begin = p.work.piece_begin + n * (p.work.max_labels + 1);
    const int32_t* piece_class = p.work.piece_class + n * p.work.max_labels;
    const int32_t pieces = p.work.pieces[n];
    double* corrected = p.work.corrected + n * (p.work.max_labels + 1);
    const auto for_each_class = [&](auto f) {
      for (int64_t k = threadIdx.x; k < pieces; k += blockDim.x) {
        if (k == 0 || piece_class[k] != piece_class[k - 1]) f(k);
      }
    };
    for_each_class([&](int64_t k) {
      double g = softmax(piece_class[k]);
      for (int64_t i = k; i < pieces && piece_class[i] == piece_class[k]; ++i) {
        for (int32_t j = begin[i]; j < begin[i + 1]; ++j) g -= posterior[2 * order[j] + 1];
      }
      corrected[k] = g;
    });
    if (threadIdx.x == 0) {
      corrected[p.work.max_labels] = softmax(p.blank) - shared_state.blank_posterior;
    }
    __syncthreads();
    for (int64_t v = threadIdx.x; v < p.classes; v += blockDim.x) {
      grad[v] = to<T>(static_cast<float>(scale * softmax(v)));
    }
    __syncthreads();
    for_each_class(
        [&](int64_t k) { grad[piece_class[k]] = to<T>(static_cast<float>(scale * corrected[k])); });
    if (threadIdx.x == 0) {
      grad[p.blank] = to<T>(static_cast<float>(scale * corrected[p.work.max_labels]));
    }
    __syncthreads();
  }

  // From the last frame to the first, a block of alpha at a time. beta of the first, with its
  // emission, goes into `first` unless that is nullptr.
  __device__ void backward(double log_z, double scale, double* first) {
    const int64_t size = p.work.block;
    double* posterior = scratch(4);
    for (int64_t b = (frames - 1) / size; b >= 0; --b) {
      const int64_t begin = b * size, end = smaller(begin + size, frames);
      const auto alpha = [&](int64_t t) {
        return t == begin ? column(b) : column(p.work.block_count + t - begin);
      };
      for (int64_t t = begin + 1; t < end; ++t) alpha_step(alpha(t - 1), alpha(t), t);
      for (int64_t t = end - 1; t >= begin; --t) {
        const double* onward = t == frames - 1 ? beta_after : scratch(2 + (t + 1) % 2);
        double* now = first && t == 0 ? first : scratch(2 + t % 2);
        step_back(t, log_z, alpha(t), onward, now, posterior);
        sum_blanks(posterior);
        write_row(t, scale, posterior);
      }
    }
  }

  // The loss; writes the gradient if wanted.
  __device__ float run(double scale) {
    if (frames < needed_frames()) {
      if (p.grad) fill_grad(0);
      return p.impossible_loss();
    }
    if (frames == 0) return 0;
    if (any_bad()) {
      if (p.grad) fill_grad(NAN);
      return NAN;
    }
    const double log_z = log_total(forward(nullptr));
    if (log_z == minus_infinity()) {
      if (p.grad) fill_grad(0);
      return p.impossible_loss();
    }
    if (p.grad) backward(log_z, scale, nullptr);
    return static_cast<float>(-log_z);
  }
};

constexpr unsigned log_space_threads = 256;

// All sequences, or with `flagged` those the fast lattice has left.
template <class T>
__global__ void __launch_bounds__(log_space_threads, 1) log_space(Problem<T> p, bool flagged) {
  LogShared& s = shared<LogShared>();
  const int64_t n = blockIdx.x;
  if (flagged && p.work.state[n] != CtcState::log_space) return;
  float loss = 0;
  if (n < p.layout.extent->sequences) {
    const double scale = p.grad_scale ? p.grad_scale[n] : 1.0;
    loss = LogSequence<T>(p, n, p.layout.lengths[n], s).run(scale);
  }
  if (threadIdx.x == 0) p.loss[n] = loss;
}

// Threads of a block for the batch's states.
template <class T>
unsigned log_space_block(const Problem<T>& p) {
  const int64_t threads = (p.work.states + 31) / 32 * 32;
  return threads < int64_t{log_space_threads} ? static_cast<unsigned>(threads) : log_space_threads;
}

template <class T>
void launch_log_space(const Context& context, const Problem<T>& p, bool flagged) {
  launch(context,
         {.kernel = "ctc log_space",
          .grid = {static_cast<unsigned>(p.layout.capacity.sequences)},
          .block = {log_space_block(p)},
          .shared_bytes = sizeof(LogShared)},
         log_space<T>, p, flagged);
}

}  // namespace
}  // namespace rondo::RONDO_GPU
