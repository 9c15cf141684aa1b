// What a full disk, an I/O error, a crash or kill -9 at any point does to a checkpoint directory.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include "engine/io/checkpoint.h"
#include "tests/support/support.h"
#include "tests/support/syscall_faults.h"

using namespace rondo;
using Catch::Contains;
using rondo::test::faults;
using rondo::test::input_error;
using rondo::test::SyscallFaults;
using rondo::test::TemporaryDirectory;

namespace fs = std::filesystem;

namespace {

void save(CheckpointStore& store, int step, size_t floats = 5000) {
  std::vector<float> w(floats, static_cast<float>(step));
  const TensorToWrite tensor{"w", DType::f32, {static_cast<int64_t>(floats)}, w.data()};
  CheckpointWriter writer = store.begin();
  writer.add_tensors("model.safetensors", {&tensor, 1});
  writer.add_text("state.json", std::to_string(step));
  writer.commit(step);
}

// The newest whole generation's step; its content must agree with it.
int latest_step(const fs::path& dir) {
  const std::optional<Checkpoint> c = open_latest(dir);
  if (!c) return 0;
  const auto step = static_cast<int>(c->info().step);
  CHECK(c->warnings().empty());
  CHECK(c->text("state.json") == std::to_string(step));
  const SafetensorsFile tensors = c->tensors("model.safetensors");
  for (float x : tensors.at("w").as<float>()) {
    if (x != static_cast<float>(step)) FAIL("wrong weights in step " << step);
  }
  return step;
}

// Runs f in a child; returns its wait status.
template <class F>
int in_child(F&& f) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = 1;
    try {
      code = f();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child: %s\n", e.what());
    }
    ::_exit(code);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

// File systems that lack something, in the words of SyscallFaults::lacks.
const std::vector<std::string> lacking = {"", "directory", "rename", "directory sync"};

void begin_faults(const std::string& lacks) {
  faults = {};
  faults.lacks = lacks;
}

size_t index_of(const std::vector<std::string>& log, const std::string& what, size_t from = 0) {
  for (size_t i = from; i < log.size(); ++i) {
    if (log[i].starts_with(what)) return i;
  }
  FAIL("no call '" << what << "'");
  return 0;
}

}  // namespace

TEST_CASE("everything is synced before it is renamed, and the rename itself",
          "[checkpoint][crash]") {
  TemporaryDirectory dir;
  CheckpointStore store(dir / "run");
  save(store, 1);
  save(store, 2);
  faults = {};
  faults.recording = true;
  save(store, 3);
  const std::vector<std::string> log = faults.log;
  faults = {};
  const size_t commit = index_of(log, "rename .writing-");
  CHECK(index_of(log, "fsync model.safetensors") < commit);
  CHECK(index_of(log, "fsync state.json") < commit);
  CHECK(index_of(log, "fsync manifest.json") < commit);
  CHECK(index_of(log, "write model.safetensors") < index_of(log, "fsync model.safetensors"));
  CHECK(index_of(log, "open manifest.json") > index_of(log, "fsync state.json"));
  CHECK(index_of(log, "fsync .writing-") > index_of(log, "open manifest.json"));
  CHECK(index_of(log, "fsync .writing-") < commit);
  const size_t durable = index_of(log, "fsync run", commit);
  CHECK(index_of(log, "rename checkpoint-000000001 .removing-") > durable);
}

TEST_CASE("an error at any system call loses nothing and blocks nothing",
          "[slow][checkpoint][crash]") {
  const std::string lacks = GENERATE(from_range(lacking));
  for (const bool persistent : {false, true}) {
    int failures = 0;
    for (int at = 0;; ++at) {
      REQUIRE(at < 200);
      CAPTURE(at, persistent, lacks);
      begin_faults(lacks);
      TemporaryDirectory dir;
      {
        CheckpointStore store(dir.path(), {.keep_last = 1});
        save(store, 1);
      }
      begin_faults(lacks);
      faults.action = SyscallFaults::Action::fail;
      faults.at = at;
      faults.error = persistent ? ENOSPC : EIO;
      faults.persistent = persistent;
      faults.recording = true;
      std::string message;
      std::vector<std::string> warnings;
      try {
        CheckpointStore store(dir.path(), {.keep_last = 1});
        save(store, 2);
        warnings = store.take_warnings();
      } catch (const InputError& e) {
        message = e.what();
      }
      const bool reached = faults.count > at;
      const std::string failed = reached ? faults.log[static_cast<size_t>(at)] : "";
      begin_faults(lacks);
      if (!reached) break;
      // An old generation that cannot be removed takes up room: whoever saves is told.
      if (failed.starts_with("rmdir .removing-")) CHECK(warnings.size() == 1);
      if (!message.empty()) {
        ++failures;
        CHECK_THAT(message,
                   Contains(persistent ? "No space left on device" : "Input/output error") &&
                       Contains(dir.path().filename().string()));
      }
      const int step = latest_step(dir.path());
      CHECK((step == 2 || (step == 1 && !message.empty())));
      CheckpointStore store(dir.path(), {.keep_last = 1});
      save(store, 3);
      CHECK(latest_step(dir.path()) == 3);
      CHECK(list_checkpoints(dir.path()).size() == 1);
    }
    CHECK(failures >= 12);
  }
  faults = {};
}

TEST_CASE("a crash before any system call loses nothing and blocks nothing",
          "[slow][checkpoint][crash]") {
  const std::string lacks = GENERATE(from_range(lacking));
  int crashes = 0;
  for (int at = 0;; ++at) {
    REQUIRE(at < 200);
    CAPTURE(at, lacks);
    begin_faults(lacks);
    TemporaryDirectory dir;
    {
      CheckpointStore store(dir.path(), {.keep_last = 1});
      save(store, 1);
    }
    const int status = in_child([&] {
      begin_faults(lacks);
      faults.action = SyscallFaults::Action::exit;
      faults.at = at;
      CheckpointStore store(dir.path(), {.keep_last = 1});
      save(store, 2);
      return 0;
    });
    REQUIRE(WIFEXITED(status));
    const bool crashed = WEXITSTATUS(status) == 86;
    REQUIRE((crashed || WEXITSTATUS(status) == 0));
    const int step = latest_step(dir.path());
    CHECK((step == 2 || (step == 1 && crashed)));
    CheckpointStore store(dir.path(), {.keep_last = 1});
    save(store, 3);
    CHECK(latest_step(dir.path()) == 3);
    CHECK(list_checkpoints(dir.path()).size() == 1);
    for (const auto& entry : fs::directory_iterator(dir.path())) {
      const std::string name = entry.path().filename();
      CHECK((name == ".lock" || name.starts_with("checkpoint-")));
    }
    if (!crashed) break;
    ++crashes;
  }
  CHECK(crashes >= 15);
  faults = {};
}

TEST_CASE("what a file system lacks is said once, and checkpoints are written all the same",
          "[checkpoint]") {
  struct Case {
    const char *lacks, *says;
  };
  for (const Case& c :
       {Case{"directory", "cannot rename directories"}, Case{"rename", "cannot rename directories"},
        Case{"sync", "does not sync directories"}, Case{"fsync", "does not sync files"},
        Case{"onto", ""}}) {
    CAPTURE(c.lacks);
    TemporaryDirectory dir;
    begin_faults(c.lacks);
    std::vector<std::string> warnings;
    {
      CheckpointStore store(dir / "run");
      for (int step = 1; step <= 4; ++step) save(store, step);
      warnings = store.take_warnings();
    }
    faults = {};
    CHECK(latest_step(dir / "run") == 4);
    CHECK(list_checkpoints(dir / "run").size() == 2);
    CHECK(warnings.size() == (*c.says ? 1 : 0));
    if (!warnings.empty()) {
      CHECK_THAT(warnings[0], Contains("run': its file system ") && Contains(c.says));
    }
  }
}

TEST_CASE("kill -9 at random moments never loses a reported commit", "[slow][checkpoint][crash]") {
  TemporaryDirectory dir;
  std::mt19937 random(3);
  int reported = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  int kills = 0;
  // A busy machine kills fewer in that time, some before they have saved anything.
  const auto enough = [&] {
    return kills >= 20 && reported >= 1 && std::chrono::steady_clock::now() >= deadline;
  };
  for (; kills < 60 && !enough(); ++kills) {
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(pipe[0]);
      try {
        CheckpointStore store(dir.path());
        for (int step = reported + 1;; ++step) {
          save(store, step, 20000);
          if (::write(pipe[1], &step, sizeof step) != sizeof step) ::_exit(3);
        }
      } catch (const std::exception& e) {
        std::fprintf(stderr, "child: %s\n", e.what());
        ::_exit(2);
      }
    }
    ::close(pipe[1]);
    // Longer and longer, up to ten seconds, until one has come to save something.
    const uint32_t longest = 20000u << (reported > 0 ? 0 : kills / 6);
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % longest));
    REQUIRE(::kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    int step = 0;
    while (::read(pipe[0], &step, sizeof step) == sizeof step) reported = step;
    ::close(pipe[0]);
    const int found = latest_step(dir.path());
    // The child may have committed once more before it could tell.
    CHECK(found >= reported);
    CHECK(found <= reported + 1);
    reported = found;
  }
  CHECK(kills >= 20);
  CHECK(reported >= 1);
}

TEST_CASE("a file-size limit is an error, not a signal", "[checkpoint][crash]") {
  TemporaryDirectory dir;
  {
    CheckpointStore store(dir.path());
    save(store, 1);
  }
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    CheckpointStore store(dir.path());
    try {
      save(store, 2, 1 << 20);
      return 3;
    } catch (const InputError& e) {
      if (!std::strstr(e.what(), "model.safetensors: cannot be written: File too large")) return 4;
    }
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGXFSZ)) return 5;
    save(store, 3);
    return 0;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(latest_step(dir.path()) == 3);
}

TEST_CASE("a full disk: the last checkpoint stays, and saving works again when there is room",
          "[checkpoint][crash]") {
  TemporaryDirectory dir;
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      return 77;
    }
    CheckpointStore store(dir.path());
    save(store, 1);
    rondo::test::spit(dir / "ballast", std::string(700 << 10, 'x'));
    try {
      save(store, 2, 100000);
      return 3;
    } catch (const InputError& e) {
      if (!std::strstr(e.what(), "No space left on device")) return 4;
    }
    if (latest_step(dir.path()) != 1) return 5;
    fs::remove(dir / "ballast");
    save(store, 3, 100000);
    return latest_step(dir.path()) == 3 ? 0 : 6;
  });
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    WARN("no privilege to mount a small tmpfs: full disk not tried for real");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}
