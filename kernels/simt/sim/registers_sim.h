// Registers that groups of four warps hand each other (PTX ISA manual, "setmaxnreg"), counted on
// the host: whether they would ever have enough.
//
// Assumed are launch bounds of one block to a multiprocessor: a thread begins with as many
// registers as all can have, a multiple of eight.
#pragma once

#include "kernels/simt/sim/scheduler.h"

namespace rondo::simt {

// All 128 threads of a group call these. take waits until the block has as many to spare. Errors
// end the kernel: warps of a group at different places, a second change, less to take or more to
// give than there are, warps that never come.
void take_registers(unsigned n, Where where);
void give_registers(unsigned n, Where where);

// By the last thread of the block, as it exits.
void check_registers_at_exit(const Block& block);

}  // namespace rondo::simt
