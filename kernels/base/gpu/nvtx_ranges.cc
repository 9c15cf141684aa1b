#include "kernels/base/gpu/nvtx_ranges.h"

#if defined(RONDO_WITH_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace rondo::nvtx {

void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }

}  // namespace rondo::nvtx
#else
namespace rondo::nvtx {

void begin_range(const char*) {}
void end_range() {}

}  // namespace rondo::nvtx
#endif
