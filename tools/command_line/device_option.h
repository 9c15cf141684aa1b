// --device and --kernels, for the commands that run a model.
#pragma once

#include <string>
#include <vector>

#include "kernels/devices.h"
#include "tools/command_line/command_line.h"

namespace rondo {

struct DeviceChoice {
  // What to use, and where that was said: "--device " or "RONDO_DEVICE=".
  struct Named {
    std::string text, from;
  };
  // --device, else the environment's RONDO_DEVICE, else auto. Throws InputError for a RONDO_DEVICE
  // that is no device.
  Named named() const;

  std::string text;                  // of --device
  std::vector<std::string> kernels;  // OP=VARIANT
};

void add_device_option(Command& command, DeviceChoice* choice);

// For CommandOption::check(): what is wrong with a text that names no device; empty for auto, cpu,
// cuda, cuda:N and sim.
std::string check_device_name(const std::string& text);

// The device of this name, other than auto. Throws InputError, which says that it was named `from`
// there, when it is not there.
DeviceId require_device(const std::string& text, const std::string& from = "--device ");

// auto: the first GPU when one answers, otherwise the CPU; *note says why when this program could
// have used a GPU. Prefers the variants of --kernels from now on. Throws InputError for what is not
// there, and for variants that the device does not have.
DeviceId resolve(const DeviceChoice& choice, std::string* note = nullptr);

// What to tell of GPUs that auto does not take, since what was asked for has not been measured on
// them; empty where there are none.
std::string of_idle_gpus(int gpus);

// After a command: says on standard error which variants of --kernels took none of its calls.
void tell_preferred_in_vain();

}  // namespace rondo
