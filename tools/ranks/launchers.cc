#include "tools/ranks/launchers.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/sha256.h"
#include "comm/store/tcp_store.h"
#include "engine/io/signals.h"
#include "kernels/base/cpu/thread.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A launcher that has been silent for so long counts as gone, and so does its machine; the latter
// where ranks have failed already.
constexpr auto longest_silence = seconds(30), silence_in_trouble = seconds(5);
constexpr auto look_every = milliseconds(200);
constexpr auto store_timeout = seconds(30);
// For the others to hear the verdict.
constexpr auto farewell = seconds(5);
// Until somebody who waits is told what for.
constexpr auto patience = seconds(15);

// Keys of the store. Node i announces node_key(i), with a value of its own for each attempt.
constexpr const char* job_key = "launch/job";
constexpr const char* refusal_key = "launch/refusal";
constexpr const char* seen_key = "launch/seen";  // an attempt was made before
constexpr const char* attempt_key = "launch/attempt";
constexpr const char* goes_on_key = "launch/goes-on";
constexpr const char* verdict_key = "launch/verdict";
constexpr const char* trouble_key = "launch/trouble";  // with one of these values
constexpr const char *failing = "failing", *told_to_stop = "told to stop";
std::string node_key(int node) { return str("launch/node-", node); }
// What node i had announced when the attempt began.
std::string admitted_key(int node) { return str("launch/admitted-", node); }
std::string beat_key(int node) { return str("launch/beat-", node); }
// Of what became of a node's ranks, and of the verdict: besides the key itself, which comes last.
std::string code_of(const std::string& key) { return key + "/code"; }
std::string cause_of(const std::string& key) { return key + "/cause"; }
std::string outcome_key(int node) { return str("launch/outcome-", node); }

int number_in(const std::string& text, int most) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0 || value > most) {
    fail_input("'", text.substr(0, 40), "' in the store is no number from 0 to ", most);
  }
  return value;
}

// A number with its code and cause, which are there once it is.
struct Told {
  int what = 0, code = 0;
  std::string cause;
};

void put(Store& store, const std::string& key, const Told& told) {
  const Deadline deadline = within(store_timeout);
  store.set(cause_of(key), told.cause, deadline);
  store.set(code_of(key), std::to_string(told.code), deadline);
  store.set(key, std::to_string(told.what), deadline);
}

// That somebody was told to stop says more than that ranks have lost each other since.
void put_trouble(Store& store) {
  const Deadline deadline = within(store_timeout);
  if (stop_requested()) {
    store.set(trouble_key, told_to_stop, deadline);
  } else if (!store.try_get(trouble_key, deadline)) {
    store.set(trouble_key, failing, deadline);
  }
}

std::optional<Elsewhere> find_trouble(Store& store) {
  const auto value = store.try_get(trouble_key, within(store_timeout));
  if (!value) return std::nullopt;
  return *value == told_to_stop ? Elsewhere::told_to_stop : Elsewhere::failing;
}

std::optional<Told> find(Store& store, const std::string& key, int most) {
  const Deadline deadline = within(store_timeout);
  const auto what = store.try_get(key, deadline);
  if (!what) return std::nullopt;
  constexpr int largest_code = 255;
  return Told{number_in(*what, most), number_in(store.get(code_of(key), deadline), largest_code),
              store.get(cause_of(key), deadline)};
}

// What all machines have to be started with alike.
std::string job_of(const LaunchersOptions& o) { return str("--nodes ", o.nodes, " -n ", o.ranks); }

Outcome machine_lost(const std::string& who, const Outcome& seen) {
  const bool has_witness = seen.kind == Outcome::lost_others && !seen.cause.empty();
  return {Outcome::machine_lost, exit_comm_failure, has_witness ? str(who, "; ", seen.cause) : who};
}

Verdict verdict_on(const Outcome& outcome, int failures, int max_restarts) {
  if (outcome.kind == Outcome::succeeded) return {};
  if (!outcome.may_go_better() || failures > max_restarts) {
    return {Verdict::stop, outcome.code, outcome.cause};
  }
  return {Verdict::again, outcome.code,
          str(outcome.cause, "; starting again from the last checkpoint (restart ", failures,
              " of ", max_restarts, ")")};
}

// The launcher of node 0.
class First final : public Launchers {
 public:
  explicit First(const LaunchersOptions& options) : options_(options) {
    TcpStoreServerOptions s;
    s.bind_address = options.bind_address;
    s.port = options.port;
    s.token = options.token;
    const int64_t connections = int64_t{options.nodes} * (options.ranks + 2);
    s.max_connections = static_cast<int>(std::max<int64_t>(s.max_connections, connections));
    s.max_strangers = std::max(s.max_strangers, options.ranks);  // of a machine begin at once
    server_ = std::make_unique<TcpStoreServer>(s);
  }

  uint16_t port() const override { return server_->port(); }

  std::optional<Attempt> begin() override {
    if (++number_ > 1) server_->begin_anew();
    Attempt attempt{str(number_, "-", random_token().substr(0, 8)), number_ > 1};
    if (options_.nodes == 1) return attempt;
    store_ =
        make_tcp_store(options_.address, server_->port(), options_.token, within(store_timeout));
    store_->set(job_key, job_of(options_), within(store_timeout));
    if (!wait_for_all()) {
      dismiss({Verdict::stop, 128 + stop_signal(), "node 0 was told to stop"});
      return std::nullopt;
    }
    attempt.goes_on = attempt.goes_on || get(seen_key);
    if (attempt.goes_on) store_->set(goes_on_key, "1", within(store_timeout));
    for (size_t i = 0; i < others_.size(); ++i) {
      store_->set(admitted_key(node_of(i)), others_[i].announced, within(store_timeout));
    }
    store_->set(attempt_key, attempt.name, within(store_timeout));
    return attempt;
  }

  Elsewhere elsewhere() override {
    if (options_.nodes == 1) return Elsewhere::fine;
    if (CommClock::now() < next_look_) return trouble_;
    next_look_ = within(look_every);
    if (!in_trouble()) look(longest_silence);
    const bool lost =
        std::any_of(others_.begin(), others_.end(), [](const Other& o) { return !o.lost.empty(); });
    if (lost && !in_trouble()) tell_trouble();
    trouble_ = find_trouble(*store_).value_or(trouble_);
    return trouble_;
  }

  void tell_trouble() override {
    if (options_.nodes > 1) put_trouble(*store_);
    trouble_ = Elsewhere::failing;
  }

  Verdict end(const Outcome& own) override {
    const Outcome worst = options_.nodes == 1 ? own : worst_of_all(own);
    Verdict verdict = verdict_on(worst, number_, options_.max_restarts);
    if (verdict.what == Verdict::again && stop_requested()) {
      verdict = {Verdict::stop, 128 + stop_signal(), "node 0 was told to stop"};
    }
    if (options_.nodes > 1) dismiss(verdict);
    return verdict;
  }

 private:
  // The launcher of another machine, in this attempt.
  struct Other {
    std::string announced;  // empty: it has not come yet
    std::string beat;
    CommClock::time_point heard;
    std::string lost;  // how, if it is
    std::optional<Outcome> outcome;
  };

  bool in_trouble() const { return trouble_ != Elsewhere::fine; }

  std::optional<std::string> get(const std::string& key) {
    return store_->try_get(key, within(store_timeout));
  }

  static std::string name_of(size_t i) { return str("node ", i + 1); }
  static int node_of(size_t i) { return static_cast<int>(i) + 1; }

  // False: told to stop.
  bool wait_for_all() {
    others_.assign(static_cast<size_t>(options_.nodes - 1), {});
    trouble_ = Elsewhere::fine;
    const Deadline deadline = within(options_.join_timeout), tells = within(patience);
    for (bool told = false;;) {
      std::string missing;
      for (size_t i = 0; i < others_.size(); ++i) {
        Other& o = others_[i];
        if (const auto value = get(node_key(node_of(i)))) {
          o.announced = *value;
          o.heard = CommClock::now();
        } else {
          o.announced.clear();
          missing += str(missing.empty() ? "" : ", ", name_of(i));
        }
      }
      if (const auto refusal = get(refusal_key)) fail_all(*refusal);
      if (missing.empty()) return true;
      if (stop_requested()) return false;
      if (CommClock::now() >= deadline) {
        fail_all(str("the launcher of ", missing, " did not come within ",
                     std::chrono::duration<double>(options_.join_timeout).count(),
                     " s (--join-timeout)"));
      }
      if (!told && CommClock::now() >= tells) {
        told = true;
        std::fprintf(stderr, "rondo: waiting for the launcher of %s\n", missing.c_str());
      }
      std::this_thread::sleep_for(milliseconds(50));
    }
  }

  [[noreturn]] void fail_all(const std::string& why) {
    dismiss({Verdict::stop, 1, why});
    throw InputError(why);
  }

  void look(CommClock::duration silence) {
    for (size_t i = 0; i < others_.size(); ++i) {
      Other& o = others_[i];
      if (!o.lost.empty() || o.outcome) continue;
      const auto announced = get(node_key(node_of(i)));
      if (const auto told = find(*store_, outcome_key(node_of(i)), Outcome::own_reason)) {
        o.outcome = {static_cast<Outcome::Kind>(told->what), told->code, told->cause};
      } else if (!announced) {
        o.lost = str("the launcher of ", name_of(i), " is gone");
      } else if (*announced != o.announced) {
        o.lost = str("the launcher of ", name_of(i), " was started anew");
      }
      const auto beat = get(beat_key(node_of(i)));
      if (beat && *beat != o.beat) {
        o.beat = *beat;
        o.heard = CommClock::now();
      } else if (CommClock::now() - o.heard > silence && o.lost.empty() && !o.outcome) {
        o.lost = str(name_of(i), " does not answer");
      }
    }
  }

  Outcome worst_of_all(const Outcome& own) {
    const bool failed = own.kind != Outcome::succeeded;
    const auto is_known = [](const Other& o) { return !o.lost.empty() || o.outcome; };
    for (;;) {
      look(failed || in_trouble() ? silence_in_trouble : longest_silence);
      if (std::all_of(others_.begin(), others_.end(), is_known)) break;
      elsewhere();
      std::this_thread::sleep_for(milliseconds(50));
    }
    Outcome worst = own;
    for (const Other& o : others_) {
      const Outcome theirs = o.outcome ? *o.outcome : machine_lost(o.lost, own);
      // Where rank 0 has ended well, so has the run.
      if (!failed && theirs.kind == Outcome::machine_lost) continue;
      if (theirs.kind > worst.kind) worst = theirs;
    }
    return worst;
  }

  // Tells the others, and waits until they have heard.
  void dismiss(const Verdict& verdict) {
    put(*store_, verdict_key, {verdict.what, verdict.code, verdict.cause});
    const Deadline deadline = within(farewell);
    for (size_t i = 0; i < others_.size(); ++i) {
      const Other& o = others_[i];
      while (o.lost.empty() && CommClock::now() < deadline) {
        const auto announced = get(node_key(node_of(i)));
        if (!announced || *announced != o.announced) break;
        std::this_thread::sleep_for(milliseconds(10));
      }
    }
  }

  const LaunchersOptions options_;
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<TcpStore> store_;
  std::vector<Other> others_;
  int number_ = 0;
  Elsewhere trouble_ = Elsewhere::fine;
  Deadline next_look_{};
};

constexpr const char* launcher_gone = "the launcher of node 0 is gone";
constexpr const char* no_answer = "node 0 does not answer";

// Speaks with node 0 in a thread of its own, which may wait for long for a machine that is silent:
// the ranks have to be watched meanwhile.
class Line {
 public:
  Line(std::unique_ptr<TcpStore> store, int node)
      : store_(std::move(store)),
        node_(node),
        thread_(start_thread("the thread that speaks with node 0", [this] { speak(); })) {}
  ~Line() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    store_->hang_up();
    changed_.notify_all();
    thread_.join();
  }

  void tell_trouble() {
    change([this] { tells_trouble_ = true; });
  }
  void tell(const Outcome& outcome) {
    change([&] { outcome_ = outcome; });
  }

  struct State {
    std::string lost;  // how, if it is
    Elsewhere trouble = Elsewhere::fine;
    std::optional<Told> verdict;
    CommClock::time_point heard = CommClock::now();
  };
  State state() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  template <class F>
  void change(F f) {
    {
      const std::lock_guard lock(mutex_);
      f();
    }
    changed_.notify_all();
  }

  void speak() {
    try {
      while (exchange()) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, look_every, [this] { return ends_ || tells_trouble_ || outcome_; });
        if (ends_) return;
      }
    } catch (const CommError& e) {
      const bool silent = e.kind() == CommErrorKind::timeout;
      change([&] { state_.lost = silent ? no_answer : launcher_gone; });
    } catch (const std::exception& e) {
      change([&] { state_.lost = str("node 0: ", e.what()); });
    }
  }

  // False once the verdict is there.
  bool exchange() {
    bool tells_trouble = false;
    std::optional<Outcome> outcome;
    {
      const std::lock_guard lock(mutex_);
      std::swap(tells_trouble, tells_trouble_);
      std::swap(outcome, outcome_);
    }
    const Deadline deadline = within(store_timeout);
    if (tells_trouble) put_trouble(*store_);
    if (outcome) {
      put(*store_, outcome_key(node_), {outcome->kind, outcome->code, outcome->cause});
    }
    store_->add(beat_key(node_), 1, deadline);
    const auto trouble = find_trouble(*store_);
    const std::optional<Told> verdict = find(*store_, verdict_key, Verdict::stop);
    change([&] {
      state_.trouble = trouble.value_or(state_.trouble);
      state_.verdict = verdict;
      state_.heard = CommClock::now();
    });
    return !verdict;
  }

  const std::unique_ptr<TcpStore> store_;
  const int node_;
  mutable std::mutex mutex_;
  ConditionVariable changed_;
  State state_;
  bool ends_ = false, tells_trouble_ = false;
  std::optional<Outcome> outcome_;
  Thread thread_;
};

// The launcher of another node.
class Follower final : public Launchers {
 public:
  explicit Follower(const LaunchersOptions& options) : options_(options) {}

  uint16_t port() const override { return options_.port; }

  std::optional<Attempt> begin() override {
    join_by_ = within(options_.join_timeout);
    tells_at_ = within(patience);
    why_ = "no answer";
    while (!stop_requested()) {
      try {
        if (auto attempt = join()) return attempt;
      } catch (const CommError& e) {
        why_ = e.what();  // it is not there yet, or is gone again
      }
      wait_or_fail();
    }
    return std::nullopt;
  }

  Elsewhere elsewhere() override {
    const Line::State s = line_->state();
    const bool gone = !s.lost.empty() || s.verdict || CommClock::now() - s.heard > longest_silence;
    return gone && s.trouble == Elsewhere::fine ? Elsewhere::failing : s.trouble;
  }

  void tell_trouble() override { line_->tell_trouble(); }

  Verdict end(const Outcome& own) override {
    line_->tell(own);
    const bool failed = own.kind != Outcome::succeeded;
    for (;;) {
      const Line::State s = line_->state();
      if (s.verdict) return heard(*s.verdict);
      const auto limit =
          failed || s.trouble != Elsewhere::fine ? silence_in_trouble : longest_silence;
      if (!s.lost.empty() || CommClock::now() - s.heard > limit) {
        line_.reset();
        Outcome worst = machine_lost(s.lost.empty() ? no_answer : s.lost, own);
        if (own.kind > worst.kind) worst = own;
        return verdict_on(worst, ++losses_, options_.max_restarts);
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

 private:
  // Nothing: try again.
  std::optional<Attempt> join() {
    auto store =
        make_tcp_store(options_.address, options_.port, options_.token, within(seconds(1)));
    const Deadline deadline = within(store_timeout);
    const auto job = store->try_get(job_key, deadline);
    if (!job) return std::nullopt;
    if (*job != job_of(options_)) {
      const std::string refusal =
          str("node ", options_.node_rank, " was started with ", job_of(options_), ", node 0 with ",
              *job, ": expected the same on all machines");
      store->set(refusal_key, refusal, deadline);
      throw InputError(refusal);
    }
    if (has_begun_) store->set(seen_key, "1", deadline);
    const std::string announced = random_token().substr(0, 16);
    store->announce(node_key(options_.node_rank), announced, deadline);
    why_ = "it waits for other machines, or for the end of an attempt";
    Attempt attempt;
    while (!stop_requested()) {
      if (const auto verdict = find(*store, verdict_key, Verdict::stop)) {
        if (verdict->what == Verdict::stop) throw InputError(verdict->cause);
        return std::nullopt;  // of the attempt before
      }
      const auto name = store->try_get(attempt_key, within(store_timeout));
      // An attempt that was under way before is not for this launcher.
      if (name &&
          store->get(admitted_key(options_.node_rank), within(store_timeout)) == announced) {
        attempt.name = *name;
        break;
      }
      wait_or_fail();
    }
    attempt.goes_on = store->try_get(goes_on_key, within(store_timeout)).has_value();
    if (stop_requested()) return std::nullopt;
    has_begun_ = true;
    line_ = std::make_unique<Line>(std::move(store), options_.node_rank);
    return attempt;
  }

  void wait_or_fail() {
    const std::string place = str(options_.address, ":", options_.port);
    if (CommClock::now() >= join_by_) {
      fail_input("the launcher of node 0 at ", place, " has begun no attempt within ",
                 std::chrono::duration<double>(options_.join_timeout).count(),
                 " s (--join-timeout): ", why_);
    }
    if (tells_at_ && CommClock::now() >= *tells_at_) {
      tells_at_.reset();
      std::fprintf(stderr, "rondo: waiting for the launcher of node 0 at %s (%s)\n", place.c_str(),
                   why_.c_str());
    }
    std::this_thread::sleep_for(milliseconds(50));
  }

  Verdict heard(const Told& told) {
    line_.reset();
    return {static_cast<Verdict::What>(told.what), told.code, told.cause};
  }

  const LaunchersOptions options_;
  std::unique_ptr<Line> line_;
  bool has_begun_ = false;
  int losses_ = 0;  // of node 0
  Deadline join_by_{};
  std::optional<Deadline> tells_at_;
  std::string why_;
};

}  // namespace

std::unique_ptr<Launchers> make_launchers(const LaunchersOptions& options) {
  if (options.node_rank == 0) return std::make_unique<First>(options);
  return std::make_unique<Follower>(options);
}

}  // namespace rondo
