// libFuzzer's entry; tests/fuzz/run builds it with clang. RONDO_FUZZ_TARGET chooses the target. Its
// seeds are written into the folder RONDO_FUZZ_CORPUS before the corpus is read: what a library
// without instrumentation parses is not found from nothing.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

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

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("RONDO_FUZZ_CORPUS");
  if (!folder) return 0;
  size_t number = 0;
  for (const std::string& seed : chosen().seeds())
    std::ofstream(std::string(folder) + "/seed-" + std::to_string(++number), std::ios::binary)
        << seed;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const FuzzTarget& target = chosen();
  try {
    target.run(std::as_bytes(std::span(bytes, size)));
  } catch (const rondo::InputError&) {
    return 0;
  }
  return 0;
}
