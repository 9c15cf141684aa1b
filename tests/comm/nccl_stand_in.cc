#include "tests/comm/nccl_stand_in.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>

#include "kernels/base/device.h"
#include "kernels/base/dtype.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/comm/launch_order.h"

namespace {

using namespace rondo;

constexpr auto patience_with_aborting = std::chrono::seconds(60);  // nobody should need it

struct Communicator;

enum class Kind : uint8_t { send, recv, all_reduce, broadcast, all_gather, reduce_scatter };

struct Op {
  Kind kind;
  Communicator* owner;
  const void* from;
  void* to;
  size_t count;
  ncclDataType_t type;
  int peer;  // or root
  bool done = false;

  bool matches(const Op& o) const {
    return kind == o.kind && count == o.count && type == o.type && peer == o.peer;
  }
};

// What a group puts on one stream.
struct Launch {
  std::shared_ptr<Communicator> comm;
  std::vector<std::shared_ptr<Op>> ops;
  detail::StreamImpl* stream;
  bool begun = false;
};

struct World {
  World(int n, int which) : size(n), number(which), members(static_cast<size_t>(n)) {}
  const int size, number;
  std::vector<Communicator*> members;  // by rank
  int joined = 0, finalized = 0, aborted = 0;
  std::set<int> in_collectives;             // ranks that have come to their first
  std::set<std::pair<int, int>> connected;  // a rank and one it has exchanged a message with
  // By sender and receiver; by place in the order of collectives.
  struct Channel {
    std::deque<std::shared_ptr<Op>> sends, recvs;
  };
  std::map<std::pair<int, int>, Channel> channels;
  std::map<int64_t, std::vector<std::shared_ptr<Op>>> collectives;
};

struct Communicator {
  std::shared_ptr<World> world;
  int rank;
  ncclResult_t state = ncclSuccess;
  bool in_call = false, finalized = false, aborted = false, gone = false;
  int groups = 0, launched_collectives = 0;
  int64_t collectives = 0;
};

// Everything, under one lock.
struct Process {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::weak_ptr<World>> worlds;  // by unique id
  std::vector<std::shared_ptr<Communicator>> communicators;
  int next_id = 1;
  rondo::test::StandInFaults faults;
  rondo::test::StandInRecord record;
  rondo::test::LaunchOrder order;
  int worlds_made = 0;
  int connecting = 0;
  int ended_below = 0;  // worlds with lower ids come about no more
};
Process& process() {
  static Process p;
  return p;
}

thread_local int group_depth = 0;
thread_local std::vector<std::pair<std::shared_ptr<Op>, cudaStream_t>> group_ops;

Communicator& of(ncclComm_t comm) { return *reinterpret_cast<Communicator*>(comm); }

ncclResult_t misuse(const std::string& what) {
  process().record.misuses.push_back(what);
  return ncclInvalidArgument;
}

// Whether the communicator takes a call.
bool ready(const Communicator& c, const char* call) {
  if (c.gone) {
    (void)misuse(str(call, " on a communicator that is gone"));
    return false;
  }
  if (!c.in_call) return true;
  (void)misuse(str(call, " while another call is in progress"));
  return false;
}

bool fails(int rank, int groups) {
  const auto& f = process().faults;
  return rank == f.failing_rank && f.error != ncclSuccess && groups >= f.groups_before;
}

void note_fault(Communicator& c) {
  if (fails(c.rank, c.groups)) c.state = process().faults.error;
}

size_t size_of_type(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

double element(const void* data, ncclDataType_t type, size_t i) {
  switch (type) {
    case ncclBfloat16:
      return static_cast<double>(static_cast<float>(static_cast<const bf16*>(data)[i]));
    case ncclFloat64:
      return static_cast<const double*>(data)[i];
    case ncclInt32:
      return static_cast<const int32_t*>(data)[i];
    default:
      return static_cast<double>(static_cast<const float*>(data)[i]);
  }
}

void set_element(void* data, ncclDataType_t type, size_t i, double value) {
  switch (type) {
    case ncclBfloat16:
      static_cast<bf16*>(data)[i] = bf16(static_cast<float>(value));
      return;
    case ncclFloat64:
      static_cast<double*>(data)[i] = value;
      return;
    case ncclInt32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      return;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

std::vector<double> sums(const std::vector<std::shared_ptr<Op>>& ops, size_t begin, size_t n) {
  std::vector<double> sum(n, 0.0);
  for (const auto& op : ops) {
    for (size_t i = 0; i < n; ++i) sum[i] += element(op->from, op->type, begin + i);
  }
  return sum;
}

void carry_out(const std::vector<std::shared_ptr<Op>>& ops) {
  const Op& first = *ops.front();
  const size_t bytes = first.count * size_of_type(first.type);
  if (first.kind == Kind::all_reduce) {
    const std::vector<double> sum = sums(ops, 0, first.count);
    for (const auto& op : ops) {
      for (size_t i = 0; i < op->count; ++i) set_element(op->to, op->type, i, sum[i]);
    }
  } else if (first.kind == Kind::reduce_scatter) {
    std::vector<std::vector<double>> parts;
    for (size_t r = 0; r < ops.size(); ++r)
      parts.push_back(sums(ops, r * first.count, first.count));
    for (size_t r = 0; r < ops.size(); ++r) {
      for (size_t i = 0; i < first.count; ++i) set_element(ops[r]->to, first.type, i, parts[r][i]);
    }
  } else if (first.kind == Kind::broadcast) {
    const void* const root = ops[static_cast<size_t>(first.peer)]->from;
    for (const auto& op : ops) std::memmove(op->to, root, bytes);
  } else {  // all_gather
    for (const auto& op : ops) {
      for (size_t r = 0; r < ops.size(); ++r) {
        std::memmove(static_cast<std::byte*>(op->to) + r * bytes, ops[r]->from, bytes);
      }
    }
  }
  for (const auto& op : ops) op->done = true;
}

void post(World& world, const std::shared_ptr<Op>& op) {
  Communicator& c = *op->owner;
  if (op->kind == Kind::send) {
    world.channels[{c.rank, op->peer}].sends.push_back(op);
  } else if (op->kind == Kind::recv) {
    world.channels[{op->peer, c.rank}].recvs.push_back(op);
  } else {
    auto& all = world.collectives[c.collectives++];
    all.resize(static_cast<size_t>(world.size));
    all[static_cast<size_t>(c.rank)] = op;
  }
}

void match(World& world) {
  for (auto& [ends, channel] : world.channels) {
    while (!channel.sends.empty() && !channel.recvs.empty()) {
      Op& send = *channel.sends.front();
      Op& recv = *channel.recvs.front();
      if (send.count != recv.count || send.type != recv.type) break;
      std::memcpy(recv.to, send.from, send.count * size_of_type(send.type));
      send.done = recv.done = true;
      channel.sends.pop_front();
      channel.recvs.pop_front();
    }
  }
  for (auto it = world.collectives.begin(); it != world.collectives.end();) {
    const auto& ops = it->second;
    const bool complete = std::all_of(
        ops.begin(), ops.end(), [&](const auto& op) { return op && op->matches(*ops.front()); });
    if (complete) carry_out(ops);
    it = complete ? world.collectives.erase(it) : std::next(it);
  }
}

// What the stream asks again and again, as a kernel that spins.
bool progress(Launch& launch) {
  const std::lock_guard lock(process().mutex);
  Communicator& c = *launch.comm;
  if (c.aborted) return true;
  if (c.state != ncclSuccess) return false;
  if (!launch.begun) {
    launch.begun = true;
    for (const auto& op : launch.ops) post(*c.world, op);
  }
  match(*c.world);
  return std::all_of(launch.ops.begin(), launch.ops.end(), [](const auto& op) { return op->done; });
}

// Waits, in a call on this communicator, for what other ranks do. False when it is aborted instead.
template <class Condition>
bool wait_in_call(std::unique_lock<std::mutex>& lock, Communicator& c, const Condition& condition) {
  c.in_call = true;
  process().changed.wait(lock, [&] { return c.aborted || condition(); });
  c.in_call = false;
  return !c.aborted;
}

// The ranks that what is launched needs are connected, each by coming here.
bool connect(std::unique_lock<std::mutex>& lock, const Launch& launch) {
  Communicator& c = *launch.comm;
  World& w = *c.world;
  bool collective = false;
  std::set<int> peers;
  for (const auto& op : launch.ops) {
    const bool message = op->kind == Kind::send || op->kind == Kind::recv;
    if (message) peers.insert(op->peer);
    collective = collective || !message;
  }
  if (collective) w.in_collectives.insert(c.rank);
  for (int peer : peers) w.connected.insert({c.rank, peer});
  process().changed.notify_all();
  return wait_in_call(lock, c, [&] {
    if (collective && w.in_collectives.size() < static_cast<size_t>(w.size)) return false;
    return std::all_of(peers.begin(), peers.end(), [&](int peer) {
      return w.connected.contains({peer, c.rank});
    });
  });
}

// ---- NCCL's functions ----

ncclResult_t get_version(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* get_error_string(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclSystemError:
      return "system error";
    default:
      return "some error";
  }
}
const char* get_last_error(ncclComm_t) { return ""; }

ncclResult_t get_unique_id(ncclUniqueId* id) {
  const std::lock_guard lock(process().mutex);
  std::memset(id, 0, sizeof *id);
  const std::string name = "world " + std::to_string(process().next_id++);
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

ncclResult_t comm_init_rank_config(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                   ncclConfig_t* config) {
  Process& p = process();
  std::unique_lock lock(p.mutex);
  const ncclConfig_t expected = NCCL_CONFIG_INITIALIZER;
  if (config == nullptr || config->size != expected.size || config->magic != expected.magic ||
      config->version != expected.version) {
    return misuse("a configuration that was not initialized");
  }
  if (config->blocking != 1) return misuse("a communicator that does not block");
  if (p.faults.groups_before == 0 && fails(rank, 0)) return p.faults.error;
  std::weak_ptr<World>& known = p.worlds[id.internal];
  auto world = known.lock();
  if (!world) {
    known = world = std::make_shared<World>(size, process().worlds_made++);
  }
  if (world->size != size || rank < 0 || rank >= size ||
      world->members[static_cast<size_t>(rank)] != nullptr) {
    return misuse("ranks that do not fit together");
  }
  auto c = std::make_shared<Communicator>();
  c->world = world;
  c->rank = rank;
  world->members[static_cast<size_t>(rank)] = c.get();
  ++world->joined;
  p.changed.notify_all();
  ++p.connecting;
  const int number = std::atoi(id.internal + std::strlen("world "));
  p.changed.wait(lock, [&] { return world->joined == size || number < p.ended_below; });
  --p.connecting;
  p.changed.notify_all();
  if (world->joined < size) return ncclSystemError;
  p.communicators.push_back(c);
  ++p.record.communicators;
  *comm = reinterpret_cast<ncclComm_t>(c.get());
  return ncclSuccess;
}

ncclResult_t comm_get_async_error(ncclComm_t comm, ncclResult_t* result) {
  const std::lock_guard lock(process().mutex);
  Communicator& c = of(comm);
  if (c.gone) return misuse("ncclCommGetAsyncError on a communicator that is gone");
  *result = c.state;
  return ncclSuccess;
}

ncclResult_t comm_finalize(ncclComm_t comm) {
  std::unique_lock lock(process().mutex);
  Communicator& c = of(comm);
  if (!ready(c, "ncclCommFinalize")) return ncclInvalidArgument;
  const std::shared_ptr<World> w = c.world;
  ++w->finalized;
  process().changed.notify_all();
  c.finalized = wait_in_call(lock, c, [&] { return w->finalized == w->size; });
  return c.finalized ? ncclSuccess : ncclInternalError;
}

ncclResult_t comm_destroy(ncclComm_t comm) {
  const std::lock_guard lock(process().mutex);
  Communicator& c = of(comm);
  if (!ready(c, "ncclCommDestroy")) return ncclInvalidArgument;
  if (!c.finalized) (void)misuse("ncclCommDestroy without ncclCommFinalize");
  c.gone = true;
  ++process().record.destroyed;
  return ncclSuccess;
}

ncclResult_t comm_abort(ncclComm_t comm) {
  Process& p = process();
  std::unique_lock lock(p.mutex);
  Communicator& c = of(comm);
  if (c.gone) return misuse("ncclCommAbort on a communicator that is gone");
  c.aborted = c.gone = true;
  World& w = *c.world;
  ++w.aborted;
  ++p.record.aborted;
  for (auto& [ends, channel] : w.channels) {
    const auto own = [&](const auto& op) { return op->owner == &c; };
    std::erase_if(channel.sends, own);
    std::erase_if(channel.recvs, own);
  }
  for (auto& [number, ops] : w.collectives) {
    auto& own = ops[static_cast<size_t>(c.rank)];
    if (own && own->owner == &c) own = nullptr;  // never complete without it
  }
  p.changed.notify_all();
  p.changed.wait(lock, [&] { return !p.faults.abort_hangs; });
  if (!p.changed.wait_for(lock, patience_with_aborting, [&] { return w.aborted >= w.joined; })) {
    ++p.record.lonely_aborts;
  }
  return ncclSuccess;
}

ncclResult_t group_start() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t group_end() {
  std::unique_lock lock(process().mutex);
  if (group_depth == 0) return misuse("ncclGroupEnd without ncclGroupStart");
  if (--group_depth > 0) return ncclSuccess;
  std::map<std::pair<Communicator*, cudaStream_t>, std::shared_ptr<Launch>> launches;
  for (auto& [op, stream] : std::exchange(group_ops, {})) {
    auto& launch = launches[{op->owner, stream}];
    if (!launch) {
      launch = std::make_shared<Launch>();
      const auto& all = process().communicators;
      launch->comm = *std::find_if(all.begin(), all.end(),
                                   [&](const auto& c) { return c.get() == op->owner; });
      launch->stream = reinterpret_cast<detail::StreamImpl*>(stream);
    }
    launch->ops.push_back(op);
  }
  for (const auto& [key, launch] : launches) {
    if (!ready(*launch->comm, "ncclGroupEnd")) return ncclInvalidArgument;
  }
  for (const auto& [key, launch] : launches) {
    for (const auto& op : launch->ops) {
      if (op->kind == Kind::send || op->kind == Kind::recv) continue;
      process().order.launched(std::this_thread::get_id(),
                               {launch->comm->world->number, launch->comm->launched_collectives++});
    }
    if (!connect(lock, *launch)) return ncclInternalError;
    ++launch->comm->groups;
    note_fault(*launch->comm);
    launch->stream->enqueue_until([launch] { return progress(*launch); });
  }
  return ncclSuccess;
}

ncclResult_t add(Op op, cudaStream_t stream) {
  {
    const std::lock_guard lock(process().mutex);
    if (!ready(*op.owner, "an operation")) return ncclInvalidArgument;
    const bool has_peer = op.kind == Kind::send || op.kind == Kind::recv;
    if (op.peer < 0 || op.peer >= op.owner->world->size ||
        (has_peer && op.peer == op.owner->rank)) {
      return misuse("a peer that is none");
    }
    for (const void* memory : {op.from, const_cast<const void*>(op.to)}) {
      if (memory && op.count > 0 && !is_sim_memory(memory)) return misuse("memory of the host");
    }
    if (has_peer) ++process().record.messages;
  }
  const bool alone = group_depth == 0;
  if (alone) ++group_depth;
  group_ops.emplace_back(std::make_shared<Op>(op), stream);
  return alone ? group_end() : ncclSuccess;
}

ncclResult_t send(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return add({Kind::send, &of(comm), from, nullptr, count, type, peer}, stream);
}
ncclResult_t recv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return add({Kind::recv, &of(comm), nullptr, to, count, type, peer}, stream);
}
ncclResult_t all_reduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t,
                        ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::all_reduce, &of(comm), from, to, count, type, 0}, stream);
}
ncclResult_t broadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::broadcast, &of(comm), from, to, count, type, root}, stream);
}
ncclResult_t all_gather(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::all_gather, &of(comm), from, to, count, type, 0}, stream);
}
ncclResult_t reduce_scatter(const void* from, void* to, size_t count, ncclDataType_t type,
                            ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::reduce_scatter, &of(comm), from, to, count, type, 0}, stream);
}

Nccl make_table() {
  Nccl n;
  n.get_version = get_version;
  n.get_error_string = get_error_string;
  n.get_last_error = get_last_error;
  n.get_unique_id = get_unique_id;
  n.comm_init_rank_config = comm_init_rank_config;
  n.comm_finalize = comm_finalize;
  n.comm_destroy = comm_destroy;
  n.comm_abort = comm_abort;
  n.comm_get_async_error = comm_get_async_error;
  n.group_start = group_start;
  n.group_end = group_end;
  n.send = send;
  n.recv = recv;
  n.all_reduce = all_reduce;
  n.broadcast = broadcast;
  n.all_gather = all_gather;
  n.reduce_scatter = reduce_scatter;
  n.name = "the stand-in";
  return n;
}

}  // namespace

namespace rondo::test {

const Nccl& nccl_stand_in() {
  static const Nccl table = make_table();
  return table;
}

void reset_stand_in(const StandInFaults& faults) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  for (const auto& c : p.communicators) RONDO_CHECK(c->gone, "a communicator is alive");
  p.communicators.clear();
  p.worlds.clear();
  p.faults = faults;
  p.record = {};
  p.order = {};
}

void let_aborts_end() {
  const std::lock_guard lock(process().mutex);
  process().faults.abort_hangs = false;
  process().changed.notify_all();
}

void let_connections_end() {
  Process& p = process();
  std::unique_lock lock(p.mutex);
  p.ended_below = p.next_id;
  p.changed.notify_all();
  p.changed.wait(lock, [&] { return p.connecting == 0; });
}

StandInRecord stand_in_record() {
  const std::lock_guard lock(process().mutex);
  StandInRecord record = process().record;
  if (process().order.has_cycle()) {
    record.misuses.push_back("ranks launch collectives of several communicators in two orders");
  }
  return record;
}

}  // namespace rondo::test
