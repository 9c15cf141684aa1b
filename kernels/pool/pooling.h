// What a sequence becomes by pooling: apart from pool.h, for models and configurations.
#pragma once

#include <cstdint>

namespace rondo {

enum class Pooling : uint8_t { last, mean };

}  // namespace rondo
