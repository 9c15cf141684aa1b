// Which side of a convolution is padded: apart from conv.h, for models and configurations.
#pragma once

#include <cstdint>

namespace rondo {

// Which positions beside its own one of y is made of, where the padding is span() - 1 positions in
// all: then ceil(size / stride) come out, position t at t * stride of x.
enum class ConvContext : uint8_t {
  both,    // as many before as behind it; of an even number of taps one more before it
  past,    // none behind it: causal
  future,  // none before it: looks ahead
};

}  // namespace rondo
