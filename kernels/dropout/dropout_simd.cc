// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/dropout/dropout_impl.h"
#include "kernels/dropout/philox.h"

namespace rondo::RONDO_ISA {
namespace {

typedef uint64_t vq __attribute__((vector_size(W * 4)));

// The products of the low words of each 64-bit lane.
vq multiply_low_words(vq a, vq b) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(vq, _mm512_maskz_mul_epu32(0xff, __builtin_bit_cast(__m512i, a),
                                                       __builtin_bit_cast(__m512i, b)));
#elif defined(__AVX2__)
  return __builtin_bit_cast(
      vq, _mm256_mul_epu32(__builtin_bit_cast(__m256i, a), __builtin_bit_cast(__m256i, b)));
#elif defined(__x86_64__)
  return __builtin_bit_cast(
      vq, _mm_mul_epu32(__builtin_bit_cast(__m128i, a), __builtin_bit_cast(__m128i, b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// The 64-bit products of each lane with m (little-endian: the even lane is the low word).
void multiply_wide(vu a, uint32_t m, vu& high, vu& low) {
  const vq x = __builtin_bit_cast(vq, a), factor = uint64_t{m} - vq{};
  const vq even = multiply_low_words(x, factor), odd = multiply_low_words(x >> 32, factor);
  constexpr uint64_t low_word = 0xffffffffu;
  high = __builtin_bit_cast(vu, (even >> 32) | (odd & ~low_word));
  low = __builtin_bit_cast(vu, (even & low_word) | (odd << 32));
}

vu broadcast_word(uint32_t x) { return x - vu{}; }

struct Words {
  vu w[4];
};

Words philox(Words c, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < Philox::rounds; ++round) {
    vu high0, low0, high1, low1;
    multiply_wide(c.w[0], Philox::multiplier0, high0, low0);
    multiply_wide(c.w[2], Philox::multiplier1, high1, low1);
    c = {{high1 ^ c.w[1] ^ k0, low1, high0 ^ c.w[3] ^ k1, low0}};
    k0 += Philox::weyl0;
    k1 += Philox::weyl1;
  }
  return c;
}

struct Mask {
  uint64_t key;
  uint32_t threshold;
  float scale;
};

// Word j of lanes i..i+W of a block of 64 columns belongs to columns 16 j + i ... The row has
// `pixels` times `cols` values.
template <class T>
void dropout_row_cpu(const Mask& mask, DropoutRow row, const T* x, T* y, int64_t cols,
                     int64_t pixels) {
  vu lanes;
  for (int i = 0; i < W; ++i) lanes[i] = static_cast<uint32_t>(i);
  const vf scale = broadcast(mask.scale);
  const vu threshold = broadcast_word(mask.threshold);
  for (int64_t block = 0; block < cols; block += 64) {
    for (int64_t i = 0; i < 16 && block + i < cols; i += W) {
      const Words counter = {{lanes + static_cast<uint32_t>(block / 4 + i),
                              broadcast_word(row.frame),
                              broadcast_word(static_cast<uint32_t>(row.utterance)),
                              broadcast_word(static_cast<uint32_t>(row.utterance >> 32))}};
      const Words random = philox(counter, mask.key);
      for (int j = 0; j < 4; ++j) {
        const int64_t first = block + 16 * j + i;
        if (first >= cols) break;
        const int64_t end = first + W < cols ? first + W : cols;
        for_vectors(end - first, [&](int64_t, auto part) {
          const vi keep = random.w[j] >= threshold;
          for (int64_t at = first; at < cols * pixels; at += cols)
            part.put(y + at, select(keep, part.get(x + at) * scale, vf{}));
        });
      }
    }
  }
}

template <class T>
void apply(const Context& context, const DropoutArgs& a) {
  const int64_t cols = a.x.dim(1);
  const Mask mask = {dropout_key(*a.step_seed, a.layer), dropout_threshold(a.p),
                     static_cast<float>(1 / (1 - a.p))};
  const T* x = static_cast<const T*>(a.x.data);
  T* y = static_cast<T*>(a.y.data);
  context.pool->for_range(dropout_rows(a.layout), row_grain(cols), [&](int64_t begin, int64_t end) {
    if (mask.threshold == 0) {  // nothing is dropped
      if (x != y)
        __builtin_memmove(y + begin * cols, x + begin * cols,
                          static_cast<size_t>((end - begin) * cols) * sizeof(T));
      return;
    }
    for (int64_t r = begin; r < end; ++r) {
      dropout_row_cpu(mask, dropout_row(a.layout, a.channels, r), x + r * cols, y + r * cols,
                      dropout_columns(a), dropout_pixels(a));
    }
  });
}

}  // namespace

void dropout_cpu(const Context& context, const DropoutArgs& a) {
  check_dropout(a);
  if (a.x.dtype == DType::f32) return apply<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  apply<uint16_t>(context, a);
}

}  // namespace rondo::RONDO_ISA
