// SIGINT, SIGTERM and SIGHUP (the terminal is gone) ask a program to finish; the second one ends
// it.
//
// The first sets a flag that the training loop looks at between steps: it saves and exits. A second
// one exits at once with 128 + its number, without running destructors: committed checkpoints are
// safe, and what was being written is cleaned by the next run.
#pragma once

#include <memory>

namespace rondo {

// Installs the handlers, and restores the former ones when destroyed. One at a time in a process
// (RONDO_CHECK). The flag starts cleared. A signal ignored before (nohup) stays ignored.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

// Whether a signal came, or request_stop() was called, since the guard was installed. Thread safe.
bool stop_requested();
// The first signal's number; 0 if none came.
int stop_signal();
// The same as a first signal, from inside (tests, embedding programs). Thread safe.
void request_stop();

}  // namespace rondo
