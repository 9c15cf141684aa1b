#include "kernels/simt/sim/registers_sim.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/simt/sim/gang.h"

namespace rondo::simt {
namespace {

constexpr unsigned group_threads = 128, multiprocessor_registers = 65536, most_registers = 256;

unsigned registers_at_launch(const Block& b) {
  const auto threads = static_cast<unsigned>(b.threads.size());
  return std::min(most_registers, multiprocessor_registers / threads / 8 * 8);
}

RegisterGroup& arrive(unsigned n, Where where) {
  Block& b = *self->block;
  if (b.threads.size() % group_threads != 0) {
    fail("changes registers in a block that is not of whole groups of four warps", where);
  }
  b.register_groups.resize(b.threads.size() / group_threads);
  RegisterGroup& g = b.register_groups[self->linear / group_threads];
  if (g.arrived == group_threads) fail("changes its registers twice", where);
  if (g.arrived == 0) {
    g.registers = n;
    g.where = where;
  } else if (g.registers != n || !same_place(g.where, where)) {
    fail("the warps of a group of four change their registers at different places", where);
  }
  ++g.arrived;
  return g;
}

}  // namespace

void give_registers(unsigned n, Where where) {
  const RegisterGroup& g = arrive(n, where);
  Block& b = *self->block;
  const unsigned before = registers_at_launch(b);
  if (n > before) fail(str("gives registers down to ", n, " and has ", before), where);
  if (g.arrived == group_threads) b.spare_registers += (before - n) * group_threads;
}

void take_registers(unsigned n, Where where) {
  RegisterGroup& g = arrive(n, where);
  Block& b = *self->block;
  const unsigned before = registers_at_launch(b);
  if (n < before) fail(str("takes registers up to ", n, " and has ", before), where);
  const unsigned wanted = (n - before) * group_threads;
  const auto granted = [&] {
    if (!g.granted && g.arrived == group_threads && b.spare_registers >= wanted) {
      b.spare_registers -= wanted;
      g.granted = true;
    }
    return g.granted;
  };
  poll_begin(where);
  while (!granted()) poll_again();
  poll_end();
}

void check_registers_at_exit(const Block& block) {
  for (const RegisterGroup& g : block.register_groups) {
    if (g.arrived > 0 && g.arrived < group_threads) {
      fail(str("registers are changed by ", g.arrived, " of the ", group_threads,
               " threads of a group of four warps"),
           g.where);
    }
  }
}

}  // namespace rondo::simt
