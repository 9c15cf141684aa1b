// Compiled once per instruction set; see kernels/base/cpu/simd.h. Vectors lie along the channels of
// a pixel. A thread has a block of frames at a time: its sums, then, when the sequence's are known,
// its values.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/group_norm/group_norm_impl.h"

namespace rondo::RONDO_ISA {
namespace {

// f(first channel, vectors, part) for strips of channels.
template <class F>
[[gnu::always_inline]] inline void for_strips(int64_t channels, F f) {
  int64_t c = 0;
  for (; c + 4 * W <= channels; c += 4 * W) f(c, std::integral_constant<int, 4>{}, WholeVector{});
  for (; c + W <= channels; c += W) f(c, std::integral_constant<int, 1>{}, WholeVector{});
  if (c < channels) f(c, std::integral_constant<int, 1>{}, PartVector{channels - c});
}

// The frames of a block: its frame t begins at place(t).
struct Frames {
  const GroupNormDims& d;
  const PackedView& layout;
  GroupNormBlock b;

  int64_t place(int64_t t) const {
    return (layout.row_offsets[b.first + t] + b.n) * d.height * d.channels;
  }
  int64_t pixels() const { return b.count * d.height; }
  // f(place of a pixel) for all.
  template <class F>
  [[gnu::always_inline]] void each_pixel(F f) const {
    for (int64_t t = 0; t < b.count; ++t) {
      int64_t at = place(t);
      for (int32_t h = 0; h < d.height; ++h, at += d.channels) f(at);
    }
  }
};

// totals[k * stride + first + i] = the sums of K terms of channels first + i, in the strip's
// vectors; terms(place, v, sums) adds vector v of a pixel to sums[0 .. K).
template <int K, int N, class F>
[[gnu::always_inline]] inline void sum_strip_of(const Frames& frames, int64_t first, int64_t used,
                                                double* totals, int64_t stride, F terms) {
  double wide[K][N * W] = {};
  vf sums[N][K] = {};
  int64_t pending = 0;
  for (int64_t t = 0; t < frames.b.count; ++t) {
    int64_t at = frames.place(t) + first;
    for (int32_t h = 0; h < frames.d.height; ++h, at += frames.d.channels) {
      for (int v = 0; v < N; ++v) terms(at + v * W, v, sums[v]);
    }
    pending += frames.d.height;
    if (pending < 64 && t + 1 < frames.b.count) continue;
    pending = 0;
    for (int k = 0; k < K; ++k) {
      for (int v = 0; v < N; ++v) {
        for (int i = 0; i < W; ++i) wide[k][v * W + i] += static_cast<double>(sums[v][k][i]);
        sums[v][k] = vf{};
      }
    }
  }
  for (int k = 0; k < K; ++k) {
    for (int64_t i = 0; i < used; ++i) totals[k * stride + first + i] = wide[k][i];
  }
}

// What a strip's channels have of their groups, each in a vector: value(channel, its group).
template <int N>
struct Strip {
  float values[N * W];
  template <class F>
  Strip(const GroupNormDims& d, int64_t first, int64_t used, F value) {
    const int64_t size = d.channels / d.groups;
    for (int64_t i = 0; i < N * W; ++i)
      values[i] = i < used ? value(first + i, (first + i) / size) : 0.0f;
  }
  vf operator[](int v) const { return load(values + v * W); }
};

int64_t used_channels(int64_t channels, int64_t first, int vectors) {
  const int64_t left = channels - first, all = int64_t{vectors} * W;
  return left < all ? left : all;
}

// body(block number, block) for all blocks, on all threads.
template <class F>
void for_blocks(const Context& context, const GroupNormDims& d, const PackedView& layout, F body) {
  int64_t blocks = 0;
  for (int32_t first = 0; first < layout.extent->frames; first += group_norm_frames)
    blocks += layout.batch_sizes[first];
  context.pool->for_range(blocks, row_grain(group_norm_frames * d.height * d.channels),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t i = begin; i < end; ++i) {
                              GroupNormBlock b;
                              if (group_norm_block(layout, i, &b)) body(i, Frames{d, layout, b});
                            }
                          });
}

// The mean of each group within the block, and the sum of squares about it: parts[0 .. groups) and
// parts[channels .. channels + groups). The sums of channels are there before.
template <class T>
void block_moments(const T* x, const Frames& frames, double* parts) {
  const GroupNormDims& d = frames.d;
  const int64_t size = d.channels / d.groups;
  const double count = static_cast<double>(frames.pixels() * size);
  // Sums of the groups' channels, to the place of the group: never before one that is read later.
  const auto gather = [&](double* sums) {
    for (int64_t k = 0; k < d.groups; ++k) {
      double sum = 0;
      for (int64_t c = k * size; c < (k + 1) * size; ++c) sum += sums[c];
      sums[k] = sum;
    }
  };
  for_strips(d.channels, [&](int64_t first, auto vectors, auto part) {
    sum_strip_of<1, vectors>(frames, first, used_channels(d.channels, first, vectors), parts, 0,
                             [&](int64_t at, int, vf* sums) { sums[0] += part.get(x + at); });
  });
  gather(parts);
  for (int64_t k = 0; k < d.groups; ++k) parts[k] /= count;
  double* squares = parts + d.channels;
  for_strips(d.channels, [&](int64_t first, auto vectors, auto part) {
    const int64_t used = used_channels(d.channels, first, vectors);
    const Strip<vectors> mean(d, first, used,
                              [&](int64_t, int64_t k) { return static_cast<float>(parts[k]); });
    sum_strip_of<1, vectors>(frames, first, used, squares, 0, [&](int64_t at, int v, vf* sums) {
      const vf centred = part.get(x + at) - mean[v];
      sums[0] += centred * centred;
    });
  });
  gather(squares);
  // They are about the mean as a float.
  for (int64_t k = 0; k < d.groups; ++k) {
    const double off = parts[k] - static_cast<double>(static_cast<float>(parts[k]));
    squares[k] -= count * off * off;
  }
}

// Mean and rstd of each group of sequence n, out of its blocks.
void sequence_moments(const GroupNormArgs& a, const GroupNormSpace& space, int64_t n) {
  const GroupNormDims& d = a.dims;
  const int64_t size = d.height * (d.channels / d.groups);
  const bool exists = n < a.layout.extent->sequences;
  for (int64_t k = 0; k < d.groups; ++k) {
    double mean = 0, squares = 0, rstd = 0;
    if (exists) {
      const double count = static_cast<double>(a.layout.lengths[n] * size);
      const auto part = [&](int64_t i) { return space.parts + i * 2 * d.channels + k; };
      for_group_norm_blocks(a.layout, n, [&](int64_t i, int64_t frames) {
        mean += static_cast<double>(frames * size) * *part(i);
      });
      mean /= count;
      for_group_norm_blocks(a.layout, n, [&](int64_t i, int64_t frames) {
        const double off = *part(i) - mean;
        squares += part(i)[d.channels] + static_cast<double>(frames * size) * off * off;
      });
      rstd = 1 / __builtin_sqrt(squares / count + static_cast<double>(a.epsilon));
    }
    float* to = space.of_groups + (n * d.groups + k) * 2;
    to[0] = static_cast<float>(mean);
    to[1] = static_cast<float>(rstd);
    if (a.mean) a.mean.as<float>()[n * d.groups + k] = to[0];
    if (a.rstd) a.rstd.as<float>()[n * d.groups + k] = to[1];
  }
}

template <class T>
void normalise(const GroupNormArgs& a, const float* of_groups, const Frames& frames) {
  const T* x = static_cast<const T*>(a.x.data);
  T* y = static_cast<T*>(a.y.data);
  for_strips(a.dims.channels, [&](int64_t first, auto vectors, auto part) {
    const int64_t used = used_channels(a.dims.channels, first, vectors);
    const auto strip = [&](auto value) { return Strip<vectors>(a.dims, first, used, value); };
    const auto mean = strip([&](int64_t, int64_t k) { return of_groups[2 * k]; });
    const auto scale =
        strip([&](int64_t c, int64_t k) { return of_groups[2 * k + 1] * a.gamma.as<float>()[c]; });
    const auto beta = strip([&](int64_t c, int64_t) { return a.beta.as<float>()[c]; });
    frames.each_pixel([&](int64_t pixel) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t at = pixel + first + v * W;
        part.put(y + at, (part.get(x + at) - mean[v]) * scale[v] + beta[v]);
      }
    });
  });
}

template <class T>
void forward(const Context& context, const GroupNormArgs& a) {
  const GroupNormDims& d = a.dims;
  const GroupNormSpace space = group_norm_space(a.workspace, d, a.layout.capacity);
  const T* x = static_cast<const T*>(a.x.data);
  for_blocks(context, d, a.layout, [&](int64_t i, const Frames& frames) {
    block_moments(x, frames, space.parts + i * 2 * d.channels);
  });
  for (int64_t n = 0; n < a.layout.capacity.sequences; ++n) sequence_moments(a, space, n);
  for_blocks(context, d, a.layout, [&](int64_t, const Frames& frames) {
    normalise<T>(a, space.of_groups + frames.b.n * d.groups * 2, frames);
  });
}

// Of a sequence, by channel or group.
struct Saved {
  const GroupNormGradArgs& a;
  int64_t n;
  float mean(int64_t k) const { return a.mean.as<float>()[n * a.dims.groups + k]; }
  float rstd(int64_t k) const { return a.rstd.as<float>()[n * a.dims.groups + k]; }
  float gamma(int64_t c) const { return a.gamma.as<float>()[c]; }
};

template <class T>
void block_gradients(const GroupNormGradArgs& a, const Frames& frames, double* parts) {
  const T* x = static_cast<const T*>(a.x.data);
  const T* dy = static_cast<const T*>(a.dy.data);
  const Saved saved{a, frames.b.n};
  for_strips(a.dims.channels, [&](int64_t first, auto vectors, auto part) {
    const int64_t used = used_channels(a.dims.channels, first, vectors);
    const auto strip = [&](auto value) { return Strip<vectors>(a.dims, first, used, value); };
    const auto mean = strip([&](int64_t, int64_t k) { return saved.mean(k); });
    const auto rstd = strip([&](int64_t, int64_t k) { return saved.rstd(k); });
    sum_strip_of<2, vectors>(frames, first, used, parts, a.dims.channels,
                             [&](int64_t at, int v, vf* sums) {
                               const vf g = part.get(dy + at);
                               sums[0] += g;
                               sums[1] += g * ((part.get(x + at) - mean[v]) * rstd[v]);
                             });
  });
}

// The sums of sequence n, and the two means of each of its groups.
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
  for (int64_t k = 0; k < d.groups; ++k) {
    double g = 0, gx = 0;
    for (int64_t c = k * size; c < (k + 1) * size; ++c) {
      const double gamma = static_cast<double>(a.gamma.as<float>()[c]);
      g += gamma * sums[c];
      gx += gamma * sums[d.channels + c];
    }
    float* to = space.of_groups + (n * d.groups + k) * 2;
    to[0] = static_cast<float>(g / count);
    to[1] = static_cast<float>(gx / count);
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
void input_gradient(const GroupNormGradArgs& a, const float* of_groups, const Frames& frames) {
  const T* x = static_cast<const T*>(a.x.data);
  const T* dy = static_cast<const T*>(a.dy.data);
  T* dx = static_cast<T*>(a.dx.data);
  const Saved saved{a, frames.b.n};
  for_strips(a.dims.channels, [&](int64_t first, auto vectors, auto part) {
    const int64_t used = used_channels(a.dims.channels, first, vectors);
    const auto strip = [&](auto value) { return Strip<vectors>(a.dims, first, used, value); };
    const auto mean = strip([&](int64_t, int64_t k) { return saved.mean(k); });
    const auto rstd = strip([&](int64_t, int64_t k) { return saved.rstd(k); });
    const auto gamma = strip([&](int64_t c, int64_t) { return saved.gamma(c); });
    const auto g = strip([&](int64_t, int64_t k) { return of_groups[2 * k]; });
    const auto gx = strip([&](int64_t, int64_t k) { return of_groups[2 * k + 1]; });
    frames.each_pixel([&](int64_t pixel) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t at = pixel + first + v * W;
        const vf xhat = (part.get(x + at) - mean[v]) * rstd[v];
        part.put(dx + at, rstd[v] * (part.get(dy + at) * gamma[v] - g[v] - xhat * gx[v]));
      }
    });
  });
}

template <class T>
void backward(const Context& context, const GroupNormGradArgs& a) {
  const GroupNormDims& d = a.dims;
  const GroupNormSpace space = group_norm_space(a.workspace, d, a.layout.capacity);
  for_blocks(context, d, a.layout, [&](int64_t i, const Frames& frames) {
    block_gradients<T>(a, frames, space.parts + i * 2 * d.channels);
  });
  for (int64_t n = 0; n < a.layout.extent->sequences; ++n) sequence_gradients(a, space, n);
  weight_gradients(a, space);
  if (!a.dx) return;
  for_blocks(context, d, a.layout, [&](int64_t, const Frames& frames) {
    input_gradient<T>(a, space.of_groups + frames.b.n * d.groups * 2, frames);
  });
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
