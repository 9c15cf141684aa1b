// rondo: trains, evaluates and runs CTC/LSTM sequence models.
#include <rondo/version.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "comm/error.h"
#include "engine/io/signals.h"
#include "engine/reduce/ranks.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/manual.h"
#include "tools/ranks/local_ranks.h"
#include "tools/ranks/rank_process.h"

namespace {

constexpr const char* version = "rondo " RONDO_VERSION;

constexpr const char* footer = R"(
Example: from recordings to text
  rondo prepare speech-demo corpus
  rondo train speech-demo data=corpus training.checkpoint_dir=model
  rondo eval model corpus/test.jsonl
  rondo transcribe model recording.wav

'rondo COMMAND --help' shows the options of a command and an example.)";

// What was printed may lie in a buffer until now, and a full disk shows only here.
void finish_output() {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed_before) return;
  rondo::fail_input("standard output cannot be written",
                    errno != 0 ? rondo::str(": ", std::strerror(errno)) : "");
}

// A rank has a connection to each of the others, and a launcher pipes from all: what the system
// allows, rather than the 1024 that are usual for programs that select().
void allow_many_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Whether the parent process passes signals on that may come from outside as well.
rondo::StartedBy started_by() {
  if (std::getenv(rondo::launcher_variable)) return rondo::StartedBy::rondo_launch;
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (std::getenv(name)) return rondo::StartedBy::launcher;
  }
  return rondo::StartedBy::anybody;
}

// Signals that were ignored when the process began, as SIGHUP is under nohup. Libraries may put a
// handler of their own in the place of that as soon as they are loaded (UCX, which comes with Open
// MPI, does for SIGHUP), so they are noted before that: the linker calls what stands in
// .preinit_array ahead of all libraries' beginnings. Then nothing may be used that waits for one,
// such as a sanitizer's functions.
constexpr int signals_noted = 32;
bool was_ignored[signals_noted];

__attribute__((no_sanitize("address", "undefined", "thread"))) void note_ignored_signals(int,
                                                                                         char**,
                                                                                         char**) {
  for (int number = 1; number < signals_noted; ++number) {
    void* action[16] = {};  // the kernel's sigaction, which begins with the handler
    constexpr size_t mask_bytes = 8;
    if (::syscall(SYS_rt_sigaction, number, nullptr, action, mask_bytes) == 0)
      was_ignored[number] = action[0] == reinterpret_cast<void*>(SIG_IGN);
  }
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const noting)(int, char**,
                                                                   char**) = note_ignored_signals;

void ignore_as_before() {
  for (int number = 1; number < signals_noted; ++number)
    if (was_ignored[number]) std::signal(number, SIG_IGN);
}

}  // namespace

int main(int argc, char** argv) {
  ignore_as_before();
  const rondo::SignalGuard signals(started_by());
  std::setlocale(LC_CTYPE, "");
  allow_many_descriptors();
  rondo::CommandLine line(
      "rondo", "Trains CTC/LSTM sequence models on speech, text lines or any feature sequence.",
      version);
  line.require_command("a command");
  line.footer(footer);
  rondo::add_prepare(line);
  rondo::add_train(line);
  rondo::add_launch(line);
  rondo::add_eval(line);
  rondo::add_score(line);
  rondo::add_transcribe(line);
  rondo::add_predict(line);
  rondo::add_lm(line);
  rondo::add_serve(line);
  rondo::add_decode(line);
  rondo::add_align(line);
  rondo::add_convert(line);
  rondo::add_tune(line);
  rondo::add_info(line);
  rondo::add_card(line);
  rondo::add_bench(line);
  rondo::add_plan(line);
  rondo::add_completion(line);
  rondo::add_try_kernels(line);
  const auto tell = [](const char* message) {
    rondo::give_way_to_stop();
    rondo::tell_error(message);
    return 1;
  };
  try {
    const int code = line.parse(argc, argv) ? line.run() : 0;
    rondo::tell_preferred_in_vain();
    finish_output();
    return code;
  } catch (const rondo::WrongUsage& e) {
    return line.tell(e);
  } catch (const rondo::InputError& e) {
    return tell(e.what());
  } catch (const rondo::PeerFailed&) {
    return 1;  // the rank that failed has said why
  } catch (const rondo::CommError& e) {
    // The one that is lost may have been told to stop, and this one is about to be.
    rondo::give_way_to_stop(std::chrono::milliseconds(300));
    tell(e.what());
    return rondo::stop_requested() ? 128 + rondo::stop_signal() : rondo::exit_comm_failure;
  } catch (const std::bad_alloc&) {
    return tell("out of memory");
  } catch (const std::exception& e) {
    return tell((std::string("internal error: ") + e.what()).c_str());
  }
}
