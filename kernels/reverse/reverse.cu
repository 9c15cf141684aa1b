// Reversed frames: copies, a team of threads per row.
#include "kernels/reverse/reverse_impl.h"
#include "kernels/simt/copy_rows.h"

namespace rondo::RONDO_GPU {
namespace {

template <class Word, int lanes>
__global__ void reverse_frames(Word* y, const Word* x, PackedView layout, int64_t words) {
  const Team<lanes> team;
  for (int64_t r = team.first(); r < layout.extent->rows; r += team.stride())
    copy_row(team, y + r * words, x + reversed_row(layout, r) * words, words);
}

}  // namespace

void reverse_frames_gpu(const Context& context, const ReverseFramesArgs& a) {
  check_reverse_frames(a);
  if (a.x.numel() == 0) return;
  const auto bytes = static_cast<int64_t>(size_of(a.x.dtype)) * a.x.dim(1);
  with_words(bytes, {a.x.data, a.y.data}, [&]<class Word>(Word, int64_t words) {
    with_team("reverse_frames", a.layout.capacity.rows, words,
              [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
                launch(context, config, reverse_frames<Word, lanes>, static_cast<Word*>(a.y.data),
                       static_cast<const Word*>(a.x.data), a.layout, words);
              });
  });
}

}  // namespace rondo::RONDO_GPU
