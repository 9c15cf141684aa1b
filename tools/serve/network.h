// The network: HTTP/1.1 and WebSockets, by libwebsockets. One thread, the caller's.
//
// What a client may take is bounded: the bytes of a request, the time for one, the replies that it
// does not fetch. A stream that says nothing for as long is ended.
//
// Errors: InputError for an address or port that cannot be listened on.
#pragma once

#include <memory>
#include <string>

#include "tools/serve/server.h"

namespace rondo::serve {

struct NetworkOptions {
  std::string address = "127.0.0.1";
  int port = 8080;  // 0: a free one
};

// Throws where the program was built without libwebsockets, as Network does then.
void require_network();

class Network {
 public:
  // Borrows the server. Listens from now on.
  Network(Server& server, const NetworkOptions& options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::string url() const;
  // Serves until the process is asked to stop (engine/io/signals.h). Then requests in hand are
  // finished, for at most ten seconds, and others refused. Whether all were.
  bool run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo::serve
