#include <cstring>

#include "kernels/base/cpu/parallel.h"
#include "kernels/conv/conv_impl.h"

namespace rondo {
namespace {

// Bytes of copying that are worth waking a thread for.
int64_t grain(int64_t row_bytes) { return (64 << 10) / (row_bytes + 1) + 1; }

void gather(const Context& context, const ConvWindows& w) {
  const int64_t count = conv_window_count(w);
  const auto bytes = static_cast<size_t>(w.cols) * size_of(w.dtype);
  *w.count = static_cast<int32_t>(count);
  context.pool->for_range(
      count, grain(static_cast<int64_t>(bytes) * w.taps.count), [&](int64_t begin, int64_t end) {
        char* to = static_cast<char*>(w.windows) +
                   static_cast<size_t>(begin) * static_cast<size_t>(w.taps.count) * bytes;
        for (int64_t r = begin; r < end; ++r) {
          for (int32_t k = 0; k < w.taps.count; ++k, to += bytes) {
            const ConvPlace place = conv_window_place(w, w.first + r, k);
            if (place.part == ConvPart::none) {
              std::memset(to, 0, bytes);
            } else {
              const auto* from = static_cast<const char*>(conv_array(w.source, place.part));
              std::memcpy(to, from + static_cast<size_t>(place.row) * bytes, bytes);
            }
          }
        }
      });
}

template <class T>
void permute_as(const Context& context, const ConvPermute& p) {
  const int64_t plane = p.dims[1] * p.dims[2];
  context.pool->for_range(p.dims[0] * p.dims[1], grain(p.dims[2] * static_cast<int64_t>(sizeof(T))),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t i = begin; i < end; ++i) {
                              const int64_t a = i / p.dims[1], b = i % p.dims[1];
                              const T* from = static_cast<const T*>(p.from) + a * p.strides[0] +
                                              b * p.strides[1];
                              T* to = static_cast<T*>(p.to) + a * plane + b * p.dims[2];
                              for (int64_t c = 0; c < p.dims[2]; ++c) {
                                const T value = from[c * p.strides[2]];
                                if constexpr (std::is_same_v<T, float>) {
                                  to[c] = p.accumulate ? to[c] + value : value;
                                } else {
                                  to[c] = value;
                                }
                              }
                            }
                          });
}

// Only sums in f32 are accumulated.
void permute(const Context& context, const ConvPermute& p) {
  if (p.dtype == DType::f32) return permute_as<float>(context, p);
  RONDO_CHECK(p.dtype == DType::bf16 && !p.accumulate, "sums of ", name_of(p.dtype));
  permute_as<uint16_t>(context, p);
}

void scatter(const Context& context, const ConvScatter& s) {
  const auto bytes = static_cast<size_t>(s.cols) * size_of(s.dtype);
  context.pool->for_range(
      conv_scatter_count(s), grain(static_cast<int64_t>(bytes)), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t row = conv_scatter_row(s, s.first + r);
          if (row < 0) continue;
          char* to = static_cast<char*>(s.out) + static_cast<size_t>(row) * bytes;
          if (s.results) {
            std::memcpy(to, static_cast<const char*>(s.results) + static_cast<size_t>(r) * bytes,
                        bytes);
          } else {
            std::memset(to, 0, bytes);
          }
        }
      });
}

constexpr ConvDevice cpu{gather, permute, scatter};

}  // namespace

void conv_cpu(const Context& context, const ConvArgs& a) { conv_with(cpu, context, a); }
void conv_grad_input_cpu(const Context& context, const ConvGradInputArgs& a) {
  conv_with(cpu, context, a);
}
void conv_grad_weight_cpu(const Context& context, const ConvGradWeightArgs& a) {
  conv_with(cpu, context, a);
}

}  // namespace rondo
