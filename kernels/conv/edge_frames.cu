// The first and last frames of sequences: a team of threads per frame.
#include "kernels/conv/conv_impl.h"
#include "kernels/conv/edge_frames_rows.h"
#include "kernels/simt/copy_rows.h"

namespace rondo::RONDO_GPU {
namespace {

template <class Word, int lanes>
__global__ void edge_frames(EdgeRows e, int64_t words) {
  const Team<lanes> team;
  const int64_t rows = e.rows();
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const ConvPlace place = edge_place(e, r);
    const Word* from = nullptr;
    if (place.part != ConvPart::none) {
      from = static_cast<const Word*>(conv_array(e.source, place.part)) + place.row * words;
    }
    copy_row(team, static_cast<Word*>(e.edge) + r * words, from, words);
  }
}

// A frame is in an edge once, so nobody else adds to it.
template <class T, int lanes>
__global__ void edge_frames_grad(EdgeRows e, bool vectors) {
  const Team<lanes> team;
  const int64_t rows = e.rows();
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const ConvPlace place = edge_place(e, r);
    T* to = static_cast<T*>(const_cast<void*>(conv_array(e.source, place.part)));
    if (place.part == ConvPart::none || to == nullptr) continue;
    to += place.row * e.cols;
    const T* from = static_cast<const T*>(e.edge) + r * e.cols;
    team.template for_columns<wide<T>>(e.cols, vectors, [&](int64_t i, auto chunk) {
      auto sum = chunk.get(to + i);
      const auto x = chunk.get(from + i);
      for (int k = 0; k < chunk.n; ++k) sum[k] += x[k];
      chunk.put(to + i, sum);
    });
  }
}

}  // namespace

void edge_frames_gpu(const Context& context, const EdgeFramesArgs& a) {
  check_edge_frames(a);
  const int64_t bytes = a.x.dim(1) * static_cast<int64_t>(size_of(a.x.dtype));
  for_edges(a, [&](const EdgeRows& e) {
    with_words(bytes, {e.edge, e.source.rows, e.source.before},
               [&]<class Word>(Word, int64_t words) {
                 with_team("edge_frames", e.rows(), words,
                           [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
                             launch(context, config, edge_frames<Word, lanes>, e, words);
                           });
               });
  });
}

void edge_frames_grad_gpu(const Context& context, const EdgeFramesGradArgs& a) {
  check_edge_frames(a);
  visit_narrow(edge_dtype(a), [&]<class T>(T) {
    for_edges(a, [&](const EdgeRows& e) {
      const bool vectors = aligned_rows<wide<T>>(e.cols, static_cast<const T*>(e.edge),
                                                 static_cast<const T*>(e.source.rows),
                                                 static_cast<const T*>(e.source.before));
      with_team("edge_frames_grad", e.rows(), e.cols,
                [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
                  launch(context, config, edge_frames_grad<T, lanes>, e, vectors);
                });
    });
  });
}

}  // namespace rondo::RONDO_GPU
