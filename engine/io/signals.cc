#include "engine/io/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/cpu/thread.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

struct Asking {
  int number;
  bool insists;  // a second one ends the process at once
};
constexpr Asking asking[] = {{SIGINT, true},   {SIGTERM, true},  {SIGHUP, false},
                             {SIGUSR1, false}, {SIGUSR2, false}, {SIGXCPU, false}};

// Lock-free atomics are what a handler may touch.
std::atomic<int> received{0};  // the first signal
std::atomic<int> insisted{0};  // the one that ends the process at once
std::atomic<bool> stop{false};
std::atomic<bool> heeded{false};  // set under the lock of what is shared
std::atomic<bool> installed{false};
// So many of those that insist came from outside, and from the launcher.
std::atomic<int> from_outside{0}, from_launcher{0};
std::atomic<pid_t> launcher{0};
std::atomic<bool> launcher_insists{false};
std::atomic<int> wakes_watcher{-1};    // an eventfd; -1: there is no watcher
std::atomic<bool> is_removing{false};  // the watcher is, which may take longer
static_assert(std::atomic<int>::is_always_lock_free);

// What the threads of the process tell the watcher.
struct Shared {
  std::mutex mutex;
  ConditionVariable changed;
  bool ending = false, quits = false;
  int held = 0;  // so many StopWaits live
  std::list<fs::path> unfinished;
  std::vector<pid_t> children;
  std::FILE* says_to = stderr;
  std::string says;
};

// Never destroyed: threads may outlive main().
Shared& shared() {
  static Shared* const s = new Shared;
  return *s;
}

[[noreturn]] void wait_for_the_end() {
  for (;;) ::pause();
}

// Locks what is shared; does not return when the process is ending.
std::unique_lock<std::mutex> lock_unless_ending() {
  std::unique_lock lock(shared().mutex);
  if (shared().ending) {
    lock.unlock();
    wait_for_the_end();
  }
  return lock;
}

bool is_from_launcher(const siginfo_t& info) {
  return launcher != 0 && info.si_code <= 0 && info.si_pid == launcher;
}

bool is_second(int number, const siginfo_t& info) {
  const auto* const kind = std::find_if(std::begin(asking), std::end(asking),
                                        [&](const Asking& a) { return a.number == number; });
  if (kind == std::end(asking) || !kind->insists) return false;
  if (!is_from_launcher(info)) return from_outside.fetch_add(1) > 0;
  return launcher_insists && from_launcher.fetch_add(1) > 0;
}

void on_signal(int number, siginfo_t* info, void*) {
  const int error = errno;
  if (is_second(number, *info)) {
    const bool is_third = insisted.exchange(number) != 0;
    if (is_third || is_removing || wakes_watcher < 0) ::_exit(128 + number);
  }
  if (wakes_watcher < 0 && !heeded) ::_exit(128 + number);
  int none = 0;
  received.compare_exchange_strong(none, number);
  stop.store(true);
  const int watcher = wakes_watcher;
  constexpr uint64_t one = 1;
  if (watcher >= 0) static_cast<void>(!::write(watcher, &one, sizeof one));
  errno = error;
}

void kill_children() {
  const std::lock_guard lock(shared().mutex);
  for (const pid_t child : shared().children) ::kill(child, SIGKILL);
}

// Threads that still work may put something there meanwhile. They soon notice that their folder is
// gone.
void remove_unfinished() {
  std::vector<fs::path> paths;
  {
    const std::lock_guard lock(shared().mutex);
    paths.assign(shared().unfinished.begin(), shared().unfinished.end());
  }
  constexpr int attempts = 100;
  for (const fs::path& path : paths) {
    std::error_code ignored;
    for (int i = 0;
         i < attempts && fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
         ++i) {
      fs::remove_all(path, ignored);
    }
  }
}

bool takes_more(std::FILE* file) {
  pollfd fd{::fileno(file), POLLOUT, 0};
  return ::poll(&fd, 1, 0) == 1 && fd.revents == POLLOUT;
}

// Neither for a lock nor for a reader does the end wait.
void flush_and_say() {
  if (takes_more(stdout) && ::ftrylockfile(stdout) == 0) {
    std::fflush(stdout);
    ::funlockfile(stdout);
  }
  std::unique_lock lock(shared().mutex);
  std::FILE* const to = shared().says_to;
  std::string line = shared().says;
  lock.unlock();
  if (to == nullptr) return;
  if (line.empty()) line = str("rondo: stopped by ", signal_name(received));
  line += '\n';
  if (::isatty(::fileno(to)) == 1)
    line.insert(line.begin(), '\n');  // behind ^C, or a progress line
  if (takes_more(to)) static_cast<void>(!::write(::fileno(to), line.data(), line.size()));
}

// Ends the process unless who works heeds the signal, or a second one comes meanwhile.
void end_by_first() {
  Shared& s = shared();
  {
    std::unique_lock lock(s.mutex);
    constexpr auto look_again = std::chrono::milliseconds(10);
    while (s.held > 0 && !heeded && insisted == 0) s.changed.wait_for(lock, look_again);
    if (heeded || insisted != 0) return;
    s.ending = true;
  }
  kill_children();
  is_removing = true;
  remove_unfinished();
  flush_and_say();
  ::_exit(128 + received);
}

void watch(int woken) {
  for (;;) {
    uint64_t count;
    if (::read(woken, &count, sizeof count) < 0 && errno != EINTR) return;
    if (received != 0) end_by_first();
    if (const int number = insisted) {
      kill_children();
      ::_exit(128 + number);
    }
    const std::lock_guard lock(shared().mutex);
    if (shared().quits) return;
  }
}

sigset_t asking_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const Asking& a : asking) sigaddset(&set, a.number);
  return set;
}

// A thread that takes no signals. Where none can be started, the handler ends the process.
Thread start_watcher(int woken) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Thread thread;
  try {
    thread = start_thread("the thread that waits for signals", [woken] { watch(woken); });
  } catch (const Error&) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

void begin_anew(StartedBy parent) {
  received = insisted = from_outside = from_launcher = 0;
  stop = is_removing = false;
  launcher = parent == StartedBy::anybody ? 0 : ::getppid();
  launcher_insists = parent == StartedBy::launcher;
  Shared& s = shared();
  const std::lock_guard lock(s.mutex);
  heeded = s.quits = false;
  s.says_to = stderr;
  s.says.clear();
}

}  // namespace

struct SignalGuard::Saved {
  struct sigaction actions[std::size(asking)];
  int woken = -1;
  Thread watcher;
};

SignalGuard::SignalGuard(StartedBy parent) : saved_(std::make_unique<Saved>()) {
  RONDO_CHECK(!installed.exchange(true), "two SignalGuards at once");
  begin_anew(parent);
  saved_->woken = ::eventfd(0, EFD_CLOEXEC);
  if (saved_->woken >= 0) saved_->watcher = start_watcher(saved_->woken);
  if (saved_->watcher.joinable()) wakes_watcher = saved_->woken;
  for (size_t i = 0; i < std::size(asking); ++i) {
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    sigemptyset(&action.sa_mask);
    // Reads and waits of the main thread go on: it looks at the flag between steps.
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    const int number = asking[i].number;
    RONDO_CHECK(::sigaction(number, nullptr, &saved_->actions[i]) == 0, "errno ", errno);
    if (saved_->actions[i].sa_handler == SIG_IGN) continue;
    RONDO_CHECK(::sigaction(number, &action, nullptr) == 0, "errno ", errno);
  }
}

SignalGuard::~SignalGuard() {
  give_way_to_stop();
  for (size_t i = 0; i < std::size(asking); ++i) {
    ::sigaction(asking[i].number, &saved_->actions[i], nullptr);
  }
  {
    const auto lock = lock_unless_ending();
    shared().quits = heeded = true;
  }
  if (saved_->watcher.joinable()) {
    constexpr uint64_t one = 1;
    static_cast<void>(!::write(saved_->woken, &one, sizeof one));
    saved_->watcher.join();
  }
  wakes_watcher = -1;
  if (saved_->woken >= 0) ::close(saved_->woken);
  installed = false;
}

void heed_stops() {
  const auto lock = lock_unless_ending();
  heeded = true;
  shared().changed.notify_all();
}

bool stop_requested() { return stop.load(); }
int stop_signal() { return received.load(); }
void request_stop() { stop.store(true); }

bool asks_to_stop(int number) {
  return std::any_of(std::begin(asking), std::end(asking),
                     [&](const Asking& a) { return a.number == number; });
}

void say_when_stopped(std::FILE* to, const std::string& line) {
  const auto lock = lock_unless_ending();
  shared().says_to = to;
  shared().says = line;
}

void give_way_to_stop(std::chrono::milliseconds may_come_in) {
  const auto until = std::chrono::steady_clock::now() + may_come_in;
  for (;;) {
    {
      const auto lock = lock_unless_ending();
      if (heeded || wakes_watcher < 0) return;
      // If one has come, the watcher has yet to hear of it.
      if (received == 0 && std::chrono::steady_clock::now() >= until) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

RemovedIfStopped::RemovedIfStopped(fs::path path) {
  const auto lock = lock_unless_ending();
  place_ = shared().unfinished.insert(shared().unfinished.end(), std::move(path));
}

RemovedIfStopped::~RemovedIfStopped() {
  const std::lock_guard lock(shared().mutex);
  shared().unfinished.erase(place_);
}

KilledIfStopped::KilledIfStopped(pid_t child) : child_(child) {
  const auto lock = lock_unless_ending();
  shared().children.push_back(child);
}

KilledIfStopped::KilledIfStopped(KilledIfStopped&& other) noexcept
    : child_(std::exchange(other.child_, -1)) {}

KilledIfStopped::~KilledIfStopped() {
  if (child_ < 0) return;
  const std::lock_guard lock(shared().mutex);
  std::vector<pid_t>& all = shared().children;
  all.erase(std::find(all.begin(), all.end(), child_));
}

StopWaits::StopWaits() {
  const auto lock = lock_unless_ending();
  ++shared().held;
}

StopWaits::~StopWaits() {
  const std::lock_guard lock(shared().mutex);
  if (--shared().held == 0) shared().changed.notify_all();
}

struct SignalsBlocked::Mask {
  sigset_t before;
};

SignalsBlocked::SignalsBlocked() : before_(std::make_unique<Mask>()) {
  const sigset_t set = asking_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_->before);
}

SignalsBlocked::~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_->before, nullptr); }

void SignalsBlocked::end_in_child() const {
  for (const Asking& a : asking) {
    struct sigaction action {};
    if (::sigaction(a.number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(a.number, &action, nullptr);
  }
  ::sigprocmask(SIG_SETMASK, &before_->before, nullptr);
}

std::string signal_name(int number) {
  switch (number) {
#define RONDO_SIGNAL(name) \
  case name:               \
    return #name;
    RONDO_SIGNAL(SIGHUP)
    RONDO_SIGNAL(SIGINT)
    RONDO_SIGNAL(SIGQUIT)
    RONDO_SIGNAL(SIGILL)
    RONDO_SIGNAL(SIGTRAP)
    RONDO_SIGNAL(SIGABRT)
    RONDO_SIGNAL(SIGBUS)
    RONDO_SIGNAL(SIGFPE)
    RONDO_SIGNAL(SIGKILL)
    RONDO_SIGNAL(SIGUSR1)
    RONDO_SIGNAL(SIGSEGV)
    RONDO_SIGNAL(SIGUSR2)
    RONDO_SIGNAL(SIGPIPE)
    RONDO_SIGNAL(SIGALRM)
    RONDO_SIGNAL(SIGTERM)
    RONDO_SIGNAL(SIGCHLD)
    RONDO_SIGNAL(SIGCONT)
    RONDO_SIGNAL(SIGSTOP)
    RONDO_SIGNAL(SIGTSTP)
    RONDO_SIGNAL(SIGXCPU)
    RONDO_SIGNAL(SIGXFSZ)
    RONDO_SIGNAL(SIGSYS)
#undef RONDO_SIGNAL
    default:
      return str("signal ", number);
  }
}

}  // namespace rondo
