#include "kernels/base/error.h"

namespace rondo::detail {

void fail_check_plain(const char* file, int line, const char* condition) {
  throw Error(str(file, ":", line, ": check failed: ", condition));
}

}  // namespace rondo::detail
