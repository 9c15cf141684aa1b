// libFuzzer's entry; tests/fuzz/run builds it with clang. RONDO_FUZZ_TARGET chooses the target.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/base/error.h"
#include "tests/fuzz/targets.h"

namespace {

const FuzzTarget& chosen() {
  const char* wanted = std::getenv("RONDO_FUZZ_TARGET");
  for (const FuzzTarget& t : fuzz_targets())
    if (wanted && std::strcmp(wanted, t.name) == 0) return t;
  std::fputs("set RONDO_FUZZ_TARGET to one of:", stderr);
  for (const FuzzTarget& t : fuzz_targets()) std::fprintf(stderr, " %s", t.name);
  std::fputs("\n", stderr);
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const FuzzTarget& target = chosen();
  try {
    target.run(std::as_bytes(std::span(bytes, size)));
  } catch (const rondo::InputError&) {
    return 0;
  }
  return 0;
}
