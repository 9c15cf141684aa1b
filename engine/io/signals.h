// Signals that ask the program to end, and what becomes of it then: one rule for all commands.
//
//   SIGINT, SIGTERM                     ask; the second one from outside ends the process at once
//   SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU   ask; however often they come, they ask once
//
// Until heed_stops() is called nothing would be lost: the first signal ends the process within
// moments, wherever it waits or computes, with exit code 128 + the signal's number. What it was
// making is removed (RemovedIfStopped), and its children are killed (KilledIfStopped).
//
// After heed_stops() a signal sets a flag alone, stop_requested(): whoever works looks at it
// between steps, saves and returns. A second SIGINT or SIGTERM then kills the children and exits,
// without running destructors: committed checkpoints are safe, and what was being written is
// cleaned by the next run.
//
// A launcher passes signals on to its ranks, which may have had the same ones from outside. What
// `rondo launch` sends therefore never counts as a second signal, and what another launcher sends
// is counted apart. A signal ignored before (nohup) stays ignored.
//
// Thread safety: all functions, and objects of their own, may be used by several threads at once.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <list>
#include <memory>
#include <string>

namespace rondo {

enum class StartedBy : unsigned char { anybody, launcher, rondo_launch };

// Installs the handlers, and restores the former ones when destroyed: the first thing of main().
// One at a time in a process (RONDO_CHECK). The flag starts cleared. Without a SignalGuard nothing
// here does anything, except for request_stop().
class SignalGuard {
 public:
  // Who is the parent process.
  explicit SignalGuard(StartedBy parent = StartedBy::anybody);
  // Does not return if a signal is ending the process.
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

// From now on there is something to save: a signal only sets the flag, for the caller to look at.
void heed_stops();

// Whether a signal came, or request_stop() was called, since the guard was installed.
bool stop_requested();
// The first signal's number; 0 if none came.
int stop_signal();
// The same as a first signal after heed_stops(), from inside (tests, embedding programs).
void request_stop();

// Whether this is one of the signals that ask to end.
bool asks_to_stop(int number);

// What the process says when a signal ends it before heed_stops(), to stdout or stderr; nullptr: it
// says nothing. Without this: "rondo: stopped by SIGTERM" on stderr.
void say_when_stopped(std::FILE* to, const std::string& line);

// Does not return if a signal is ending the process, or comes in this time. Called before a failure
// is told: what has failed may be a child that got the terminal's signals too, a folder that has
// been removed, or a rank that had the signal a moment earlier.
void give_way_to_stop(std::chrono::milliseconds may_come_in = {});

// A file or folder that is being made: removed, with all that is in it, when a signal ends the
// process.
class RemovedIfStopped {
 public:
  explicit RemovedIfStopped(std::filesystem::path path);
  ~RemovedIfStopped();
  RemovedIfStopped(const RemovedIfStopped&) = delete;
  RemovedIfStopped& operator=(const RemovedIfStopped&) = delete;

 private:
  std::list<std::filesystem::path>::iterator place_;
};

// A child process that does not outlive this one when a signal ends it. Destroyed before the child
// is waited for: afterwards the number may be another's. Move-only.
class KilledIfStopped {
 public:
  explicit KilledIfStopped(pid_t child);
  ~KilledIfStopped();
  KilledIfStopped(KilledIfStopped&& other) noexcept;
  KilledIfStopped& operator=(KilledIfStopped&&) = delete;

 private:
  pid_t child_;
};

// "SIGTERM", "signal 40". (The C library of older systems has no such function.)
std::string signal_name(int number);

// While one lives, a first signal waits: for what is short and must not be broken off, such as two
// renames that belong together.
class StopWaits {
 public:
  StopWaits();
  ~StopWaits();
  StopWaits(const StopWaits&) = delete;
  StopWaits& operator=(const StopWaits&) = delete;
};

// While one lives, this thread takes none of these signals: around fork(), so that none reaches the
// handler's copy in the child, where it would be lost.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  // In the child: signals have their default effect again, but for those that are ignored, and are
  // taken. System calls alone.
  void end_in_child() const;

 private:
  struct Mask;
  std::unique_ptr<Mask> before_;
};

}  // namespace rondo
