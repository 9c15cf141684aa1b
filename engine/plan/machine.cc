#include "engine/plan/machine.h"

#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

constexpr double micro = 1e-6, nano = 1e-9;

std::string key_of(std::string_view op, DType dtype) { return str(op, "/", name_of(dtype)); }

// H200 SXM. Peaks of the data sheet: 989 Tflop/s bf16 and 67 Tflop/s f32 (dense), 4.8 TB/s, of
// which 60 and 80 % are taken. A launch is taken to cost 2 us. So is a step 1 us, in which the
// whole device waits for itself once: published floors of recurrent steps are 0.45 to 3.2 us. What
// steps read again stays on the chip.
DeviceModel h200() {
  DeviceModel d;
  d.name = "h200";
  d.kind = DeviceKind::cuda;
  d.memory_bytes = 141e9;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double peak = dtype == DType::bf16 ? 989e12 : 67e12;
    d.rates[key_of("other", dtype)] = {.launch = 2 * micro,
                                       .step = 1 * micro,
                                       .operation = 1 / (0.6 * peak),
                                       .byte = 1 / (0.8 * 4.8e12)};
  }
  return d;
}

const std::vector<LinkModel>& links() {
  static const std::vector<LinkModel> all = {
      // PCIe 5.0 x16: 64 GB/s a direction on the wire, 80 % of it.
      {"pcie", false, 10 * micro, 51e9},
      // NVLink 4 within an H200 node: 450 GB/s a direction on the wire.
      {"nvlink", false, 5 * micro, 370e9},
      // One 400 Gb/s NIC per node, 90 % of it; 330 million messages per second.
      {"infiniband", false, 8 * micro, 45e9, 0, 0, 3 * nano},
      // Eight of them per node, as nodes of eight H200s are sold.
      {"infiniband8", false, 8 * micro, 360e9, 0, 0, 3 * nano},
  };
  return all;
}

}  // namespace

const char* class_of(const NodeWork& work) {
  if (work.step_bytes > 0) return "loop";
  return work.operations > 0 && work.steps == 0 ? "product" : "other";
}

double DeviceModel::seconds(std::string_view op, DType dtype, const NodeWork& work) const {
  for (const std::string_view known : {op, std::string_view(class_of(work)), {"other"}}) {
    const auto found = rates.find(key_of(known, dtype));
    if (found != rates.end()) return found->second.seconds(work);
  }
  fail_input("device '", name, "' has no rates for ", name_of(dtype));
}

double DeviceModel::pass_seconds(int64_t weights, int arrays) const {
  return seconds("optimizer", DType::f32, {.bytes = 4.0 * static_cast<double>(weights) * arrays});
}

DeviceModel device_preset(std::string_view name) {
  if (name == "h200") return h200();
  fail_input(
      "'", name,
      "' is neither the device h200 nor a file that 'rondo plan --measure FILE' has written");
}

LinkModel link_preset(std::string_view name) {
  std::string known;
  for (const LinkModel& l : links()) {
    if (l.name == name) return l;
    known += known.empty() ? l.name : ", " + l.name;
  }
  fail_input("unknown link '", name, "', expected ", known,
             " or a file that 'rondo bench links --out FILE' has written");
}

}  // namespace rondo::plan
