#include "engine/io/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/support.h"

using namespace rondo;

namespace {

namespace fs = std::filesystem;

constexpr int insisting[] = {SIGINT, SIGTERM};
constexpr int patient[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

void (*handler_of(int number))(int) {
  struct sigaction action;
  ::sigaction(number, nullptr, &action);
  return action.sa_handler;
}

// What is ignored stays so, as SIGHUP under nohup, SIGINT in the background of a script.
void heed(int number) { ::signal(number, SIG_DFL); }

void heed_all() {
  for (const int number : insisting) heed(number);
  for (const int number : patient) heed(number);
}

template <class F>
int in_child(F&& f) {
  std::fflush(stdout);  // or the child would say it as well
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    heed_all();
    ::_exit(f());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

// The exit code of a process that does this.
template <class F>
int code_of(F&& f) {
  const int status = in_child(f);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

[[noreturn]] int wait_for_ever() {
  for (;;) ::pause();
}

// The exit code of a child whose guard knows this process as `parent`, which sends it some signals
// one by one; then the child sends itself the others. 0: it is not ended by them.
int code_with_parent(StartedBy parent, const std::vector<int>& from_parent,
                     const std::vector<int>& from_itself, bool is_ended) {
  int ask[2], answer[2];
  REQUIRE(::pipe(ask) == 0);
  REQUIRE(::pipe(answer) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    heed_all();
    const SignalGuard guard(parent);
    heed_stops();
    char c = 0;
    for (size_t i = 0; i <= from_parent.size(); ++i) {
      static_cast<void>(!::write(ask[1], &c, 1));
      static_cast<void>(!::read(answer[0], &c, 1));
    }
    for (const int number : from_itself) ::raise(number);
    if (is_ended) wait_for_ever();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ::_exit(0);
  }
  ::close(ask[1]);
  char c = 0;
  for (size_t i = 0; i <= from_parent.size() && ::read(ask[0], &c, 1) == 1; ++i) {
    if (i < from_parent.size()) ::kill(child, from_parent[i]);
    // Taken by the time that the child sees the answer: a signal comes before a system call ends.
    static_cast<void>(!::write(answer[1], &c, 1));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  for (const int fd : {ask[0], answer[0], answer[1]}) ::close(fd);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("the first signal asks, and handlers are restored", "[signals]") {
  heed(SIGTERM);
  const auto before_int = handler_of(SIGINT), before_term = handler_of(SIGTERM);
  {
    const SignalGuard guard;
    heed_stops();
    CHECK_FALSE(stop_requested());
    CHECK(stop_signal() == 0);
    ::raise(SIGTERM);
    CHECK(stop_requested());
    CHECK(stop_signal() == SIGTERM);
    CHECK_THROWS_AS(SignalGuard(), Error);
  }
  CHECK(handler_of(SIGINT) == before_int);
  CHECK(handler_of(SIGTERM) == before_term);
  const SignalGuard again;
  CHECK_FALSE(stop_requested());
  request_stop();
  CHECK(stop_requested());
  CHECK(stop_signal() == 0);
}

TEST_CASE("a second SIGINT or SIGTERM exits at once with 128 + its number", "[signals]") {
  for (const int first : insisting) {
    for (const int second : insisting) {
      CHECK(code_of([&] {
              const SignalGuard guard;
              heed_stops();
              ::raise(first);
              if (!stop_requested()) return 3;
              ::raise(second);
              return wait_for_ever();
            }) == 128 + second);
    }
  }
}

TEST_CASE("other signals ask as often as they like", "[signals]") {
  for (const int number : patient) {
    CHECK(asks_to_stop(number));
    CHECK(code_of([&] {
            const SignalGuard guard;
            heed_stops();
            for (int i = 0; i < 20; ++i) ::raise(number);
            ::raise(SIGTERM);  // the first of its kind
            for (const int other : patient) ::raise(other);
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            return stop_signal() == number ? 0 : 3;
          }) == 0);
  }
  CHECK_FALSE(asks_to_stop(SIGKILL));
  CHECK_FALSE(asks_to_stop(0));
}

TEST_CASE("what a launcher passes on is no second signal", "[signals]") {
  using S = StartedBy;
  CHECK(code_with_parent(S::rondo_launch, {SIGTERM}, {SIGTERM}, false) == 0);
  CHECK(code_with_parent(S::rondo_launch, {SIGTERM, SIGTERM, SIGINT}, {SIGTERM}, false) == 0);
  CHECK(code_with_parent(S::rondo_launch, {SIGTERM}, {SIGTERM, SIGINT}, true) == 128 + SIGINT);
  CHECK(code_with_parent(S::launcher, {SIGTERM}, {SIGTERM}, false) == 0);
  CHECK(code_with_parent(S::launcher, {SIGTERM, SIGTERM}, {}, true) == 128 + SIGTERM);
  CHECK(code_with_parent(S::launcher, {SIGTERM}, {SIGTERM, SIGTERM}, true) == 128 + SIGTERM);
  CHECK(code_with_parent(S::anybody, {SIGTERM}, {}, false) == 0);
  CHECK(code_with_parent(S::anybody, {SIGUSR1, SIGUSR1, SIGTERM}, {}, false) == 0);
  CHECK(code_with_parent(S::anybody, {SIGTERM, SIGTERM}, {}, true) == 128 + SIGTERM);
}

TEST_CASE("with nothing to save the first signal ends the process", "[signals]") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    CHECK(code_of([&] {
            const SignalGuard guard;
            say_when_stopped(nullptr, "");
            ::raise(number);
            return wait_for_ever();
          }) == 128 + number);
    // Also where its work is just about to end, or to fail.
    CHECK(code_of([&] {
            const SignalGuard guard;
            say_when_stopped(nullptr, "");
            ::raise(number);
            return 0;
          }) == 128 + number);
  }
}

TEST_CASE("signals are heard where no thread can wait for them", "[signals]") {
  const auto without_watcher = [](bool heeds, int second) {
    return code_of([&] {
      const rlimit none{0, 0};
      ::setrlimit(RLIMIT_NOFILE, &none);
      const SignalGuard guard;
      if (heeds) heed_stops();
      ::raise(SIGUSR1);
      if (!heeds) return 3;
      ::raise(SIGTERM);
      if (second != 0) ::raise(second);
      return stop_requested() ? 0 : 4;
    });
  };
  CHECK(without_watcher(false, 0) == 128 + SIGUSR1);
  CHECK(without_watcher(true, 0) == 0);
  CHECK(without_watcher(true, SIGINT) == 128 + SIGINT);
}

TEST_CASE("a failure gives way to a signal that comes just then", "[signals]") {
  CHECK(code_of([] {
          const SignalGuard guard;
          say_when_stopped(nullptr, "");
          const pid_t self = ::getpid();
          if (::fork() == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            ::kill(self, SIGTERM);
            ::_exit(0);
          }
          give_way_to_stop(std::chrono::seconds(60));
          return 3;
        }) == 128 + SIGTERM);
  CHECK(code_of([] {
          const SignalGuard guard;
          give_way_to_stop(std::chrono::milliseconds(1));  // and none comes
          heed_stops();
          ::raise(SIGTERM);
          give_way_to_stop(std::chrono::seconds(60));
          return 0;
        }) == 0);
}

TEST_CASE("what was unfinished is removed, and children are killed", "[signals]") {
  const fs::path root = fs::temp_directory_path() / ("rondo-signals-" + std::to_string(::getpid()));
  fs::create_directories(root / "made" / "deep");
  int lives[2];
  REQUIRE(::pipe(lives) == 0);
  const int code = code_of([&] {
    const SignalGuard guard;
    say_when_stopped(nullptr, "");
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(lives[0]);
      return wait_for_ever();
    }
    const KilledIfStopped killed(child);
    const RemovedIfStopped folder(root / "made"), never_made(root / "never");
    {
      const RemovedIfStopped done(root / "done");
      std::ofstream(root / "done") << "whole";
    }
    // A worker that does not know yet.
    std::thread([&] {
      for (int i = 0;; ++i) std::ofstream(root / "made" / "deep" / std::to_string(i)) << "half";
    }).detach();
    ::raise(SIGUSR2);
    return wait_for_ever();
  });
  ::close(lives[1]);
  CHECK(code == 128 + SIGUSR2);
  CHECK_FALSE(fs::exists(root / "made"));
  CHECK(fs::exists(root / "done"));
  // The child held the other end.
  pollfd end{lives[0], POLLIN, 0};
  CHECK(::poll(&end, 1, 10000) == 1);
  CHECK((end.revents & POLLHUP) != 0);
  ::close(lives[0]);
  fs::remove_all(root);
}

TEST_CASE("a first signal waits for what must not be broken off", "[signals]") {
  int done[2];
  REQUIRE(::pipe(done) == 0);
  CHECK(code_of([&] {
          const SignalGuard guard;
          say_when_stopped(nullptr, "");
          {
            const StopWaits whole;
            ::raise(SIGTERM);
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            static_cast<void>(!::write(done[1], "", 1));
          }
          return wait_for_ever();
        }) == 128 + SIGTERM);
  ::close(done[1]);
  char c = 1;
  CHECK(::read(done[0], &c, 1) == 1);
  ::close(done[0]);
  // It may turn out that there is something to save.
  CHECK(code_of([] {
          const SignalGuard guard;
          {
            const StopWaits whole;
            ::raise(SIGTERM);
            heed_stops();
          }
          return stop_requested() ? 0 : 3;
        }) == 0);
}

TEST_CASE("a process that is made takes a signal that came meanwhile", "[signals]") {
  CHECK(code_of([] {
          const SignalGuard guard;
          heed_stops();
          pid_t child;
          {
            const SignalsBlocked blocked;
            child = ::fork();
            if (child == 0) {
              ::raise(SIGTERM);  // before the program is there
              blocked.end_in_child();
              ::_exit(5);
            }
          }
          int status = 0;
          ::waitpid(child, &status, 0);
          if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM) return 3;
          return stop_requested() ? 4 : 0;
        }) == 0);
}

TEST_CASE("an ignored signal stays ignored", "[signals]") {
  for (const int number : {SIGINT, SIGHUP, SIGUSR1}) {
    CHECK(code_of([&] {
            ::signal(number, SIG_IGN);
            const SignalGuard guard;
            ::raise(number);
            ::raise(number);
            const SignalsBlocked blocked;
            blocked.end_in_child();
            if (handler_of(number) != SIG_IGN) return 6;
            return stop_requested() ? 5 : 0;
          }) == 0);
  }
}
