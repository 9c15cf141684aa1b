#include "tools/device_ranks.h"

#include "comm/staged_group.h"
#include "kernels/base/error.h"
#ifdef RONDO_HAVE_NCCL
#include "comm/nccl/nccl_group.h"
#include "engine/parallel/device_arithmetic.h"
#endif

namespace rondo {
namespace {

// Groups on one transport are told apart by their ids; the trainer's own has 0.
constexpr uint16_t sums_group = 1;

#ifdef RONDO_HAVE_NCCL
std::unique_ptr<DeviceGroup> over_nccl(Device& device, Transport& transport, Store& store,
                                       const std::string& name, CommClock::duration timeout) {
  std::string why;
  NcclOptions o;
  o.nccl = find_nccl(&why);
  if (o.nccl == nullptr) fail_input("ranks on GPUs need NCCL: ", why);
  o.device = &device;
  o.arithmetic = device_arithmetic(device);
  o.rank = transport.rank();
  o.world_size = transport.world_size();
  o.store = &store;
  o.name = name;
  o.timeout = timeout;
  return make_nccl_group(o);
}
#else
std::unique_ptr<DeviceGroup> over_nccl(Device&, Transport&, Store&, const std::string&,
                                       CommClock::duration) {
  fail_input("ranks on GPUs need NCCL, without whose header this program was built");
}
#endif

}  // namespace

DeviceId device_of_rank(const DeviceChoice& choice, DeviceId device, int local_rank,
                        int local_size) {
  if (device.kind != DeviceKind::cuda || local_size == 1) return device;
  const DeviceChoice::Named named = choice.named();
  if (named.text.find(':') != std::string::npos) {
    fail_input(named.from, named.text, " with ", local_size,
               " ranks: each has a GPU of its own, expected cuda");
  }
  std::string why;
  if (find_device(DeviceKind::cuda, &why, local_size - 1) == nullptr) {
    fail_input(named.from, named.text, " with ", local_size,
               " ranks on this machine, each with a GPU of its own: ", why);
  }
  return {DeviceKind::cuda, local_rank};
}

std::unique_ptr<DeviceGroup> make_device_group(DeviceId id, Transport& transport, Store& store,
                                               const std::string& name,
                                               CommClock::duration timeout) {
  if (id.kind == DeviceKind::cpu) return nullptr;
  std::string why;
  Device* const device = find_device(id.kind, &why, id.index);
  if (device == nullptr) fail_input("device ", name_of(id.kind), " is not available: ", why);
  if (id.kind == DeviceKind::cuda) return over_nccl(*device, transport, store, name, timeout);
  GroupOptions g;
  g.id = sums_group;
  g.timeout = timeout;
  return make_staged_group(*device, make_ring_group(transport, g), timeout);
}

}  // namespace rondo
