// A stream of the simulated device, and what its kernels are told when they are wrong.
#pragma once

#include <string>

#include "kernels/simt/sim/sim_device.h"
#include "kernels/simt/simt.h"

namespace rondo::test {

struct SimFixture {
  Stream stream = sim_device().make_stream();
  Context context{Backend::sim, &sim_device(), &stream, nullptr};

  ~SimFixture() { set_sim_options({}); }

  // What the simulator says of a launch; "no error".
  template <class... P, class... A>
  std::string error_of(const LaunchConfig& config, void (*kernel)(P...), A... arguments) {
    try {
      sim::launch(context, config, kernel, arguments...);
      stream.synchronize();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
};

}  // namespace rondo::test
