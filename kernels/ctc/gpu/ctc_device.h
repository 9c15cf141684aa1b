// What the GPU kernels of ctc read and write. For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/ctc_gpu.h"
#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr unsigned all_lanes = 0xffffffffu;

// Whether an emission e^x is neither a normal number of f32 nor so small that it may be 0 instead:
// below 2^-lost_bits, where alpha's floor makes up for it (ctc_tile_gpu.h).
constexpr int lost_bits = 254;
__device__ inline bool is_faint(float x) { return x < -87.3f && x > -0.694f * lost_bits; }

template <class T>
__device__ T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
__device__ T larger(T a, T b) {
  return a < b ? b : a;
}

template <class T>
struct Problem {
  PackedView layout;
  const int32_t *labels, *label_offsets;
  const T* logits;
  T* grad;
  const float* grad_scale;
  float* loss;
  int64_t classes;
  int32_t blank;
  bool log_probabilities, zero_infinity;
  bool aligned;  // 16-byte accesses are possible
  CtcGpuWorkspace work;

  explicit Problem(const CtcArgs& a, CtcGpuParts parts = CtcGpuParts::all)
      : layout(a.layout),
        labels(a.labels),
        label_offsets(a.label_offsets),
        logits(a.logits.as<T>()),
        grad(a.grad.as<T>()),
        grad_scale(a.grad_scale.as<float>()),
        loss(a.loss.as<float>()),
        classes(a.logits.dim(1)),
        blank(a.blank),
        log_probabilities(a.input == CtcInput::log_softmax),
        zero_infinity(a.zero_infinity),
        aligned((reinterpret_cast<uintptr_t>(a.logits.data) |
                 reinterpret_cast<uintptr_t>(a.grad.data)) %
                    16 ==
                0),
        work(a.layout.capacity, a.max_label_length, static_cast<bool>(a.grad), a.lattice_limit,
             parts) {
    RONDO_CHECK(a.workspace.bytes() >= work.bytes, "ctc: the workspace has ", a.workspace.bytes(),
                " bytes, needs ", work.bytes);
    work.place(static_cast<std::byte*>(a.workspace.data));
    // The order in which a row is added up must not depend on where it lies: chunks of a sequence
    // give the bits of the whole.
    if (parts == CtcGpuParts::log_space)
      aligned = aligned && classes * static_cast<int64_t>(sizeof(T)) % 16 == 0;
  }

  __device__ const int32_t* labels_of(int64_t n) const { return labels + label_offsets[n]; }
  __device__ int32_t label_count(int64_t n) const {
    return label_offsets[n + 1] - label_offsets[n];
  }
  __device__ float impossible_loss() const { return zero_infinity ? 0.0f : INFINITY; }
};

// The address of a row's part of an array: one product of 32-bit numbers.
template <class T>
__device__ T* in_row(T* base, int32_t row, uint32_t row_bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(base) +
                              static_cast<uint64_t>(static_cast<uint32_t>(row)) * row_bytes);
}

// 16 bytes of a row.
template <class T>
struct alignas(16) Packet {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

// Elements [begin, end) of an array, dealt to `team` threads: aligned packets, `batch` of them at
// once so that their loads are in flight together, and single elements at both ends.
// packets(first index, stride, valid) and single(index).
template <class T, int batch, class Packets, class Single>
__device__ void deal(int64_t begin, int64_t end, bool aligned, int rank, int team, Packets packets,
                     Single single) {
  constexpr int64_t size = Packet<T>::size;
  const int64_t first = aligned ? smaller((begin + size - 1) / size * size, end) : end;
  const int64_t last = first + (end - first) / size * size;
  for (int64_t i = begin + rank; i < first; i += team) single(i);
  const int64_t stride = team * size;
  for (int64_t i = first + rank * size; i < last; i += stride * batch) {
    packets(i, stride, static_cast<int>(smaller<int64_t>((last - i + stride - 1) / stride, batch)));
  }
  for (int64_t i = last + rank; i < end; i += team) single(i);
}

}  // namespace
}  // namespace rondo::RONDO_GPU
