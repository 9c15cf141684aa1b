// Frame stacking: copies, a team of threads per part of a stacked frame. The gradient gathers, a
// team per frame of x: every frame knows which stacked frames hold it.
#include "kernels/base/check_view.h"
#include "kernels/simt/copy_rows.h"
#include "kernels/subsample/subsample.h"

namespace rondo::RONDO_GPU {
namespace {

template <class Word, int lanes>
__global__ void stack_frames(Word* y, const Word* x, int32_t stack, int32_t stride, PackedView from,
                             PackedView to, int64_t words) {
  const Team<lanes> team;
  const int64_t parts = int64_t{to.extent->rows} * stack;
  for (int64_t i = team.first(); i < parts; i += team.stride()) {
    const int64_t r = i / stack, j = i % stack;
    const int32_t t = to.row_frame[r];
    const int64_t n = r - to.row_offsets[t];
    const int64_t s = int64_t{t} * stride + j;
    const Word* part =
        s < from.lengths[n] ? x + (from.row_offsets[s] + n) * words : static_cast<Word*>(nullptr);
    copy_row(team, y + i * words, part, words);
  }
}

template <class T, int lanes>
__global__ void stack_frames_grad(T* dx, const T* dy, int32_t stack, int32_t stride,
                                  PackedView from, PackedView to, int64_t cols, bool vectors) {
  const Team<lanes> team;
  const int64_t rows = from.extent->rows;
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const int32_t s = from.row_frame[r];
    const int64_t n = r - from.row_offsets[s];
    // The frames t of y whose window [t * stride, t * stride + stack) holds s.
    const int32_t first = s < stack ? 0 : (s - stack) / stride + 1;
    const int32_t last = s / stride;
    team.template for_columns<wide<T>>(cols, vectors, [&](int64_t i, auto chunk) {
      Floats<chunk.n> sum = {};
      for (int32_t t = first; t <= last; ++t) {
        const int64_t part = (to.row_offsets[t] + n) * stack + (s - int64_t{t} * stride);
        const auto x = chunk.get(dy + part * cols + i);
        for (int k = 0; k < chunk.n; ++k) sum[k] += x[k];
      }
      chunk.put(dx + r * cols + i, sum);
    });
  }
}

template <class T>
void backward(const Context& context, const StackFramesGradArgs& a) {
  const int64_t cols = a.dx.dim(1);
  const T* dy = a.dy.as<T>();
  T* dx = a.dx.as<T>();
  const bool vectors = aligned_rows<wide<T>>(cols, dx, dy);
  with_team("stack_frames_grad", a.from.capacity.rows, cols,
            [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
              launch(context, config, stack_frames_grad<T, lanes>, dx, dy, a.stack, a.stride,
                     a.from, a.to, cols, vectors);
            });
}

}  // namespace

void stack_frames_gpu(const Context& context, const StackFramesArgs& a) {
  RONDO_CHECK(a.stack >= 1 && a.stride >= 1, "stack ", a.stack, ", stride ", a.stride);
  const int64_t cols = a.x.dim(1);
  check_matrix("stack_frames", "x", a.x, a.x.dtype, a.from.capacity.rows, cols);
  check_matrix("stack_frames", "y", a.y, a.x.dtype, a.to.capacity.rows, a.stack * cols);
  if (a.y.numel() == 0) return;
  const int64_t bytes = cols * static_cast<int64_t>(size_of(a.x.dtype));
  with_words(bytes, {a.x.data, a.y.data}, [&]<class Word>(Word, int64_t words) {
    with_team("stack_frames", a.to.capacity.rows * a.stack, words,
              [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
                launch(context, config, stack_frames<Word, lanes>, static_cast<Word*>(a.y.data),
                       static_cast<const Word*>(a.x.data), a.stack, a.stride, a.from, a.to, words);
              });
  });
}

void stack_frames_grad_gpu(const Context& context, const StackFramesGradArgs& a) {
  RONDO_CHECK(a.stack >= 1 && a.stride >= 1, "stack ", a.stack, ", stride ", a.stride);
  const int64_t cols = a.dx.dim(1);
  check_matrix("stack_frames_grad", "dx", a.dx, a.dx.dtype, a.from.capacity.rows, cols);
  check_matrix("stack_frames_grad", "dy", a.dy, a.dx.dtype, a.to.capacity.rows, a.stack * cols);
  if (a.dx.numel() == 0) return;
  visit_narrow(a.dx.dtype, [&]<class T>(T) { backward<T>(context, a); });
}

}  // namespace rondo::RONDO_GPU
