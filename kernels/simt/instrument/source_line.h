// Addresses of instructions, in 32 bits, and the source lines they came from.
#pragma once

#include <cstdint>
#include <string>

namespace rondo::simt {

// Relative to the start of the program.
uint32_t to_site(const void* return_address);

// "kernels/ctc/gpu/ctc.cu:123", the innermost line outside the simulator; the address when
// addr2line is not in the PATH or the program has no line numbers. Starts a process: for messages
// only.
std::string source_line(uint32_t site);

}  // namespace rondo::simt
