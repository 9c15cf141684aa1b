#include "engine/io/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/support.h"

using namespace rondo;

namespace {

void (*handler_of(int number))(int) {
  struct sigaction action;
  ::sigaction(number, nullptr, &action);
  return action.sa_handler;
}

// What is ignored stays so, as SIGHUP under nohup, SIGINT in the background of a script.
void heed(int number) { ::signal(number, SIG_DFL); }

template <class F>
int in_child(F&& f) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(f());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("the first signal asks, and handlers are restored", "[signals]") {
  heed(SIGTERM);
  const auto before_int = handler_of(SIGINT), before_term = handler_of(SIGTERM);
  {
    const SignalGuard guard;
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

TEST_CASE("a second signal exits at once with 128 + its number", "[signals]") {
  const int status = in_child([] {
    for (const int number : {SIGINT, SIGTERM}) heed(number);
    const SignalGuard guard;
    ::raise(SIGINT);
    if (!stop_requested()) return 3;
    ::raise(SIGTERM);
    return 4;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
}

TEST_CASE("a terminal that is gone asks as well", "[signals]") {
  heed(SIGHUP);
  const SignalGuard guard;
  ::raise(SIGHUP);
  CHECK(stop_requested());
  CHECK(stop_signal() == SIGHUP);
}

TEST_CASE("an ignored signal stays ignored", "[signals]") {
  const int status = in_child([] {
    ::signal(SIGINT, SIG_IGN);
    const SignalGuard guard;
    ::raise(SIGINT);
    ::raise(SIGINT);
    return stop_requested() ? 5 : 0;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
