#include "kernels/base/cpu/thread.h"

#include <atomic>
#include <system_error>

#include "kernels/base/error.h"

namespace rondo {
namespace {

std::atomic<pid_t> first_at_work{0};  // 0: nobody yet

}  // namespace

void note_work() {
  pid_t nobody = 0;
  if (first_at_work == 0) first_at_work.compare_exchange_strong(nobody, ::getpid());
}

void refuse_after_fork(const std::string& what) {
  if (first_at_work == 0 || first_at_work == ::getpid()) return;
  fail_input(what,
             ": this process was forked from one in which rondo was at work, and only "
             "recognition goes on in it; start a program of its own (exec), or fork before "
             "the first call");
}

Thread start_thread(const std::string& what, std::function<void()> body) {
  note_work();
  try {
    return Thread(std::move(body));
  } catch (const std::system_error& e) {
    throw NoThread(str(what, " cannot be started: ", e.code().message(),
                       "; there is a limit on processes or memory"));
  }
}

}  // namespace rondo
