#include "tools/device_option.h"

#include "kernels/base/error.h"
#include "kernels/devices.h"

namespace rondo {

void add_device_option(CLI::App& command, DeviceChoice* choice) {
  command
      .add_option("--device", choice->text, "auto, cpu, cuda, or sim (the GPU kernels, simulated)")
      ->check(CLI::IsMember({"auto", "cpu", "sim", "cuda"}))
      ->type_name("NAME")
      ->capture_default_str();
}

DeviceKind resolve(const DeviceChoice& choice) {
  // The GPU kernels are not yet chosen by "auto": they have not been measured against the CPU's.
  if (choice.text == "auto" || choice.text == "cpu") return DeviceKind::cpu;
  if (choice.text == "sim") return DeviceKind::sim;
  if (choice.text == "cuda") {
    std::string why;
    if (find_device(DeviceKind::cuda, &why) == nullptr) fail_input("--device cuda: ", why);
    return DeviceKind::cuda;
  }
  fail_input("--device '", choice.text, "': expected auto, cpu, sim or cuda");
}

}  // namespace rondo
