#include "tools/ranks/device_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "comm/group/staged_group.h"
#include "engine/parallel/launch_environment.h"
#include "kernels/base/error.h"
#ifdef RONDO_HAVE_NCCL
#include "comm/nccl/nccl_group.h"
#include "engine/reduce/device_arithmetic.h"
#include "tools/ranks/local_ranks.h"
#endif

namespace rondo {
namespace {

// Groups on one transport are told apart by their ids; the trainer's own has 0.
constexpr uint16_t sums_group = 1;

// A group on a rank's device: which ranks, and how they find each other.
struct Members {
  std::vector<int> world_ranks;  // in the group's order
  std::string name;              // in the store
  uint16_t id;                   // on the transport
};

Members all_ranks(const Transport& transport, const std::string& name) {
  Members m{std::vector<int>(static_cast<size_t>(transport.world_size())), name, sums_group};
  std::iota(m.world_ranks.begin(), m.world_ranks.end(), 0);
  return m;
}

#ifdef RONDO_HAVE_NCCL
bool have_nccl() { return find_nccl() != nullptr; }

// Without destructors, which would wait for the GPU.
void end_this_process(const std::string& why) {
  const std::string line = str("rondo: ", why, "; NCCL does not end what it has begun\n");
  const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  (void)written;  // there is nobody else to tell
  ::_exit(exit_comm_failure);
}

std::unique_ptr<DeviceGroup> over_nccl(Device& device, Transport& transport, Store& store,
                                       const Members& members, CommClock::duration timeout,
                                       const NcclChoice& choice) {
  std::string why;
  NcclOptions o;
  o.nccl = find_nccl(&why);
  if (o.nccl == nullptr) fail_input("ranks on GPUs need NCCL: ", why);
  o.device = &device;
  o.arithmetic = device_arithmetic(device);
  const auto& ranks = members.world_ranks;
  o.rank =
      static_cast<int>(std::find(ranks.begin(), ranks.end(), transport.rank()) - ranks.begin());
  o.world_size = static_cast<int>(ranks.size());
  o.store = &store;
  o.name = members.name;
  o.timeout = timeout;
  o.hung = end_this_process;
  o.algorithm = choice.fixed_order ? NcclAlgorithm::ring : NcclAlgorithm::nccl;
  o.most_blocks = choice.most_blocks;
  return make_nccl_group(o);
}
#else
bool have_nccl() { return false; }

std::unique_ptr<DeviceGroup> over_nccl(Device&, Transport&, Store&, const Members&,
                                       CommClock::duration, const NcclChoice&) {
  fail_input("ranks on GPUs need NCCL, without whose header this program was built");
}
#endif

std::unique_ptr<DeviceGroup> make_group(Device& device, Transport& transport, Store& store,
                                        const Members& members, CommClock::duration timeout,
                                        const NcclChoice& nccl) {
  if (device.kind() == DeviceKind::cuda) {
    return over_nccl(device, transport, store, members, timeout, nccl);
  }
  GroupOptions g;
  g.members = members.world_ranks;
  g.id = members.id;
  g.timeout = timeout;
  return make_staged_group(device, make_ring_group(transport, g), timeout);
}

}  // namespace

NcclChoice nccl_choice(const ParallelConfig& parallel) {
  return {parallel.deterministic == Deterministic::fixed_order, parallel.nccl_blocks};
}

DeviceId device_of_rank(const DeviceChoice& choice, DeviceId device, int local_rank,
                        int local_size) {
  if (device.kind != DeviceKind::cuda || local_size == 1) return device;
  const DeviceChoice::Named named = choice.named();
  if (named.text.find(':') != std::string::npos) {
    fail_input(named.from, named.text, " with ", local_size,
               " ranks: each has a GPU of its own, expected cuda");
  }
  std::string why;
  const int visible = gpu_count(&why);
  if (visible == 0) fail_input(named.from, named.text, ": ", why);
  try {
    return {DeviceKind::cuda, gpu_of_rank(local_rank, local_size, visible,
                                          [](const char* name) { return std::getenv(name); })};
  } catch (const InputError& e) {
    fail_input(named.from, named.text, ": ", e.what());
  }
}

std::unique_ptr<DeviceGroup> make_device_group(DeviceId id, Transport& transport, Store& store,
                                               const std::string& name, CommClock::duration timeout,
                                               const NcclChoice& nccl) {
  if (id.kind == DeviceKind::cpu) return nullptr;
  return make_group(require_device(id.kind, id.index), transport, store, all_ranks(transport, name),
                    timeout, nccl);
}

DeviceGroupMaker make_device_groups(DeviceId id, Transport& transport, Store& store,
                                    const std::string& name, CommClock::duration timeout,
                                    const NcclChoice& nccl) {
  if (id.kind == DeviceKind::cpu || (id.kind == DeviceKind::cuda && !have_nccl())) return {};
  Device& device = require_device(id.kind, id.index);
  return [&device, &transport, &store, name, timeout, nccl](const std::vector<int>& members,
                                                            uint16_t group) {
    std::string unique = str(name, "-", group);
    for (int rank : members) unique += str("-", rank);
    return make_group(device, transport, store, {members, unique, group}, timeout, nccl);
  };
}

}  // namespace rondo
