#include "tests/comm/processes.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "tests/catch.h"

namespace rondo {
namespace {

constexpr auto patience = std::chrono::seconds(30);

[[noreturn]] void run_child(int rank, const Socket& to, const Processes::RankMain& main) {
  const auto say = [&](const std::string& line) { write_all(to, line + "\n", within(patience)); };
  try {
    main(rank, say);
    say("done");
  } catch (const CommError& e) {
    say(str("threw ", name_of(e.kind()), ": ", e.what()));
  } catch (const std::exception& e) {
    say(str("threw ", e.what()));
  }
  _exit(0);
}

}  // namespace

Processes::Processes(int n, const RankMain& main) {
  std::cout.flush();  // or every child has a copy
  for (int rank = 0; rank < n; ++rank) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    Process p{-1, Socket(ends[0])};
    const Socket child_end(ends[1]);
    p.pid = fork();
    REQUIRE(p.pid >= 0);
    if (p.pid == 0) {
      processes_.clear();
      p.from = Socket();
      run_child(rank, child_end, main);
    }
    processes_.push_back(std::move(p));
  }
}

Processes::~Processes() {
  for (const Process& p : processes_) kill(p.pid, SIGKILL);
  for (const Process& p : processes_) waitpid(p.pid, nullptr, 0);
}

std::string Processes::line(int rank) {
  std::string text;
  const Deadline deadline = within(patience);
  for (char c = 0;;) {
    const IoResult r = read_exactly(processes_[static_cast<size_t>(rank)].from, {&c, 1}, deadline);
    INFO("rank " << rank << " said: " << text);
    REQUIRE(r != IoResult::timed_out);
    if (r == IoResult::closed || c == '\n') return text;
    text += c;
  }
}

std::string Processes::line_starting(int rank, const std::string& start) {
  for (;;) {
    std::string l = line(rank);
    INFO("rank " << rank << " said: " << l << ", not: " << start);
    REQUIRE(!l.empty());
    if (l.starts_with(start)) return l;
    REQUIRE(!l.starts_with("threw"));
  }
}

void Processes::signal(int rank, int number) {
  REQUIRE(kill(processes_[static_cast<size_t>(rank)].pid, number) == 0);
}

}  // namespace rondo
