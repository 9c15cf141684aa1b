// The Store over TCP: one process serves (the launcher, or rank 0), all ranks are clients.
//
// Who may come in: the server sends a random challenge, the client answers with HMAC-SHA-256 of it
// under the job's token and with a challenge of its own, which the server answers likewise. So
// neither talks to a stranger, and the token never travels. What follows is not encrypted: the
// token keeps other users and other jobs out, not somebody who can alter the traffic.
//
// A client that cannot prove the token in time, sends anything malformed or too long, or comes when
// the connections are used up is dropped, with a line to the log. No client, authenticated or not,
// can make the server wait: one thread polls them all, and each has at most one request under way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/store/store.h"

namespace rondo {

struct TcpStoreServerOptions {
  // A numeric address or a host name; the default admits this machine alone. "0.0.0.0" or "::"
  // listens everywhere.
  std::string bind_address = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  std::string token;  // must not be empty; see random_token()
  int max_connections = 1024;
  int max_strangers = 64;  // connections that have not proved the token yet
  size_t max_table_bytes = size_t{64} << 20;
  CommClock::duration handshake_timeout = std::chrono::seconds(5);
  // Called from the server's thread; must not block. Empty: lines on standard error.
  std::function<void(const std::string&)> log;
};

class TcpStoreServer {
 public:
  // Listens on return. InputError: the address cannot be had, or the token is empty.
  explicit TcpStoreServer(TcpStoreServerOptions options);
  // Closes all connections: clients see peer_lost.
  ~TcpStoreServer();
  // Forgets all values and closes all connections, but goes on listening: what was said before is
  // gone on return, and nobody who had said it is still here.
  void begin_anew();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  const std::string& bind_address() const;
  uint16_t port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A connection with the server.
class TcpStore : public Store {
 public:
  // As set(), but the server removes the key when this connection ends, unless somebody else has
  // announced the same key since.
  virtual void announce(const std::string& key, std::string_view value, Deadline deadline) = 0;
  // Ends the connection, also while another thread waits: calls under way and later ones fail with
  // peer_lost.
  virtual void hang_up() = 0;
  // The numeric address of this end of the connection.
  virtual std::string own_address() const = 0;
};

// Connects, trying again until the deadline while nobody listens yet (ranks start in any order).
// InputError: the server does not know this token, or is no store. CommError: peer_lost when
// nothing could be reached by the deadline.
std::unique_ptr<TcpStore> make_tcp_store(const std::string& host, uint16_t port,
                                         const std::string& token, Deadline deadline);

}  // namespace rondo
