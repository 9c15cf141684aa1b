// In words, what a variant asks of the machine and of a call: its `accepts`, for people.
//
// Thread safety: any thread.
#pragma once

#include <string>

#include "kernels/base/op.h"

namespace rondo {

// "f32 or bf16; any H". Never empty.
std::string condition_of(const Variant& variant);

}  // namespace rondo
