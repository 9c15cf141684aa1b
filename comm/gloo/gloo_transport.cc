#include "comm/gloo/gloo_transport.h"

#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <csignal>
#include <cstring>
#include <sstream>
#include <vector>

#include "comm/channels/channel_transport.h"
#include "comm/gloo/channel.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {
namespace {

using namespace gloo_transport;

// For the others' goodbyes.
constexpr auto farewell = std::chrono::seconds(2);

// Gloo's view of our store.
class GlooStore final : public ::gloo::rendezvous::Store {
 public:
  GlooStore(rondo::Store& store, Deadline deadline) : store_(store), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(key, {data.data(), data.size()}, deadline_);
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get(key, deadline_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { store_.wait(keys, deadline_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  rondo::Store& store_;
  const Deadline deadline_;
};

class GlooTransport final : public channels::ChannelTransport<World> {
 public:
  explicit GlooTransport(const GlooOptions& options);
  ~GlooTransport() override {
    if (origin_.here()) {
      leave(within(farewell));
      return;
    }
    leave_behind(world_.channels);
    leave_behind(world_.context);
    leave_behind(device_);
  }

  void all_reduce(const TensorView& data, GlooAlgorithm algorithm, uint32_t number,
                  Deadline deadline);

 private:
  void connect(const GlooOptions& options, Deadline deadline);
  void greet(Store& store, Deadline deadline);
  void leave(Deadline deadline);

  const Origin origin_;
  std::shared_ptr<::gloo::transport::Device> device_;
};

GlooTransport::GlooTransport(const GlooOptions& options)
    : ChannelTransport(options.rank, options.world_size) {
  world_.grace = options.grace;
  world_.token = options.token;
  world_.rendezvous_id = options.rendezvous_id;
  world_.nonce = random_token();
  if (options.world_size == 1) return;
  RONDO_CHECK(options.store != nullptr, "ranks need a store to find each other");
  const Deadline deadline = within(options.timeout);
  const auto store = make_prefix_store(*options.store, options.rendezvous_id);
  GlooOptions own = options;
  own.store = store.get();
  connect(own, deadline);
  try {
    greet(*store, deadline);
  } catch (...) {
    leave(CommClock::now());
    throw;
  }
}

// Gloo listens at one address, and connects addresses of one family alone: the first family of
// which all ranks have one.
std::string address_for_all(const GlooOptions& o, Deadline deadline) {
  const auto key = [](int rank) { return str("addresses-", rank); };
  const auto is_v6 = [](const std::string& address) {
    return address.find(':') != std::string::npos;
  };
  std::vector<std::string> own = {o.bind_address};
  own.insert(own.end(), o.other_addresses.begin(), o.other_addresses.end());
  std::string told;
  for (const std::string& a : own) told += str(told.empty() ? "" : " ", a);
  o.store->set(key(o.rank), told, deadline);
  bool all_v4 = true, all_v6 = true;
  std::string where;
  for (int rank = 0; rank < o.world_size; ++rank) {
    bool v4 = false, v6 = false;
    const std::string theirs = o.store->get(key(rank), deadline);
    std::istringstream words(theirs);
    for (std::string a; words >> a;) (is_v6(a) ? v6 : v4) = true;
    all_v4 = all_v4 && v4;
    all_v6 = all_v6 && v6;
    where += str(rank ? ", rank " : "rank ", rank, " at ", theirs);
  }
  for (const std::string& a : own) {
    if (is_v6(a) ? all_v6 && !all_v4 : all_v4) return a;
  }
  fail_input("Gloo connects ranks by IPv4 or all by IPv6, and has found ", where);
}

void GlooTransport::connect(const GlooOptions& options, Deadline deadline) {
  const std::string what =
      str("rank ", options.rank, ": rendezvous of ", options.world_size, " ranks: ");
  ::gloo::transport::tcp::attr where;
  where.iface = options.interface;
  std::string place = options.interface;
  try {
    if (place.empty()) place = where.hostname = address_for_all(options, deadline);
    device_ = ::gloo::transport::tcp::CreateDevice(where);
  } catch (const InputError&) {
    throw;
  } catch (const CommError& e) {
    throw CommError(e.kind(), e.peer(), what + e.what());
  } catch (const std::exception& e) {
    fail_input("rank ", options.rank, " cannot listen at '", place,
               "': ", without_position(e.what()));
  }
  world_.context = std::make_shared<::gloo::rendezvous::Context>(options.rank, options.world_size);
  // Gloo waits for a connection five times as long as it is told.
  world_.context->setTimeout(std::chrono::ceil<std::chrono::milliseconds>(options.timeout / 5));
  GlooStore store(*options.store, deadline);
  try {
    options.store->set(str("nonce-", options.rank), world_.nonce, deadline);
    world_.context->connectFullMesh(store, device_);
  } catch (const InputError&) {
    throw;
  } catch (const CommError& e) {
    throw CommError(e.kind(), e.peer(), what + e.what());
  } catch (const std::exception& e) {
    throw CommError(CommErrorKind::peer_lost, -1, what + without_position(e.what()));
  }
}

void GlooTransport::greet(Store& store, Deadline deadline) {
  for (int peer = 0; peer < world_.size; ++peer) {
    world_.channels.push_back(peer == world_.rank ? nullptr
                                                  : std::make_shared<Channel>(world_, peer));
  }
  for (const auto& c : world_.channels) {
    if (c) c->start(store.get(str("nonce-", c->peer()), deadline));
  }
  for (const auto& c : world_.channels) {
    if (c) c->wait_for_hello(deadline);
  }
}

void GlooTransport::leave(Deadline deadline) {
  world_.say_bye();
  for (const auto& c : world_.channels) {
    if (c) c->wait_for_bye(deadline);
  }
  for (const auto& c : world_.channels) {
    if (c) c->stop();
  }
  world_.context.reset();
}

template <class T>
void sum(void* to, const void* a, const void* b, size_t n) {
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  for (size_t i = 0; i < n; ++i) static_cast<T*>(to)[i] = x[i] + y[i];
}

void GlooTransport::all_reduce(const TensorView& data, GlooAlgorithm algorithm, uint32_t number,
                               Deadline deadline) {
  using std::chrono::milliseconds;
  using Options = ::gloo::AllreduceOptions;
  if (world_.size == 1 || data.numel() == 0) return;
  const auto fail = [&](CommErrorKind kind, const std::string& cause) {
    const std::string text = str("rank ", world_.rank, ": Gloo's all-reduce of ", data.numel(), " ",
                                 name_of(data.dtype), ": ", cause);
    abort(text);
    throw CommError(kind, -1, text);
  };
  if (world_.aborted) fail(CommErrorKind::aborted, "the transport has been aborted");
  const auto now = CommClock::now();
  if (now >= deadline) fail(CommErrorKind::timeout, "timed out");
  Options options(world_.context);
  options.setAlgorithm(algorithm == GlooAlgorithm::ring ? Options::Algorithm::RING
                                                        : Options::Algorithm::BCUBE);
  options.setTag(number);
  options.setTimeout(std::chrono::ceil<milliseconds>(
      std::min<CommClock::duration>(deadline - now, std::chrono::hours(24 * 365))));
  const auto n = static_cast<size_t>(data.numel());
  if (data.dtype == DType::f32) {
    options.setOutput(data.as<float>(), n);
    options.setReduceFunction(static_cast<Options::Func>(sum<float>));
  } else {
    options.setOutput(data.as<double>(), n);
    options.setReduceFunction(static_cast<Options::Func>(sum<double>));
  }
  try {
    ::gloo::allreduce(options);
  } catch (const std::exception& e) {
    const bool late = CommClock::now() >= deadline;
    fail(late ? CommErrorKind::timeout : CommErrorKind::peer_lost, without_position(e.what()));
  }
}

// Gloo writes to sockets without MSG_NOSIGNAL: a lost peer must not end the process.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace

std::unique_ptr<Transport> make_gloo_transport(const GlooOptions& options) {
  ignore_broken_pipes();
  return std::make_unique<GlooTransport>(options);
}

AllReduce gloo_all_reduce(Transport& transport, GlooAlgorithm algorithm) {
  auto* const gloo = dynamic_cast<GlooTransport*>(&transport);
  RONDO_CHECK(gloo != nullptr, "this transport is not Gloo's");
  return [gloo, algorithm](const TensorView& data, uint32_t number, Deadline deadline) {
    gloo->all_reduce(data, algorithm, number, deadline);
  };
}

}  // namespace rondo
