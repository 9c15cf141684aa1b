#include "engine/plan/machine/machine.h"

#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

template <class... Args>
void require(bool condition, const Args&... message) {
  if (!condition) fail_input(message...);
}

constexpr double micro = 1e-6, nano = 1e-9;
constexpr double nvlink_bandwidth = 370e9;

std::string key_of(std::string_view op, DType dtype) { return str(op, "/", name_of(dtype)); }

// H200 SXM. Peaks of the data sheet: 989 Tflop/s bf16 and 67 Tflop/s f32 (dense), 4.8 TB/s. Matrix
// products are taken at 60 %, memory at 80 % of them.
//
// The LSTM's step: published floors for R held on chip, forward, at batch sizes 16 to 128, are 0.45
// us at H = 256, 0.75 to 1.2 us at H = 512 and 1.0 to 3.2 us at H = 1024. They are
// 0.35 us + 0.35 ns * H + 2.3 fs per recurrent flop, within 20 %; half as much again is allowed
// for. Backward steps exchange f32 sums: taken as 1.5 times the forward ones.
// NCCL's sums: logs of eight H100s show 24 channels, a block each, for which NVLink's bandwidth
// below is assumed to be divided evenly.
// The CTC recursion: 100 cycles per frame at 1.76 GHz, counted from the kernel's instructions.
DeviceModel h200() {
  DeviceModel d;
  d.name = "h200";
  d.kind = DeviceKind::cuda;
  d.memory_bytes = 141e9;
  d.multiprocessors = 132;
  d.sum_blocks = 24;
  d.sum_block_bandwidth = nvlink_bandwidth / d.sum_blocks;
  const double byte = 1 / (0.8 * 4.8e12), call = 2 * micro;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double flop = 1 / (0.6 * (dtype == DType::bf16 ? 989e12 : 67e12));
    OpCost matrix{.call = call, .flop = flop, .byte = byte};
    for (const char* op : {"linear", "linear_grad_input", "linear_grad_weight", "lstm_weight_grad"})
      d.costs[key_of(op, dtype)] = matrix;
    OpCost lstm = matrix;
    lstm.step = 1.5 * 0.35 * micro;
    lstm.exchange = 1.5 * 0.35 * nano;
    lstm.recurrent_flop = 1.5 * 2.3e-15 * (dtype == DType::bf16 ? 1 : 4);
    lstm.byte = 0;
    d.costs[key_of("lstm", dtype)] = lstm;
    lstm.step *= 1.5;
    lstm.exchange *= 1.5;
    lstm.recurrent_flop *= 1.5;
    d.costs[key_of("lstm_backward", dtype)] = lstm;
    d.costs[key_of("ctc", dtype)] = {.call = 3 * call, .step = 100 / 1.76e9, .byte = byte};
    d.costs[key_of("other", dtype)] = {.call = call, .byte = byte};
  }
  return d;
}

const std::vector<LinkModel>& links() {
  static const std::vector<LinkModel> all = {
      // PCIe 5.0 x16: 64 GB/s a direction on the wire, 80 % of it.
      {"pcie", false, 10 * micro, 51e9},
      // NVLink 4 within an H200 node: 450 GB/s a direction on the wire.
      {"nvlink", false, 5 * micro, nvlink_bandwidth},
      // One 400 Gb/s NIC per node, 90 % of it; 330 million messages per second.
      {"infiniband", false, 8 * micro, 45e9, 0, 0, 3e-9},
      // Eight of them per node, as nodes of eight H200s are sold.
      {"infiniband8", false, 8 * micro, 360e9, 0, 0, 3e-9},
  };
  return all;
}

}  // namespace

const OpCost& DeviceModel::cost_of(std::string_view op, DType dtype) const {
  auto found = costs.find(key_of(op, dtype));
  if (found == costs.end()) found = costs.find(key_of("other", dtype));
  require(found != costs.end(), "device '", name, "' has no costs for ", name_of(dtype));
  return found->second;
}

std::vector<std::string> device_preset_names() { return {"h200"}; }

DeviceModel device_preset(std::string_view name) {
  require(name == "h200", "'", name,
          "' is neither the device h200 nor a file that 'rondo plan --measure FILE' has written");
  return h200();
}

std::vector<std::string> link_preset_names() {
  std::vector<std::string> names;
  for (const LinkModel& l : links()) names.push_back(l.name);
  return names;
}

LinkModel link_preset(std::string_view name) {
  std::string known;
  for (const LinkModel& l : links()) {
    if (l.name == name) return l;
    known += known.empty() ? l.name : ", " + l.name;
  }
  throw InputError(str("unknown link '", name, "', expected ", known,
                       " or a file that 'rondo bench links --out FILE' has written"));
}

}  // namespace rondo::plan
