// In words, what a variant asks of the machine and of a call: its `accepts`, for people.
//
// Thread safety: any thread.
#pragma once

#include <string_view>

#include "kernels/base/op.h"

namespace rondo {

// "bf16; H <= 512; no projection; sm_90". Never empty.
std::string_view condition_of(const Variant& variant);

}  // namespace rondo
