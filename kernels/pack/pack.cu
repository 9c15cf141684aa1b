// Between padded arrays and packed batches: a team of threads per frame of a sequence.
#include "kernels/pack/pack.h"
#include "kernels/simt/copy_rows.h"

namespace rondo::RONDO_GPU {
namespace {

// In words of one frame of one sequence.
template <class Word>
struct Padded {
  Word* data;
  int64_t frame_stride, sequence_stride, frames, sequences;
  const int32_t* order;
  int64_t words;

  __device__ Word* at(int64_t t, int64_t n) const {
    return data + t * frame_stride + (order ? order[n] : n) * sequence_stride;
  }
};

template <class Word, int lanes>
__global__ void pack(Word* packed, Padded<Word> padded, PackedView layout) {
  const Team<lanes> team;
  const int64_t rows = layout.extent->rows;
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const int32_t t = layout.row_frame[r];
    copy_row(team, packed + r * padded.words,
             static_cast<const Word*>(padded.at(t, r - layout.row_offsets[t])), padded.words);
  }
}

template <class Word, int lanes>
__global__ void unpack(Padded<Word> padded, const Word* packed, PackedView layout) {
  const Team<lanes> team;
  const int64_t count = padded.frames * padded.sequences;
  for (int64_t i = team.first(); i < count; i += team.stride()) {
    const int64_t t = i / padded.sequences, n = i % padded.sequences;
    const bool exists = n < layout.extent->sequences && t < layout.lengths[n];
    const Word* from =
        exists ? packed + (layout.row_offsets[t] + n) * padded.words : static_cast<Word*>(nullptr);
    copy_row(team, padded.at(t, n), from, padded.words);
  }
}

// f(padded, the packed rows) in the widest words both allow.
template <class Args, class F>
void with_padded(const Args& a, F f) {
  RONDO_CHECK(a.padded.rank == 3 && a.padded.dtype == a.packed.dtype, "padded has rank ",
              a.padded.rank, " and type ", name_of(a.padded.dtype));
  const bool time_major = a.padded_layout == PaddedLayout::time_major;
  const int64_t frames = a.padded.dim(time_major ? 0 : 1);
  const int64_t sequences = a.padded.dim(time_major ? 1 : 0);
  RONDO_CHECK(sequences == a.layout.capacity.sequences, "padded holds ", sequences,
              " sequences, the batch ", a.layout.capacity.sequences);
  const int64_t bytes = a.packed.dim(1) * static_cast<int64_t>(size_of(a.packed.dtype));
  with_words(bytes, {a.padded.data, a.packed.data}, [&]<class Word>(Word, int64_t words) {
    const Padded<Word> padded = {static_cast<Word*>(a.padded.data),
                                 time_major ? sequences * words : words,
                                 time_major ? words : frames * words,
                                 frames,
                                 sequences,
                                 a.order,
                                 words};
    f(padded, static_cast<Word*>(a.packed.data));
  });
}

}  // namespace

void pack_gpu(const Context& context, const PackArgs& a) {
  if (a.packed.numel() == 0) return;
  with_padded(a, [&]<class Word>(const Padded<Word>& padded, Word* packed) {
    with_team("pack", a.layout.capacity.rows, padded.words,
              [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
                launch(context, config, pack<Word, lanes>, packed, padded, a.layout);
              });
  });
}

void unpack_gpu(const Context& context, const UnpackArgs& a) {
  if (a.padded.numel() == 0) return;
  with_padded(a, [&]<class Word>(const Padded<Word>& padded, Word* packed) {
    with_team("unpack", padded.frames * padded.sequences, padded.words,
              [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
                launch(context, config, unpack<Word, lanes>, padded, packed, a.layout);
              });
  });
}

}  // namespace rondo::RONDO_GPU
