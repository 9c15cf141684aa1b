#include "tools/command_line/device_option.h"

#include <cstdio>
#include <cstdlib>

#include "engine/trial/trial.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/conditions.h"
#include "tools/command_line/command_line.h"

namespace rondo {

std::string check_device_name(const std::string& text) {
  if (text == "auto" || device_named(text)) return "";
  return str("'", shortened(text), "' is no device; expected auto, cpu, cuda, cuda:N or sim");
}

DeviceId require_device(const std::string& text, const std::string& from) {
  const std::optional<DeviceId> id = device_named(text);
  RONDO_CHECK(id, "no device is called ", text);
  std::string why;
  if (find_device(id->kind, &why, id->index) == nullptr) {
    fail_input(from, text, ": ", why);
  }
  return *id;
}

// The variable is read here rather than by the parser, which would do so for commands that have no
// device too, and blame a wrong value on the option.
DeviceChoice::Named DeviceChoice::named() const {
  if (!text.empty()) return {text, "--device "};
  const char* variable = std::getenv("RONDO_DEVICE");
  if (variable == nullptr || *variable == 0) return {"auto", "--device "};
  if (const std::string wrong = check_device_name(variable); !wrong.empty()) {
    fail_input("the environment's RONDO_DEVICE: ", wrong);
  }
  return {variable, "RONDO_DEVICE="};
}

void add_device_option(Command& command, DeviceChoice* choice) {
  command
      .add_option("--device", choice->text,
                  "auto (a GPU if there is one), cpu, cuda, cuda:N, or sim (the GPU kernels, "
                  "simulated); default: what RONDO_DEVICE names, else auto")
      .check(check_device_name)
      .type_name("NAME");
  command
      .add_option(
          "--kernels", choice->kernels,
          "variants to prefer where they fit, with commas between (info --kernels lists them)")
      .delimiter(',')
      .one_word()
      .type_name("OP=VARIANT");
}

namespace {

DeviceId chosen_device(const DeviceChoice& choice, std::string* note) {
  const DeviceChoice::Named named = choice.named();
  if (named.text != "auto") return require_device(named.text, named.from);
  if (!built_with_cuda()) return DeviceKind::cpu;
  std::string why;
  if (find_device(DeviceKind::cuda, &why) != nullptr) return DeviceKind::cuda;
  if (note) *note = str("no GPU (", why, "): on the CPU");
  return DeviceKind::cpu;
}

}  // namespace

DeviceId resolve(const DeviceChoice& choice, std::string* note) {
  const DeviceId device = chosen_device(choice, note);
  for (const std::string& preference : choice.kernels) {
    const size_t equals = preference.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == preference.size()) {
      fail_input("--kernels '", preference, "': expected OP=VARIANT, as in lstm_forward=portable");
    }
    prefer_variant(preference.substr(0, equals), preference.substr(equals + 1),
                   backend_of(device.kind));
  }
  choose_known_kernels(device);  // who needs more of them tries those (train)
  return device;
}

std::string of_idle_gpus(int gpus) {
  if (gpus == 0) return "";
  return str("on the CPU, though there ", gpus == 1 ? "is a GPU" : str("are ", gpus, " GPUs"),
             ": --device auto takes none for several ranks, pipelines, training.tbptt, ",
             "world_invariant or --lockstep-ref; --device cuda does");
}

void tell_preferred_in_vain() {
  for (const Variant* v : preferred_in_vain()) {
    std::fprintf(stderr, "warning: --kernels %s=%s took none of the calls; it is for: %s\n", v->op,
                 v->name, condition_of(*v).c_str());
  }
}

}  // namespace rondo
