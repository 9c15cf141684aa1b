// Dropout: a team of threads per row. One call of the generator gives the bits of four columns, 16
// apart, so a thread with N adjacent counters writes four chunks of N columns.
#include "kernels/base/check_view.h"
#include "kernels/dropout/dropout_impl.h"
#include "kernels/dropout/philox.h"
#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {
namespace {

template <class T>
struct Dropout {
  T* y;
  const T* x;
  PackedView layout;
  const uint64_t* step_seed;
  uint32_t layer, threshold;
  float scale;
  int64_t channels, cols, pixels;  // a row has pixels * cols values
  bool vectors;
};

// N divides 16 and, unless it is 1, the number of columns.
template <int N, class T, int lanes>
__device__ void drop_in_row(const Team<lanes>& team, const Dropout<T>& a, uint64_t key, int64_t r) {
  constexpr int per_block = 16 / N;
  const Chunk<N> chunk;
  const DropoutRow row = dropout_row(a.layout, a.channels, r);
  const T* x = a.x + r * a.pixels * a.cols;
  T* y = a.y + r * a.pixels * a.cols;
  for (int64_t g = team.rank; g / per_block * 64 < a.cols; g += lanes) {
    const int64_t block = g / per_block, first = g % per_block * N;
    uint32_t words[N][4];
    for (int k = 0; k < N; ++k) {
      words[k][0] = static_cast<uint32_t>(block * 16 + first + k);
      words[k][1] = row.frame;
      words[k][2] = static_cast<uint32_t>(row.utterance);
      words[k][3] = static_cast<uint32_t>(row.utterance >> 32);
      philox4x32(words[k], key);
    }
    for (int j = 0; j < 4; ++j) {
      const int64_t at = block * 64 + 16 * j + first;
      if (at >= a.cols) break;
      for (int64_t i = at; i < a.cols * a.pixels; i += a.cols) {
        auto v = chunk.get(x + i);
        for (int k = 0; k < N; ++k) v[k] = words[k][j] >= a.threshold ? v[k] * a.scale : 0.0f;
        chunk.put(y + i, v);
      }
    }
  }
}

template <class T, int lanes>
__global__ void dropout(Dropout<T> a) {
  const Team<lanes> team;
  const uint64_t key = dropout_key(*a.step_seed, a.layer);
  const int64_t rows = dropout_rows(a.layout);
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    if (a.vectors) {
      drop_in_row<wide<float>>(team, a, key, r);
    } else {
      drop_in_row<1>(team, a, key, r);
    }
  }
}

template <class T>
void dropout_as(const Context& context, const DropoutArgs& args) {
  Dropout<T> a = {args.y.as<T>(),
                  args.x.as<T>(),
                  args.layout,
                  args.step_seed,
                  args.layer,
                  dropout_threshold(args.p),
                  static_cast<float>(1 / (1 - args.p)),
                  args.channels,
                  dropout_columns(args),
                  dropout_pixels(args),
                  false};
  a.vectors = aligned_rows<wide<float>>(a.cols, a.x, a.y);
  // A thread has four chunks at a time, hence a quarter of the usual threads.
  with_team("dropout", args.x.dim(0), a.cols / 4,
            [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
              launch(context, config, dropout<T, lanes>, a);
            });
}

}  // namespace

void dropout_gpu(const Context& context, const DropoutArgs& a) {
  check_dropout(a);
  check_like("dropout", "y", a.y, a.x);
  if (a.x.numel() == 0) return;
  visit_narrow(a.x.dtype, [&]<class T>(T) { dropout_as<T>(context, a); });
}

}  // namespace rondo::RONDO_GPU
