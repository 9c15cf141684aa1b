// The passes over rows of the GPU variants: softmax statistics and emissions before the lattice,
// the gradient after it. Bound by memory: the logits are read once by each, the gradient is
// written once. Up to 64 classes have passes of their own: ctc_few_classes_gpu.h. For the *.cu
// files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_few_classes_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// The running maximum and sum of exp(x - maximum).
struct RunningSoftmax {
  float top = -INFINITY, sum = 0;

  template <int n>
  __device__ void add(const float (&x)[n]) {
    float highest = top;
    for (int i = 0; i < n; ++i) highest = fmaxf(highest, x[i]);
    const float shift = highest == -INFINITY ? 0 : highest;
    sum *= expf(top - shift);
    for (int i = 0; i < n; ++i) sum += expf(x[i] - shift);
    top = highest;
  }
  __device__ void add(float other_top, float other_sum) {
    const float highest = fmaxf(top, other_top);
    const float shift = highest == -INFINITY ? 0 : highest;
    sum = sum * expf(top - shift) + other_sum * expf(other_top - shift);
    top = highest;
  }
};

template <class T>
__device__ RunningSoftmax softmax_of_row(const Problem<T>& p, int64_t row, int rank, int team) {
  constexpr int size = Packet<T>::size, batch = 4;
  RunningSoftmax s;
  const auto packets = [&](int64_t i, int64_t stride, int valid) {
    float x[batch * size];
    for (int k = 0; k < batch; ++k) {
      if (k < valid) {
        const auto packet = *reinterpret_cast<const Packet<T>*>(p.logits + i + k * stride);
        for (int j = 0; j < size; ++j) x[k * size + j] = to_float(packet.at[j]);
      } else {
        for (int j = 0; j < size; ++j) x[k * size + j] = -INFINITY;
      }
    }
    s.add(x);
  };
  const auto single = [&](int64_t i) {
    const float x[1] = {to_float(p.logits[i])};
    s.add(x);
  };
  deal<T, batch>(row * p.classes, (row + 1) * p.classes, p.aligned, rank, team, packets, single);
  return s;
}

// Padded batches (ctc_padded.h) have rows past their sequences' lengths; packed ones have not.
template <class T>
__device__ bool row_exists(const Problem<T>& p, int64_t row) {
  const int32_t t = p.layout.row_frame[row];
  return t < p.layout.lengths[row - p.layout.row_offsets[t]];
}

// What the lattice needs to know of one row. All lanes of the warp share it.
template <class T>
__device__ void prepare_row(const Problem<T>& p, int64_t row, int rank, bool fast) {
  constexpr int team = 32;
  const bool active = row < p.layout.extent->rows && row_exists(p, row);
  RunningSoftmax s;
  if (active && !p.log_probabilities) s = softmax_of_row(p, row, rank, team);
  for (int d = team / 2; d > 0; d /= 2) {
    const float top = __shfl_xor_sync(all_lanes, s.top, d);
    const float sum = __shfl_xor_sync(all_lanes, s.sum, d);
    s.add(top, sum);
  }
  if (active && rank == 0) p.work.softmax[row] = {s.top, s.sum};
  if (!fast) return;

  const int64_t n = active ? row - p.layout.row_offsets[p.layout.row_frame[row]] : 0;
  const int32_t count = active ? p.label_count(n) : 0;
  const int32_t* label = p.labels_of(n);
  const T* x = p.logits + row * p.classes;
  const float blank = active ? to_float(x[p.blank]) : 0;
  float best = blank;
  bool bad = !(blank < INFINITY);
  for (int32_t i = rank; i < count; i += team) {
    const float value = to_float(x[label[i]]);
    best = fmaxf(best, value);
    bad |= !(value < INFINITY);
  }
  for (int d = team / 2; d > 0; d /= 2) best = fmaxf(best, __shfl_xor_sync(all_lanes, best, d));
  bad |= is_faint(blank - best);
  float* y = p.grad ? p.work.label_emission + row * p.work.emission_stride : nullptr;
  const int64_t end = active && p.grad ? p.work.emission_stride : count;
  for (int32_t i = rank; i < end; i += team) {
    const float log_y = i < count ? to_float(x[label[i]]) - best : -INFINITY;
    bad |= is_faint(log_y);
    if (y) y[i] = expf(log_y);
  }
  for (int d = team / 2; d > 0; d /= 2) {
    bad |= __shfl_xor_sync(all_lanes, static_cast<int>(bad), d) != 0;
  }
  if (!active || rank != 0) return;
  if (!p.log_probabilities) bad |= !(s.sum < INFINITY) || !(s.sum > 0);
  const float log_best = p.log_probabilities ? best : best - s.top - logf(s.sum);
  p.work.emission[row] = {bad ? NAN : expf(blank - best), best, log_best, 0};
}

// The first blocks group labels, the others take rows.
template <class T>
__global__ void __launch_bounds__(row_threads, 4)
    prepare(Problem<T> p, unsigned groups, bool fast) {
  GroupShared& s = shared<GroupShared>();
  if (blockIdx.x < groups) {
    if (static_cast<int>(blockIdx.x) < p.layout.extent->sequences) group_labels(p, blockIdx.x, s);
    return;
  }
  const int64_t row = int64_t{blockIdx.x - groups} * (row_threads / 32) + threadIdx.x / 32;
  prepare_row(p, row, static_cast<int>(threadIdx.x % 32), fast);
}

// ---- gradient ----

// What threads that share a row hold at once.
template <int team>
struct GradientShape {
  static constexpr int tile = team == 32 ? 512 : 8192;  // classes
  static constexpr int pieces = team == 32 ? 512 : 1024;
};
template <int team>
struct GradientShared {
  struct Row {
    float piece[GradientShape<team>::pieces];
    float posterior[GradientShape<team>::tile];  // of the tile's classes
  };
  Row rows[row_threads / team];
};

template <int team>
__device__ void sync_team() {
  if constexpr (team > 32) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

// One row of the gradient. Threads of inactive rows come along for the barriers.
template <class T, int team>
struct RowGradient {
  const Problem<T>& p;
  const int64_t row, n;
  const int rank;
  const bool active;
  typename GradientShared<team>::Row& s;
  static constexpr bool at_once = team <= 32;

  __device__ void run() {
    const bool wanted = active && p.work.state[n] == CtcState::fine && row_exists(p, row);
    if constexpr (at_once) {
      classes(0, p.classes, wanted);
    } else {
      constexpr int64_t tile = GradientShape<team>::tile;
      for (int64_t begin = 0; begin < p.classes; begin += tile) {
        classes(begin, smaller(begin + tile, p.classes), wanted);
        sync_team<team>();
      }
    }
  }

 private:
  __device__ void classes(int64_t begin, int64_t end, bool wanted) {
    for (int64_t v = rank; v < end - begin; v += team) s.posterior[v] = 0;
    gather(wanted, begin, end);
    if (wanted) {
      write(begin, end);
    } else if (active) {
      for (int64_t v = begin + rank; v < end; v += team) p.grad[row * p.classes + v] = to<T>(0.0f);
    }
  }

  // Posteriors of the classes [begin, end). Rows by a warp or less fit at once; others take some
  // pieces at a time.
  __device__ void gather(bool wanted, int64_t begin, int64_t end) {
    constexpr int32_t most = GradientShape<team>::pieces;
    const int32_t pieces = wanted ? p.work.pieces[n] : 0;
    const int32_t rounds = at_once ? 1 : larger((p.work.max_labels + most - 1) / most, 1);
    for (int32_t i = 0; i < rounds; ++i) {
      const int32_t from = at_once ? 0 : i * most;
      const int32_t to = at_once ? pieces : smaller(from + most, pieces);
      sum_pieces(from, to, begin, end);
      sync_team<team>();
      add_pieces(from, to, begin, end);
      sync_team<team>();
    }
    if (wanted && rank == 0 && p.blank >= begin && p.blank < end) {
      s.posterior[p.blank - begin] = p.work.posterior[row].blank;
    }
    sync_team<team>();
  }

  __device__ void sum_pieces(int32_t from, int32_t to, int64_t begin, int64_t end) {
    const float* posterior = p.work.label_emission + row * p.work.emission_stride;
    const int32_t* order = p.work.order + n * p.work.max_labels;
    const int32_t* start = p.work.piece_begin + n * (p.work.max_labels + 1);
    const int32_t* piece_class = p.work.piece_class + n * p.work.max_labels;
    for (int32_t k = from + rank; k < to; k += team) {
      if (!at_once && (piece_class[k] < begin || piece_class[k] >= end)) continue;
      float sum = 0;
      RONDO_UNROLL(2)  // registers are short
      for (int32_t j = start[k]; j < start[k + 1]; ++j) sum += posterior[order[j]];
      s.piece[k - from] = sum * p.work.posterior[row].normaliser;
    }
  }

  // A class is added up by the thread of its first piece among these.
  __device__ void add_pieces(int32_t from, int32_t to, int64_t begin, int64_t end) {
    const int32_t* piece_class = p.work.piece_class + n * p.work.max_labels;
    for (int32_t k = from + rank; k < to; k += team) {
      const int32_t v = piece_class[k];
      if (!at_once && (v < begin || v >= end)) continue;
      if (k > from && piece_class[k - 1] == v) continue;
      float sum = s.piece[k - from];
      for (int32_t i = k + 1; i < to && piece_class[i] == v; ++i) sum += s.piece[i - from];
      s.posterior[v - begin] += sum;
    }
  }

  __device__ void write(int64_t begin, int64_t end) {
    constexpr int size = Packet<T>::size, batch = 16 / size;
    const float scale = p.grad_scale ? p.grad_scale[n] : 1.0f;
    const CtcSoftmax softmax = p.work.softmax[row];
    const float top = softmax.top, inverse = 1 / softmax.sum;
    const bool logs = p.log_probabilities;
    const int64_t origin = row * p.classes + begin;
    const auto gradient = [&](float x, int64_t i) {
      return scale * ((logs ? 0.0f : expf(x - top) * inverse) - s.posterior[i - origin]);
    };
    const auto packets = [&](int64_t i, int64_t stride, int valid) {
      Packet<T> packet[batch];
      for (int k = 0; k < batch; ++k) {
        if (k < valid) packet[k] = *reinterpret_cast<const Packet<T>*>(p.logits + i + k * stride);
      }
      for (int k = 0; k < batch; ++k) {
        if (k >= valid) break;
        const int64_t at = i + k * stride;
        for (int j = 0; j < size; ++j) {
          packet[k].at[j] = to<T>(gradient(to_float(packet[k].at[j]), at + j));
        }
        *reinterpret_cast<Packet<T>*>(p.grad + at) = packet[k];
      }
    };
    const auto single = [&](int64_t i) { p.grad[i] = to<T>(gradient(to_float(p.logits[i]), i)); };
    deal<T, batch>(origin, row * p.classes + end, p.aligned, rank, team, packets, single);
  }
};

template <class T, int team>
__global__ void __launch_bounds__(row_threads, 4) write_gradient(Problem<T> p) {
  auto& s = shared<GradientShared<team>>();
  constexpr int rows = row_threads / team;
  const int64_t row = int64_t{blockIdx.x} * rows + threadIdx.x / team;
  bool active = row < p.layout.extent->rows;
  const int64_t n = active ? row - p.layout.row_offsets[p.layout.row_frame[row]] : 0;
  // What log space leaves out are the rows past a sequence's length.
  active = active && (p.work.state[n] != CtcState::log_space || !row_exists(p, row));
  RowGradient<T, team>{
      p, row, n, static_cast<int>(threadIdx.x % team), active, s.rows[threadIdx.x / team]}
      .run();
}

// ---- launches ----

template <class T>
void launch_prepare(const Context& context, const Problem<T>& p, bool fast) {
  const auto groups = p.grad ? static_cast<unsigned>(p.layout.capacity.sequences) : 0u;
  if (p.layout.capacity.rows == 0) return;
  if (has_few_classes(p)) return launch_prepare_few(context, p, groups, fast);
  launch(context,
         {.kernel = "ctc prepare",
          .grid = {groups + blocks_for(p.layout.capacity.rows, row_threads / 32)},
          .block = {row_threads},
          .shared_bytes = sizeof(GroupShared)},
         prepare<T>, p, groups, fast);
}

template <class T>
void launch_gradient(const Context& context, const Problem<T>& p) {
  if (p.layout.capacity.rows == 0) return;
  const auto go = [&]<int team>(void (*kernel)(Problem<T>), std::integral_constant<int, team>) {
    launch(context,
           {.kernel = "ctc gradient",
            .grid = {blocks_for(p.layout.capacity.rows, row_threads / team)},
            .block = {row_threads},
            .shared_bytes = sizeof(GradientShared<team>)},
           kernel, p);
  };
  const auto fits = [&]<int team>(std::integral_constant<int, team>) {
    return p.classes <= GradientShape<team>::tile &&
           p.work.max_labels <= GradientShape<team>::pieces;
  };
  if (has_few_classes(p)) {
    launch_gradient_few(context, p);
  } else if (fits(std::integral_constant<int, 32>{})) {
    go(write_gradient<T, 32>, std::integral_constant<int, 32>{});
  } else {
    go(write_gradient<T, row_threads>, std::integral_constant<int, row_threads>{});
  }
}

}  // namespace
}  // namespace rondo::RONDO_GPU
