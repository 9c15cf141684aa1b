#include "tests/fuzz/targets.h"

const std::vector<FuzzTarget>& fuzz_targets() {
  static const std::vector<FuzzTarget> targets = [] {
    std::vector<FuzzTarget> all;
    for (const auto& some : {data_targets(), text_targets(), ranks_targets(), serve_targets()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }();
  return targets;
}
