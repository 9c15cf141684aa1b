// How the ranks of a job get TCP connections with each other. Internal to the TCP transport.
//
// Every rank listens at a port that the system chooses and tells it in the store. Of two ranks that
// want a connection the higher one dials, the lower one admits it. Some are connected from the
// start (comm/first_peers.h). If those are all, nobody listens any more then; else the rest
// are connected when one of the two wants it: the higher one dials, the lower one *calls* by a
// connection of its own, upon which the other dials. The call stays open until then, so that the
// caller notices if the other one dies.
//
// Strangers at the port see 40 bytes that tell them nothing. Whoever cannot prove the job token in
// time, or says anything else, is dropped, with a line to the log. They cannot make a rank wait:
// all are polled together, from each no more is taken than the answer that it owes, and the oldest
// goes when there are too many.
//
// One thread at a time.
#pragma once

#include <list>
#include <map>
#include <vector>

#include "comm/socket.h"
#include "comm/tcp/dial.h"
#include "comm/tcp/tcp_transport.h"

namespace rondo::tcp_transport {

constexpr size_t most_strangers = 64;
constexpr auto handshake_timeout = std::chrono::seconds(5);

// A rank that is connected, or why it cannot be.
struct News {
  int peer = -1;
  Socket socket;
  std::string lost;
};

class Meeting {
 public:
  // Listens. Uses the store here and in meet() alone. Errors: as make_tcp_transport.
  Meeting(const TcpOptions& options, Deadline deadline);

  // Returns once this rank is connected with its first peers: those, and others that have come
  // meanwhile. Errors: as make_tcp_transport.
  std::vector<News> meet();

  // Whether ranks are still to be connected.
  bool is_open() const { return bool(listener_); }
  // From here on these. Connects with this rank, if that is not under way.
  void want(int peer);
  // For poll(): readable when go_on() has something to do; and the time at which it has.
  int fd() const { return epoll_.fd(); }
  Deadline next() const;
  // Does not wait. Error: this process may not open a further socket.
  std::vector<News> go_on();

 private:
  struct Stranger {
    Socket socket;
    std::string name, challenge, in;
    Deadline end;
  };

  void want_first_peers();
  void look(Deadline until);
  void watch(const Socket& socket, uint32_t events) { watch(socket.fd(), events); }
  void watch(int fd, uint32_t events);
  void advance(std::list<Dial>::iterator dial);
  void give_up_late_dials();
  void dialled(std::list<Dial>::iterator dial);
  void cannot_dial(std::list<Dial>::iterator dial, const std::string& why);
  void accept_all();
  // Whether it is still a stranger.
  bool hear(Stranger& s);
  bool welcome(Stranger& s, const Answer& answer);
  void drop(const Stranger& s, const std::string& why);
  void connected(int peer, Socket socket);
  bool is_calling(const Dial& d) const { return d.peer() > options_.rank; }
  [[noreturn]] void time_out() const;

  TcpOptions options_;
  const Job job_;
  const Deadline deadline_;
  const bool whole_mesh_;
  std::vector<Place> places_;  // by rank; those to be dialled alone where all meet at the start
  Socket epoll_, listener_;
  std::list<Stranger> strangers_;
  std::list<Dial> dials_;
  std::map<int, Socket> callers_;  // ranks that wait for this one to dial
  std::vector<bool> has_;          // by rank: it is connected, or cannot be
  std::vector<News> news_;
  size_t missing_ = 0;    // first peers
  bool settled_ = false;  // meet() is done
  int log_lines_ = 0;
  std::string last_dropped_;
};

}  // namespace rondo::tcp_transport
