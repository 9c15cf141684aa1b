// The variants of ctc, for its table alone.
#pragma once

#include "kernels/ctc/ctc.h"

namespace rondo {

void ctc_ref(const Context& context, const CtcArgs& args);
void ctc_portable(const Context& context, const CtcArgs& args);

// One sequence in log space, by the definition; shared while the fast variant is young.
void ctc_log_space(const CtcArgs& args, int32_t sequence);

}  // namespace rondo
