// In place of network.cc, where libwebsockets is not there.
#include "kernels/base/error.h"
#include "tools/serve/network.h"

namespace rondo::serve {

void require_network() {
  fail_input(
      "this program was built without libwebsockets, which 'rondo serve' needs; install "
      "libwebsockets-dev and build it again");
}

struct Network::State {};
Network::Network(Server&, const NetworkOptions&) { require_network(); }
Network::~Network() = default;
std::string Network::url() const { return {}; }
bool Network::run() { return true; }

}  // namespace rondo::serve
