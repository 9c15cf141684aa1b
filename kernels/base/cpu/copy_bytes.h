// Copying bytes of which there may be none.
#pragma once

#include <cstddef>
#include <cstring>

namespace rondo {

// memcpy() may not be given a null pointer, which an empty vector or view has, not even for no
// bytes; this may.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace rondo
