// The variants of pack and unpack, for their table alone.
#pragma once

#include "kernels/pack/pack.h"

namespace rondo {
void pack_ref(const Context& context, const PackArgs& args);
void pack_cpu(const Context& context, const PackArgs& args);
void unpack_ref(const Context& context, const UnpackArgs& args);
void unpack_cpu(const Context& context, const UnpackArgs& args);
}  // namespace rondo
