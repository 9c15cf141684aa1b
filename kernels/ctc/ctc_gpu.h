// What the portable GPU variant of ctc shares with its table; for kernels/ctc alone.
#pragma once

#include "kernels/ctc/ctc.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_GPU(ctc_gpu, CtcArgs);

// GPUs take f32 and bf16.
inline bool ctc_gpu_accepts(const Context&, const void* args) {
  return !args || static_cast<const CtcArgs*>(args)->logits.dtype != DType::f64;
}

// The variant's scratch memory: sizes from the capacities, pointers once placed.
struct CtcGpuWorkspace {
  double* normaliser = nullptr;  // [rows]
  double* alpha = nullptr;       // [rows, S], without gradient [N, 2, S]; S = 2 L + 1
  double* onward = nullptr;      // [N, 2, S]
  double* posterior = nullptr;   // [N, S]
  int32_t* first = nullptr;      // [N, V]
  int32_t* next = nullptr;       // [N, L]
  size_t bytes = 0;

  CtcGpuWorkspace(const PackedCapacity& capacity, int64_t classes, int32_t max_labels,
                  bool with_grad)
      : rows_(capacity.rows),
        sequences_(capacity.sequences),
        states_(2 * int64_t{max_labels} + 1),
        classes_(classes),
        with_grad_(with_grad) {
    place(nullptr);
  }

  // `memory` is 8-aligned and holds `bytes`.
  void place(std::byte* memory) {
    bytes = 0;
    const auto part = [&]<class T>(T*& pointer, int64_t count) {
      pointer = memory ? reinterpret_cast<T*>(memory + bytes) : nullptr;
      bytes += static_cast<size_t>(count) * sizeof(T);
    };
    part(normaliser, rows_);
    part(alpha, with_grad_ ? rows_ * states_ : sequences_ * 2 * states_);
    if (!with_grad_) return;
    part(onward, sequences_ * 2 * states_);
    part(posterior, sequences_ * states_);
    part(first, sequences_ * classes_);
    part(next, sequences_ * (states_ / 2));
  }

 private:
  int64_t rows_, sequences_, states_, classes_;
  bool with_grad_;
};

}  // namespace rondo
