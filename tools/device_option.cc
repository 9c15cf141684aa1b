#include "tools/device_option.h"

#include <charconv>
#include <cstdio>

#include "kernels/base/error.h"
#include "kernels/ops.h"

namespace rondo {
namespace {

constexpr std::string_view cuda_with_index = "cuda:";

// The index in "cuda:1"; -1: it is none.
int gpu_index(std::string_view text) {
  text.remove_prefix(cuda_with_index.size());
  int index = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  return error == std::errc() && end == text.data() + text.size() && index >= 0 ? index : -1;
}

std::string check_name(const std::string& text) {
  const bool known = text == "auto" || text == "cpu" || text == "sim" || text == "cuda" ||
                     (text.starts_with(cuda_with_index) && gpu_index(text) >= 0);
  return known ? "" : str("'", text, "' is no device; expected auto, cpu, cuda, cuda:N or sim");
}

DeviceId gpu(const std::string& text, int index) {
  std::string why;
  if (find_device(DeviceKind::cuda, &why, index) == nullptr) {
    fail_input("--device ", text, ": ", why);
  }
  return {DeviceKind::cuda, index};
}

}  // namespace

void add_device_option(CLI::App& command, DeviceChoice* choice) {
  command
      .add_option("--device", choice->text,
                  "auto (a GPU if there is one), cpu, cuda, cuda:N, or sim (the GPU kernels, "
                  "simulated)")
      ->check(CLI::Validator(check_name, ""))
      ->type_name("NAME")
      ->envname("RONDO_DEVICE")
      ->capture_default_str();
  command
      .add_option(
          "--kernels", choice->kernels,
          "variants to prefer where they fit, with commas between (info --kernels lists them)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("OP=VARIANT");
}

DeviceId resolve(const DeviceChoice& choice) {
  for (const std::string& preference : choice.kernels) {
    const size_t equals = preference.find('=');
    if (equals == std::string::npos || equals + 1 == preference.size()) {
      fail_input("--kernels '", preference, "': expected OP=VARIANT, as in lstm_forward=portable");
    }
    prefer_variant(preference.substr(0, equals), preference.substr(equals + 1));
  }
  if (choice.text == "cpu") return DeviceKind::cpu;
  if (choice.text == "sim") return DeviceKind::sim;
  if (choice.text == "cuda") return gpu(choice.text, 0);
  if (choice.text != "auto") return gpu(choice.text, gpu_index(choice.text));
  if (!built_with_cuda()) return DeviceKind::cpu;
  std::string why;
  if (find_device(DeviceKind::cuda, &why) != nullptr) return DeviceKind::cuda;
  std::fprintf(stderr, "rondo: no GPU (%s): using the CPU\n", why.c_str());
  return DeviceKind::cpu;
}

}  // namespace rondo
