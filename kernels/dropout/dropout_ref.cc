#include "kernels/dropout/dropout_impl.h"
#include "kernels/dropout/philox.h"

namespace rondo {

void dropout_ref(const Context&, const DropoutArgs& a) {
  check_dropout(a);
  const int64_t rows = dropout_rows(a.layout), cols = a.x.dim(1);
  const uint64_t key = dropout_key(*a.step_seed, a.layer);
  const uint32_t threshold = dropout_threshold(a.p);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto [utterance, frame] = dropout_row(a.layout, a.channels, r);
      for (int64_t i = 0; i < cols; ++i) {
        const int64_t c = a.channels > 0 ? i % a.channels : i;
        const auto words =
            philox4x32({static_cast<uint32_t>(c / 64 * 16 + c % 16), frame,
                        static_cast<uint32_t>(utterance), static_cast<uint32_t>(utterance >> 32)},
                       key);
        const bool keep = words[static_cast<size_t>(c % 64 / 16)] >= threshold;
        // The product, as in the fast variants: 1 / (1 - p) is rounded once, for all elements.
        const double scale =
            sizeof(T) == 8 ? 1 / (1 - a.p) : static_cast<double>(static_cast<float>(1 / (1 - a.p)));
        const double x = static_cast<double>(a.x.as<T>()[r * cols + i]);
        a.y.as<T>()[r * cols + i] = static_cast<T>(keep ? x * scale : 0);
      }
    }
  });
}

}  // namespace rondo
