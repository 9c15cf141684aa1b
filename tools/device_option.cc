#include "tools/device_option.h"

#include "kernels/base/error.h"
#include "kernels/devices.h"
#include "kernels/ops.h"

namespace rondo {

void add_device_option(CLI::App& command, DeviceChoice* choice) {
  command
      .add_option("--device", choice->text, "auto, cpu, cuda, or sim (the GPU kernels, simulated)")
      ->check(CLI::IsMember({"auto", "cpu", "sim", "cuda"}))
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option(
          "--kernels", choice->kernels,
          "variants to prefer where they fit, with commas between (info --kernels lists them)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("OP=VARIANT");
}

DeviceKind resolve(const DeviceChoice& choice) {
  for (const std::string& preference : choice.kernels) {
    const size_t equals = preference.find('=');
    if (equals == std::string::npos || equals + 1 == preference.size()) {
      fail_input("--kernels '", preference, "': expected OP=VARIANT, as in lstm_forward=portable");
    }
    prefer_variant(preference.substr(0, equals), preference.substr(equals + 1));
  }
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
