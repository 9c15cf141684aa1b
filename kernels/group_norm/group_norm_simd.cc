// Compiled once per instruction set; see kernels/base/cpu/simd.h. Vectors lie along the channels of
// a pixel. Both passes, the sums' and the one that makes the result of them, go through memory in
// its own order, from frame to frame and within one from sequence to sequence: that is what the
// time goes into.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/group_norm/group_norm_impl.h"

namespace rondo::RONDO_ISA {
namespace {

// f(first channel, vectors, part) for strips of up to Most vectors of channels.
template <int Most, class F>
[[gnu::always_inline]] inline void for_strips(int64_t channels, F f) {
  int64_t c = 0;
  for (; c + Most * W <= channels; c += Most * W)
    f(c, std::integral_constant<int, Most>{}, WholeVector{});
  for (; c + W <= channels; c += W) f(c, std::integral_constant<int, 1>{}, WholeVector{});
  if (c < channels) f(c, std::integral_constant<int, 1>{}, PartVector{channels - c});
}

// A few neighbouring frames of a sequence, of which sums are floats.
struct Piece {
  const GroupNormDims& d;
  const PackedView& layout;
  int64_t n, first, count;

  int64_t pixels() const { return count * d.height; }
  // f(place of a pixel) for all.
  template <class F>
  [[gnu::always_inline]] void each_pixel(F f) const {
    for (int64_t t = first; t < first + count; ++t) {
      int64_t at = (layout.row_offsets[t] + n) * d.height * d.channels;
      for (int32_t h = 0; h < d.height; ++h, at += d.channels) f(at);
    }
  }
};

// totals[k * stride + c] += the sums of K terms of channels c = first, first + 1, ..., of the
// strip's vectors; terms(place, v, sums) adds vector v of a pixel to sums[0 .. K).
template <int K, int N, class Part, class F>
[[gnu::always_inline]] inline void add_strip(const Piece& piece, int64_t first, Part part,
                                             double* totals, int64_t stride, F terms) {
  vf sums[N][K] = {};
  piece.each_pixel([&](int64_t pixel) {
    for (int v = 0; v < N; ++v) terms(pixel + first + v * W, v, sums[v]);
  });
  for (int k = 0; k < K; ++k) {
    double* to = totals + k * stride + first;
    for (int v = 0; v < N; ++v, to += W) {
      for (int i = 0; i < part.size(); ++i) to[i] += static_cast<double>(sums[v][k][i]);
    }
  }
}

// Blocks of the same frames, of neighbouring sequences: those of `begin` to `end` - 1, of which the
// first is block `number`.
struct Blocks {
  int64_t first, begin, end, number;
};

// body(blocks) for all blocks, on all threads.
template <class F>
void for_blocks(const Context& context, const GroupNormDims& d, const PackedView& layout, F body) {
  int64_t count = 0;
  for (int64_t first = 0; first < layout.extent->frames; first += group_norm_frames)
    count += layout.batch_sizes[first];
  context.pool->for_range(
      count, row_grain(group_norm_frames * d.height * d.channels), [&](int64_t begin, int64_t end) {
        int64_t before = 0;
        for (int64_t first = 0; before < end; first += group_norm_frames) {
          const int64_t behind = before + layout.batch_sizes[first];
          const int64_t low = begin > before ? begin : before, high = end < behind ? end : behind;
          if (low < high) body(Blocks{first, low - before, high - before, low});
          before = behind;
        }
      });
}

// f(number of the block, piece, whether it is the block's first) for the pieces of the blocks. They
// have 16 pixels or one frame.
template <class F>
[[gnu::always_inline]] inline void for_pieces(const GroupNormDims& d, const PackedView& layout,
                                              const Blocks& blocks, F f) {
  const int64_t frames = (16 + d.height - 1) / d.height;
  for (int64_t done = 0; done < group_norm_frames; done += frames) {
    const int64_t wanted = done + frames < group_norm_frames ? frames : group_norm_frames - done;
    for (int64_t n = blocks.begin; n < blocks.end; ++n) {
      const int64_t left = layout.lengths[n] - blocks.first - done;
      if (left <= 0) break;  // those behind are no longer
      f(blocks.number + n - blocks.begin,
        Piece{d, layout, n, blocks.first + done, left < wanted ? left : wanted}, done == 0);
    }
  }
}

// body(row, its sequence) for all rows of the batch, on all threads.
template <class F>
void for_rows(const Context& context, const GroupNormDims& d, const PackedView& layout, F body) {
  context.pool->for_range(layout.extent->rows, row_grain(d.height * d.channels),
                          [&](int64_t begin, int64_t end) {
                            int64_t t = layout.row_frame[begin];
                            for (int64_t row = begin; row < end; ++row) {
                              while (row >= layout.row_offsets[t + 1]) ++t;
                              body(row, row - layout.row_offsets[t]);
                            }
                          });
}

void clear(double* parts, const GroupNormDims& d, const Blocks& blocks) {
  double* end = parts + (blocks.number + blocks.end - blocks.begin) * 2 * d.channels;
  for (double* p = parts + blocks.number * 2 * d.channels; p < end; ++p) *p = 0;
}

// Sums of the groups' channels, to the place of the group: never before one that is read later.
void gather_groups(const GroupNormDims& d, double* sums) {
  const int64_t size = d.channels / d.groups;
  for (int64_t k = 0; k < d.groups; ++k) {
    double sum = 0;
    for (int64_t c = k * size; c < (k + 1) * size; ++c) sum += sums[c];
    sums[k] = sum;
  }
}

// about[c] = the mean of c's group within a piece; `sums` are zero before and after.
template <class T>
void piece_means(const T* x, const Piece& piece, double* sums, float* about) {
  const GroupNormDims& d = piece.d;
  const int64_t size = d.channels / d.groups;
  for_strips<4>(d.channels, [&](int64_t first, auto vectors, auto part) {
    add_strip<1, vectors>(piece, first, part, sums, 0,
                          [&](int64_t at, int, vf* sum) { sum[0] += part.get(x + at); });
  });
  gather_groups(d, sums);
  for (int64_t k = 0; k < d.groups; ++k) {
    const double mean = sums[k] / static_cast<double>(piece.pixels() * size);
    for (int64_t c = k * size; c < (k + 1) * size; ++c) about[c] = static_cast<float>(mean);
  }
  for (int64_t c = 0; c < d.channels; ++c) sums[c] = 0;
}

// Of each block the mean of each group, and the sum of squares about it: parts[0 .. groups) and
// parts[channels .. channels + groups).
//
// Values are read once, as distances from the mean of the block's first piece. A part f of the
// values whose mean lies k deviations from that of all is at most 1 / k^2 of them, so that what the
// subtraction at the end takes away is at most 1 / f times what is left, and f at least 1 / 64.
template <class T>
void block_moments(const T* x, const GroupNormSpace& space, const GroupNormDims& d,
                   const PackedView& layout, const Blocks& blocks) {
  const int64_t size = d.channels / d.groups;
  clear(space.parts, d, blocks);
  for_pieces(d, layout, blocks, [&](int64_t i, const Piece& piece, bool is_first) {
    double* parts = space.parts + i * 2 * d.channels;
    float* about = space.about + i * d.channels;
    if (is_first) piece_means(x, piece, parts, about);
    for_strips<4>(d.channels, [&](int64_t first, auto vectors, auto part) {
      vf middle[vectors];
      for (int v = 0; v < vectors; ++v) middle[v] = part.get(about + first + v * W);
      add_strip<2, vectors>(piece, first, part, parts, d.channels,
                            [&](int64_t at, int v, vf* sums) {
                              const vf off = part.get(x + at) - middle[v];
                              sums[0] += off;
                              sums[1] += off * off;
                            });
    });
  });
  for (int64_t n = blocks.begin; n < blocks.end; ++n) {
    const int64_t i = blocks.number + n - blocks.begin, left = layout.lengths[n] - blocks.first;
    const double count = static_cast<double>((left < group_norm_frames ? left : group_norm_frames) *
                                             d.height * size);
    double* sums = space.parts + i * 2 * d.channels;
    double* squares = sums + d.channels;
    gather_groups(d, sums);
    gather_groups(d, squares);
    for (int64_t k = 0; k < d.groups; ++k) {
      const double off = sums[k] / count, about_it = squares[k] - count * off * off;
      sums[k] = static_cast<double>(space.about[i * d.channels + k * size]) + off;
      squares[k] = about_it < 0 ? 0 : about_it;  // NaN stays
    }
  }
}

// Numbers of each channel of a sequence, for whoever goes over its rows: [number][channel].
struct OfChannels {
  float* values;
  int64_t channels;
  float* operator[](int64_t which) const { return values + which * channels; }
};
OfChannels of_channels(const GroupNormSpace& space, const GroupNormDims& d, int64_t n) {
  return {space.of_channels + n * group_norm_channel_numbers * d.channels, d.channels};
}

void keep_moments(const GroupNormArgs& a, int64_t i, float mean, float rstd) {
  if (a.mean) a.mean.as<float>()[i] = mean;
  if (a.rstd) a.rstd.as<float>()[i] = rstd;
}

// Mean and rstd of each group of sequence n, out of its blocks, and what its channels have of them:
// y = (x - of[0]) * of[1] + beta.
void sequence_moments(const GroupNormArgs& a, const GroupNormSpace& space, int64_t n) {
  const GroupNormDims& d = a.dims;
  const int64_t channels = d.channels / d.groups, size = d.height * channels;
  const double count = static_cast<double>(a.layout.lengths[n] * size);
  const OfChannels of = of_channels(space, d, n);
  for (int64_t k = 0; k < d.groups; ++k) {
    const auto part = [&](int64_t i) { return space.parts + i * 2 * d.channels + k; };
    double mean = 0, squares = 0;
    for_group_norm_blocks(a.layout, n, [&](int64_t i, int64_t frames) {
      mean += static_cast<double>(frames * size) * *part(i);
    });
    mean /= count;
    for_group_norm_blocks(a.layout, n, [&](int64_t i, int64_t frames) {
      const double off = *part(i) - mean;
      squares += part(i)[d.channels] + static_cast<double>(frames * size) * off * off;
    });
    const double rstd = 1 / __builtin_sqrt(squares / count + static_cast<double>(a.epsilon));
    keep_moments(a, n * d.groups + k, static_cast<float>(mean), static_cast<float>(rstd));
    for (int64_t c = k * channels; c < (k + 1) * channels; ++c) {
      of[0][c] = static_cast<float>(mean);
      of[1][c] = static_cast<float>(rstd) * a.gamma.as<float>()[c];
    }
  }
}

template <class T>
void normalise(const GroupNormArgs& a, const OfChannels& of, int64_t row) {
  const int64_t channels = a.dims.channels, place = row * a.dims.height * channels;
  const T* x = static_cast<const T*>(a.x.data) + place;
  T* y = static_cast<T*>(a.y.data) + place;
  for_strips<4>(channels, [&](int64_t first, auto vectors, auto part) {
    vf mean[vectors], scale[vectors], beta[vectors];
    for (int v = 0; v < vectors; ++v) {
      mean[v] = part.get(of[0] + first + v * W);
      scale[v] = part.get(of[1] + first + v * W);
      beta[v] = part.get(a.beta.as<float>() + first + v * W);
    }
    int64_t pixel = first;
    for (int32_t h = 0; h < a.dims.height; ++h, pixel += channels) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t at = pixel + v * W;
        part.put(y + at, (part.get(x + at) - mean[v]) * scale[v] + beta[v]);
      }
    }
  });
}

template <class T>
void forward(const Context& context, const GroupNormArgs& a) {
  const GroupNormDims& d = a.dims;
  const GroupNormSpace space = group_norm_space(a.workspace, d, a.layout.capacity);
  const int64_t sequences = a.layout.extent->sequences;
  for_blocks(context, d, a.layout, [&](const Blocks& blocks) {
    block_moments(static_cast<const T*>(a.x.data), space, d, a.layout, blocks);
  });
  for (int64_t n = 0; n < sequences; ++n) sequence_moments(a, space, n);
  for (int64_t i = sequences * d.groups; i < a.layout.capacity.sequences * d.groups; ++i)
    keep_moments(a, i, 0, 0);
  for_rows(context, d, a.layout,
           [&](int64_t row, int64_t n) { normalise<T>(a, of_channels(space, d, n), row); });
}

// Of each block and channel the sums of dy and of dy * (x - mean).
template <class T>
void block_gradients(const GroupNormGradArgs& a, const GroupNormSpace& space,
                     const Blocks& blocks) {
  const GroupNormDims& d = a.dims;
  const T* x = static_cast<const T*>(a.x.data);
  const T* dy = static_cast<const T*>(a.dy.data);
  clear(space.parts, d, blocks);
  for_pieces(d, a.layout, blocks, [&](int64_t i, const Piece& piece, bool) {
    const float* mean_of = of_channels(space, d, piece.n)[0];
    for_strips<4>(d.channels, [&](int64_t first, auto vectors, auto part) {
      vf mean[vectors];
      for (int v = 0; v < vectors; ++v) mean[v] = part.get(mean_of + first + v * W);
      add_strip<2, vectors>(piece, first, part, space.parts + i * 2 * d.channels, d.channels,
                            [&](int64_t at, int v, vf* sums) {
                              const vf g = part.get(dy + at);
                              sums[0] += g;
                              sums[1] += g * (part.get(x + at) - mean[v]);
                            });
    });
  });
}

void spread_means(const GroupNormGradArgs& a, const GroupNormSpace& space, int64_t n) {
  const int64_t size = a.dims.channels / a.dims.groups;
  float* mean = of_channels(space, a.dims, n)[0];
  for (int64_t c = 0; c < a.dims.channels; ++c)
    mean[c] = a.mean.as<float>()[n * a.dims.groups + c / size];
}

// The sums of sequence n, and what its channels have of the two means of each of its groups:
// dx = (dy * of[1] - of[2]) - (x - of[0]) * of[3].
void sequence_gradients(const GroupNormGradArgs& a, const GroupNormSpace& space, int64_t n) {
  const GroupNormDims& d = a.dims;
  const int64_t size = d.channels / d.groups;
  double* sums = space.sums + n * 2 * d.channels;
  for (int64_t c = 0; c < 2 * d.channels; ++c) sums[c] = 0;
  for_group_norm_blocks(a.layout, n, [&](int64_t i, int64_t) {
    const double* part = space.parts + i * 2 * d.channels;
    for (int64_t c = 0; c < 2 * d.channels; ++c) sums[c] += part[c];
  });
  const double count = static_cast<double>(a.layout.lengths[n] * d.height * size);
  const float* gamma = a.gamma.as<float>();
  const OfChannels of = of_channels(space, d, n);
  for (int64_t k = 0; k < d.groups; ++k) {
    const float rstd = a.rstd.as<float>()[n * d.groups + k];
    double g = 0, gx = 0;
    for (int64_t c = k * size; c < (k + 1) * size; ++c) {
      sums[d.channels + c] *= static_cast<double>(rstd);  // of dy * (x - mean) until here
      g += static_cast<double>(gamma[c]) * sums[c];
      gx += static_cast<double>(gamma[c]) * sums[d.channels + c];
    }
    for (int64_t c = k * size; c < (k + 1) * size; ++c) {
      of[1][c] = rstd * gamma[c];
      of[2][c] = rstd * static_cast<float>(g / count);
      of[3][c] = rstd * rstd * static_cast<float>(gx / count);
    }
  }
}

void weight_gradients(const GroupNormGradArgs& a, const GroupNormSpace& space) {
  const auto add_up = [&](const TensorView& to, int64_t which) {
    if (!to) return;
    float* out = to.as<float>();
    for (int64_t c = 0; c < a.dims.channels; ++c) {
      double sum = a.accumulate ? static_cast<double>(out[c]) : 0;
      for (int64_t n = 0; n < a.layout.extent->sequences; ++n)
        sum += space.sums[(2 * n + which) * a.dims.channels + c];
      out[c] = static_cast<float>(sum);
    }
  };
  add_up(a.dbeta, 0);
  add_up(a.dgamma, 1);
}

template <class T>
void input_gradient(const GroupNormGradArgs& a, const OfChannels& of, int64_t row) {
  const int64_t channels = a.dims.channels, place = row * a.dims.height * channels;
  const T* x = static_cast<const T*>(a.x.data) + place;
  const T* dy = static_cast<const T*>(a.dy.data) + place;
  T* dx = static_cast<T*>(a.dx.data) + place;
  for_strips<4>(channels, [&](int64_t first, auto vectors, auto part) {
    vf number[4][vectors];
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < vectors; ++v) number[i][v] = part.get(of[i] + first + v * W);
    }
    int64_t pixel = first;
    for (int32_t h = 0; h < a.dims.height; ++h, pixel += channels) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t at = pixel + v * W;
        const vf g = part.get(dy + at) * number[1][v] - number[2][v];
        part.put(dx + at, g - (part.get(x + at) - number[0][v]) * number[3][v]);
      }
    }
  });
}

template <class T>
void backward(const Context& context, const GroupNormGradArgs& a) {
  const GroupNormDims& d = a.dims;
  const GroupNormSpace space = group_norm_space(a.workspace, d, a.layout.capacity);
  const int64_t sequences = a.layout.extent->sequences;
  for (int64_t n = 0; n < sequences; ++n) spread_means(a, space, n);
  for_blocks(context, d, a.layout,
             [&](const Blocks& blocks) { block_gradients<T>(a, space, blocks); });
  for (int64_t n = 0; n < sequences; ++n) sequence_gradients(a, space, n);
  weight_gradients(a, space);
  if (!a.dx) return;
  for_rows(context, d, a.layout,
           [&](int64_t row, int64_t n) { input_gradient<T>(a, of_channels(space, d, n), row); });
}

}  // namespace

void group_norm_cpu(const Context& context, const GroupNormArgs& a) {
  check_group_norm(a);
  if (a.x.dtype == DType::f32) return forward<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  forward<uint16_t>(context, a);
}

void group_norm_grad_cpu(const Context& context, const GroupNormGradArgs& a) {
  check_group_norm(a);
  if (a.x.dtype == DType::f32) return backward<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  backward<uint16_t>(context, a);
}

}  // namespace rondo::RONDO_ISA
