// For comparisons of a model cut in time with one that is not.
#pragma once

#include <string>

#include "kernels/base/dispatch.h"
#include "kernels/ctc/ctc.h"

namespace rondo::test {

// While it lives: the cpu variant of ctc whose arithmetic is that of chunks.
struct WideCtc {
  WideCtc() {
    for (const char* name : {"wide_generic", "wide_avx2", "wide_avx512"}) {
      for (const Variant& v : ctc_variants()) {
        if (std::string(v.name) == name && (!v.accepts || v.accepts({}, nullptr))) {
          prefer_variant("ctc", name);
        }
      }
    }
  }
  ~WideCtc() { prefer_variant("ctc", ""); }
};

}  // namespace rondo::test
