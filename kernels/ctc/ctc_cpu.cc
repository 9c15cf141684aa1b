#include "kernels/ctc/ctc_impl.h"

namespace rondo {

void ctc_portable(const Context& context, const CtcArgs& args) {
  context.pool->for_each(args.layout.capacity.sequences,
                         [&](int64_t n) { ctc_log_space(args, static_cast<int32_t>(n)); });
}

}  // namespace rondo
