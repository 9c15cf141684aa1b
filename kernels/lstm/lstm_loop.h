// The fused time loops of the CPU variants: what the driver (lstm_cpu.cc) hands to the kernels
// compiled per instruction set (lstm_loop_simd.cc). Plain data, so that both sides agree on it.
//
// One step of one direction is a product of a few rows (the active sequences) with a matrix that
// never changes, followed by element-wise work. The matrix is packed once per call into panels of
// four vectors, [panel][k][4][W]: for the forward pass the four gates of W cells, otherwise 4 W
// adjacent columns. A tile of a few rows times one panel is summed in one order over all of k, so
// that its bits depend on neither the batch around it nor the threads (lstm_tile.h). What one
// thread does is set by an LstmTeam.
#pragma once

#include "kernels/base/cpu/parallel.h"
#include "kernels/lstm/lstm.h"

namespace rondo {

// The widest vector, in floats: sizes everything whose layout depends on W.
inline constexpr int64_t lstm_max_width = 16;

// Elements of a packed matrix with `columns` columns (or cells, of 4 gates each) for sums over k.
[[gnu::always_inline]] constexpr int64_t lstm_packed_elements(int64_t columns, int64_t k,
                                                              bool cells) {
  const int64_t per_panel = cells ? lstm_max_width : 4 * lstm_max_width;
  // Whole tiles of 16 pairs, for AMX.
  return (columns + per_panel - 1) / per_panel * 4 * lstm_max_width * (k + 16);
}

// A weight matrix to be packed: element (k, column) of the product's right side. Column j of a
// plain matrix is w[j * column_stride + k * k_stride]; cell u's gate g is column g * columns + u.
struct LstmMatrix {
  const void* w = nullptr;
  int64_t columns = 0, k = 0;
  int64_t column_stride = 0, k_stride = 0;
  bool cells = false;
  void* packed = nullptr;
};

// Who does what. Workers form groups of `threads`. A group serves one direction, or all when the
// directions are not apart, and of the sequences one of `splits` adjacent ranges (rows that two
// threads write at once should not be neighbours in memory). Groups never wait for each other.
// Within a group (panel, tile) pairs are dealt in contiguous runs, panel by panel: a thread keeps
// meeting the same part of the matrix, which stays in its L2 cache when it fits. Every second step
// goes through its part backwards, beginning with what the caches still hold. Steps of a group of
// several threads are separated by a spinning barrier. A group that serves both directions walks
// through one to its end, then through the other: two matrices by turns would push each other out
// of the caches.
struct LstmTeam {
  bool directions_apart = false;
  int splits = 1, threads = 1;
  SpinBarrier* const* barriers = nullptr;    // one per group
  const int64_t* first_sequences = nullptr;  // of each range, and the number of sequences
};

struct LstmLoopShape {
  int64_t hidden = 0, output = 0;  // H, P
  int first_direction = 0, directions = 1;
  bool projected = false;
  int64_t frames = 0, sequences = 0;
  const int32_t *lengths = nullptr, *batch_sizes = nullptr, *row_offsets = nullptr;
  LstmTeam team;
};

// T is the storage dtype; "state" operands of the products are f32, or bf16 with vdpbf16ps.
struct LstmForwardLoop {
  LstmLoopShape shape;
  int64_t begin = 0, end = 0;  // steps of this call
  bool own_inputs = false;
  // With operands of 8 bits: of each worker, where it has the rows of a step as integers, and their
  // scales at the end.
  void* integers = nullptr;
  int64_t integers_bytes = 0;
  struct Direction {
    const void *r = nullptr, *p = nullptr;  // packed
    // x W^T + b, [rows, 4H]: of all rows from pre_row on, or with own_inputs of this worker's
    // sequences alone, step by step.
    const float* pre = nullptr;
    int64_t pre_row = 0;
    void* state = nullptr;                     // h by step parity, [2][N][state_stride(P)]
    void* projected = nullptr;                 // h' of this step, [N][state_stride(H)]
    float* c = nullptr;                        // [N][H]
    void *gates = nullptr, *hidden = nullptr;  // T or absent, this direction's plane
    float* cells = nullptr;
    void* y = nullptr;  // T, from this direction's first column, rows of y_stride
  } direction[2];
  int64_t y_stride = 0;
};

struct LstmBackwardLoop {
  LstmLoopShape shape;
  int64_t begin = 0, end = 0;  // backward steps of this call
  struct Direction {
    const void *r = nullptr, *p = nullptr;  // packed
    float* dh = nullptr;                    // carried, [N][P]
    float* dc = nullptr;                    // carried, [N][H]
    void* dz = nullptr;                     // dgates as an operand when T is not one, [2][N][4H]
    void* dp = nullptr;                     // dprojected as an operand, [N][state_stride(P)]
    const void* gates = nullptr;
    const float *cells = nullptr, *c0 = nullptr;  // c0 absent: zeros
    const void* dy = nullptr;                     // as y
    void *dgates = nullptr, *dprojected = nullptr;
  } direction[2];
  int64_t y_stride = 0;
};

// Elements per row of an operand of `n` values: whole pairs, for vdpbf16ps.
[[gnu::always_inline]] constexpr int64_t lstm_state_stride(int64_t n) { return (n + 1) / 2 * 2; }

// One instruction set's kernels for one storage dtype.
struct LstmKernels {
  size_t operand_bytes;    // of the products: 4, 2 for bf16, or 1, where states are f32
  int width;               // W
  int rows_at_once;        // a product of fewer rows takes as long as one of these
  double products_per_ns;  // multiply-adds of one thread, when the matrix is in the cache
  void (*pack)(const LstmMatrix& matrix, int64_t first_panel, int64_t last_panel);
  int64_t (*panels)(const LstmMatrix& matrix);
  void (*forward)(const LstmForwardLoop& loop, int worker);
  void (*backward)(const LstmBackwardLoop& loop, int worker);
  // out[j] (+)= sum over rows of m[row, j], for columns [begin, end); T in, f32 out.
  void (*column_sums)(const void* m, int64_t rows, int64_t stride, int64_t begin, int64_t end,
                      bool accumulate, float* out);
};

#define RONDO_DECLARE(isa)            \
  namespace isa {                     \
  extern const LstmKernels lstm_f32;  \
  extern const LstmKernels lstm_bf16; \
  }
RONDO_DECLARE(isa_generic)
RONDO_DECLARE(isa_avx2)
RONDO_DECLARE(isa_avx512)
RONDO_DECLARE(isa_avx512bf16)
RONDO_DECLARE(isa_amx)
#undef RONDO_DECLARE
// Forward alone, of f32, with products of 8 bits (kernels/gemm/int8.h).
namespace isa_generic {
extern const LstmKernels lstm_int8;
}
namespace isa_avx2 {
extern const LstmKernels lstm_int8;
}
namespace isa_avx512vnni {
extern const LstmKernels lstm_int8;
}

}  // namespace rondo
