// --device and --kernels, for the commands that run a model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "kernels/devices.h"

namespace rondo {

struct DeviceChoice {
  std::string text = "auto";
  std::vector<std::string> kernels;  // OP=VARIANT
};

void add_device_option(CLI::App& command, DeviceChoice* choice);

// What CLI11 says of a text that names no device; empty for auto, cpu, cuda, cuda:N and sim.
std::string check_device_name(const std::string& text);

// The device of this name, other than auto. Throws InputError when it is not there.
DeviceId require_device(const std::string& text);

// auto: the first GPU when one answers, otherwise the CPU, with one line on standard error when
// this program could have used a GPU. Prefers the variants of --kernels from now on. Throws
// InputError for what is not there.
DeviceId resolve(const DeviceChoice& choice);

}  // namespace rondo
