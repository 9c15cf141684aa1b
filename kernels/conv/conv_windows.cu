// The pieces of a convolution by windows beside its products: windows are copied by a team of
// threads per tap, weights moved element by element. And the edges of sequences, a team per frame.
#include "kernels/conv/conv_windows.h"

#include "kernels/conv/conv_impl.h"
#include "kernels/conv/edge_frames_impl.h"
#include "kernels/simt/copy_rows.h"

namespace rondo::RONDO_GPU {
namespace {

template <class Word, int lanes>
__global__ void conv_windows(ConvWindows w, int64_t words) {
  const Team<lanes> team;
  const int64_t count = conv_window_count(w);
  if (w.count && blockIdx.x == 0 && threadIdx.x == 0) *w.count = static_cast<int32_t>(count);
  const int64_t parts = count * w.taps.count;
  for (int64_t i = team.first(); i < parts; i += team.stride()) {
    const ConvPlace place = conv_window_place(w, w.first + i / w.taps.count, i % w.taps.count);
    const Word* from = nullptr;
    if (place.part != ConvPart::none) {
      from = static_cast<const Word*>(conv_array(w.source, place.part)) + place.row * words;
    }
    copy_row(team, static_cast<Word*>(w.windows) + i * words, from, words);
  }
}

template <class Word, int lanes>
__global__ void conv_scatter(ConvScatter s, int64_t words) {
  const Team<lanes> team;
  const int64_t count = conv_scatter_count(s);
  for (int64_t r = team.first(); r < count; r += team.stride()) {
    const int64_t row = conv_scatter_row(s, s.first + r);
    if (row < 0) continue;
    const Word* from = s.results ? static_cast<const Word*>(s.results) + r * words : nullptr;
    copy_row(team, static_cast<Word*>(s.out) + row * words, from, words);
  }
}

template <class T, bool accumulate>
__global__ void conv_permute(ConvPermute p) {
  const int64_t n = p.dims[0] * p.dims[1] * p.dims[2];
  for_elements<1>(n, true, [&](int64_t i, auto) {
    const int64_t c = i % p.dims[2], ab = i / p.dims[2];
    const int64_t b = ab % p.dims[1], a = ab / p.dims[1];
    const int64_t at = a * p.strides[0] + b * p.strides[1] + c * p.strides[2];
    const T value = static_cast<const T*>(p.from)[at];
    T& to = static_cast<T*>(p.to)[i];
    if constexpr (accumulate) {
      to = to + value;
    } else {
      to = value;
    }
  });
}

// A frame is in an edge once, so nobody else adds to it.
template <class T, int lanes>
__global__ void edge_frames_grad(ConvWindows edge, bool vectors) {
  const Team<lanes> team;
  for (int64_t r = team.first(); r < edge.rows; r += team.stride()) {
    const ConvPlace place = conv_window_place(edge, r, 0);
    T* to = static_cast<T*>(const_cast<void*>(conv_array(edge.source, place.part)));
    if (place.part == ConvPart::none || to == nullptr) continue;
    to += place.row * edge.cols;
    const T* from = static_cast<const T*>(edge.windows) + r * edge.cols;
    team.template for_columns<wide<T>>(edge.cols, vectors, [&](int64_t i, auto chunk) {
      auto sum = chunk.get(to + i);
      const auto x = chunk.get(from + i);
      for (int k = 0; k < chunk.n; ++k) sum[k] += x[k];
      chunk.put(to + i, sum);
    });
  }
}

void gather(const Context& context, const ConvWindows& w) {
  const int64_t bytes = w.cols * static_cast<int64_t>(size_of(w.dtype));
  const ConvSource& s = w.source;
  with_words(bytes, {w.windows, s.rows, s.before, s.after}, [&]<class Word>(Word, int64_t words) {
    with_team("conv_windows", w.rows * w.taps.count, words,
              [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
                launch(context, config, conv_windows<Word, lanes>, w, words);
              });
  });
}

// Only sums in f32 are accumulated.
void permute(const Context& context, const ConvPermute& p) {
  const LaunchConfig config = elements_launch("conv_permute", p.dims[0] * p.dims[1] * p.dims[2], 1);
  RONDO_CHECK(!p.accumulate || p.dtype == DType::f32, "sums of ", name_of(p.dtype));
  if (p.accumulate) {
    launch(context, config, conv_permute<float, true>, p);
  } else if (p.dtype == DType::f32) {
    launch(context, config, conv_permute<float, false>, p);
  } else {
    launch(context, config, conv_permute<uint16_t, false>, p);
  }
}

void scatter(const Context& context, const ConvScatter& s) {
  const int64_t bytes = s.cols * static_cast<int64_t>(size_of(s.dtype));
  with_words(bytes, {s.results, s.out}, [&]<class Word>(Word, int64_t words) {
    with_team("conv_scatter", s.rows, words,
              [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
                launch(context, config, conv_scatter<Word, lanes>, s, words);
              });
  });
}

constexpr ConvDevice device{gather, permute, scatter};

template <class T>
void add_edge(const Context& context, const ConvWindows& edge) {
  const bool vectors = aligned_rows<wide<T>>(edge.cols, static_cast<const T*>(edge.windows),
                                             static_cast<const T*>(edge.source.rows),
                                             static_cast<const T*>(edge.source.before));
  with_team("edge_frames_grad", edge.rows, edge.cols,
            [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
              launch(context, config, edge_frames_grad<T, lanes>, edge, vectors);
            });
}

}  // namespace

void conv_windows_gpu(const Context& context, const ConvArgs& a) { conv_with(device, context, a); }
void conv_windows_gpu(const Context& context, const ConvGradInputArgs& a) {
  conv_with(device, context, a);
}
void conv_windows_gpu(const Context& context, const ConvGradWeightArgs& a) {
  conv_with(device, context, a);
}

void edge_frames_gpu(const Context& context, const EdgeFramesArgs& a) {
  for_edges(a, [&](const ConvWindows& edge) { gather(context, edge); });
}

void edge_frames_grad_gpu(const Context& context, const EdgeFramesGradArgs& a) {
  for_edges(a, [&](const ConvWindows& edge) {
    visit_narrow(edge.dtype, [&]<class T>(T) { add_edge<T>(context, edge); });
  });
}

}  // namespace rondo::RONDO_GPU
