// Other people's LSTMs in the table; none in builds without their headers.
#pragma once

#include <vector>

#include "kernels/base/op.h"

namespace rondo {

#if defined(RONDO_WITH_CUDA) && __has_include(<cudnn.h>)
std::span<const Variant> lstm_forward_peers();
std::span<const Variant> lstm_step_peers();
#else
inline std::span<const Variant> lstm_forward_peers() { return {}; }
inline std::span<const Variant> lstm_step_peers() { return {}; }
#endif

inline void add_peers(std::vector<Variant>& variants, std::span<const Variant> peers) {
  variants.insert(variants.end(), peers.begin(), peers.end());
}

}  // namespace rondo
