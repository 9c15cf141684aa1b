// What the CTC ops refuse before they read it.
#include <string>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "tests/catch.h"
#include "tests/ctc/ctc_problem.h"

namespace rondo::test {

TEST_CASE("ctc: tables that would read beyond the memory are refused on the host") {
  ThreadPool pool(1);
  for (const Variant& variant : runnable_ctc_variants()) {
    if (variant.backend != Backend::ref && variant.backend != Backend::cpu) continue;
    INFO(variant.name);
    const auto refused = [&](auto spoil, const std::string& words) {
      CtcProblem p({4, 3}, 4, {{1, 2, 3}, {2}});
      p.randomise(3, 1);
      run_ctc<float>(variant, p, pool);
      spoil(p);
      REQUIRE_THROWS_WITH(run_ctc<float>(variant, p, pool), Catch::Contains(words));
    };
    refused([](CtcProblem& p) { p.labels[3] = 4; },
            "label 0 of sequence 1 is 4, expected one of 4");
    refused([](CtcProblem& p) { p.labels[1] = -1; }, "label 1 of sequence 0 is -1");
    refused([](CtcProblem& p) { p.labels[2] = 1 << 30; }, "label 2 of sequence 0 is 1073741824");
    refused([](CtcProblem& p) { p.labels[0] = p.blank; }, "but the blank, 0");
    refused([](CtcProblem& p) { p.offsets[1] = -1; }, "sequence 0 has -1 labels from 0 on");
  }
}

TEST_CASE("a context without what its backend needs is refused") {
  CtcProblem p({2}, 3, {{1}});
  const CtcArgs args = ctc_args_of(p);
  REQUIRE_THROWS_WITH(run(Context{}, args), Catch::Contains("without a pool"));
  Context device;
  device.backend = Backend::sim;
  REQUIRE_THROWS_WITH(run(device, args), Catch::Contains("without a device or a stream"));
}

}  // namespace rondo::test
