// A larger program of somebody else's, with folders engine/ and comm/ of its own. It calls a kernel
// by itself, sums over ranks, and reads a configuration: each through public headers alone.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <rondo/config.h>
#include <rondo/ctc.h>
#include <rondo/device.h>
#include <rondo/process_group.h>
#include <rondo/recognizer.h>
#include <rondo/transports.h>
#include <rondo/version.h>

#include "comm/tcp/tcp_transport.h"
#include "engine/io/file.h"

namespace {

// Two frames, two classes of equal probability, the label 1: three of the four paths are it.
float ctc_loss() {
  std::vector<float> logits(4), loss(1);
  const int32_t lengths[] = {2}, label = 1, offsets[] = {0, 1};
  const rondo::PackedHost layout = rondo::build_packed(lengths);
  rondo::ThreadPool pool(2);
  const rondo::Context context{rondo::Backend::cpu, &rondo::cpu_device(), nullptr, &pool};
  rondo::CtcArgs args;
  args.layout = layout.view();
  args.logits = {logits.data(), rondo::DType::f32, {2, 2}};
  args.labels = &label;
  args.label_offsets = offsets;
  args.max_label_length = 1;
  args.loss = {loss.data(), rondo::DType::f32, {1}};
  const size_t bytes =
      rondo::ctc_workspace_bytes(context, args.layout.capacity, rondo::DType::f32, 2, 1, false);
  const rondo::Buffer workspace(rondo::cpu_device(), bytes, "CTC's workspace");
  args.workspace = {workspace.data(), rondo::DType::u8, {static_cast<int64_t>(bytes)}};
  rondo::run(context, args);
  return loss[0];
}

// 1 + 2 + 3, as each of three ranks sees it.
std::vector<float> sums_of_ranks() {
  std::vector<float> values{1, 2, 3};
  rondo::run_ranks(3, [&](int rank, rondo::Transport& transport) {
    const auto group = rondo::make_ring_group(transport);
    const rondo::TensorView value(&values[static_cast<size_t>(rank)], rondo::DType::f32, {1});
    group->all_reduce(value, rondo::Reduction::sum).wait();
  });
  return values;
}

int wrong(const char* what) {
  std::printf("%s is wrong\n", what);
  return 1;
}

}  // namespace

int main() {
  static_assert(RONDO_VERSION_MAJOR >= 0 && RONDO_VERSION_MINOR >= 0 && RONDO_VERSION_PATCH >= 0);
  const std::string numbers = std::to_string(RONDO_VERSION_MAJOR) + "." +
                              std::to_string(RONDO_VERSION_MINOR) + "." +
                              std::to_string(RONDO_VERSION_PATCH);
  if (numbers != RONDO_VERSION) return wrong("the version");
  if (!(std::abs(ctc_loss() + std::log(0.75f)) < 1e-6f)) return wrong("the loss");
  if (sums_of_ranks() != std::vector<float>{6, 6, 6}) return wrong("the sum over ranks");
  if (rondo::parse_config("[training]\nepochs = 7\n", "host.toml").training.epochs != 7) {
    return wrong("the configuration");
  }
  try {
    rondo::Recognizer model("there/is/none.safetensors", rondo::DeviceKind::cpu);
    return wrong("a missing model");
  } catch (const rondo::InputError& e) {
    if (std::strstr(e.what(), "none.safetensors") == nullptr) return wrong("the message");
  }
  if (host::file_extension("none.safetensors") != ".safetensors")
    return wrong("the host's own header");
  if (host::LineError{} != host::LineError::none) return wrong("the host's own header");
  std::printf("rondo %s\n", RONDO_VERSION);
  return 0;
}
