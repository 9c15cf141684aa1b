// What pixels become by pooling: apart from pool2d.h, for models and configurations.
#pragma once

#include <cstdint>

namespace rondo {

enum class Pooling2d : uint8_t { greatest, mean };

}  // namespace rondo
