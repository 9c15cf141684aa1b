// --device and --kernels, for the commands that run a model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "kernels/base/device.h"

namespace rondo {

struct DeviceChoice {
  std::string text = "auto";
  std::vector<std::string> kernels;  // OP=VARIANT
};

void add_device_option(CLI::App& command, DeviceChoice* choice);

// auto: a GPU when one answers, otherwise the CPU. Prefers the variants of --kernels from now on.
// Throws InputError for what is not there.
DeviceKind resolve(const DeviceChoice& choice);

}  // namespace rondo
