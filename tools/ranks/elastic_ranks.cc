#include "tools/ranks/elastic_ranks.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "engine/io/signals.h"
#include "kernels/base/error.h"
#include "tools/command_line/command_line.h"

namespace rondo {
namespace {

constexpr auto store_timeout = std::chrono::seconds(30);
// Between two looks: while ranks work, and while they come together.
constexpr int calm_pause = 20, busy_pause = 2;  // milliseconds
// While data are opened, ranks wait for each other so many times as long as in training.
constexpr int patience_at_start = 10;
constexpr double most_seconds = 1e7;

int signal_to_pass_on() { return stop_signal() ? stop_signal() : SIGTERM; }

int code_of(const ChildStatus& s) {
  return s.kind == ChildStatus::exited ? s.number : 128 + s.number;
}

std::string counted_ranks(int64_t n) { return str(n, n == 1 ? " rank" : " ranks"); }

}  // namespace

ElasticRanks::ElasticRanks(ElasticRanksOptions options) : options_(std::move(options)) {
  places_.resize(static_cast<size_t>(options_.ranks));
  for (size_t i = 0; i < places_.size(); ++i) start(i);
}

void ElasticRanks::start(size_t place) {
  const int before = places_[place].processes;
  Place p;
  p.processes = before + 1;
  p.name = str(place, ".", p.processes);
  std::vector<std::string> settings = options_.settings;
  settings.push_back(str("RANK=", place));
  settings.push_back(str("WORLD_SIZE=", options_.ranks));
  settings.push_back(str("LOCAL_RANK=", place));
  settings.push_back(str("LOCAL_WORLD_SIZE=", options_.ranks));
  settings.push_back("RONDO_ATTEMPT=" + p.name);
  settings.emplace_back(before > 0 ? "RONDO_ELASTIC=joins" : "RONDO_ELASTIC=begins");
  p.process = std::make_unique<RankProcess>(
      ChildProcess(rank_arguments(options_.words, before > 0), rank_environment(settings)));
  places_[place] = std::move(p);
}

Outcome ElasticRanks::run() {
  const auto lives = [](const Place& p) { return p.lives(); };
  while (std::any_of(places_.begin(), places_.end(), lives)) {
    listen();
    look();
    if (!ending_) {
      hear();
      regroup();
    }
    pass_on_signal();
    kill_the_late();
    if (run_is_done()) end_all({});
  }
  listen();
  if (run_is_done()) return {};
  if (ending_ && ending_->kind == Outcome::own_reason) return *ending_;
  if (stop_requested()) {
    const int number = signal_to_pass_on();
    return {Outcome::told, 128 + number, str("told to stop (", signal_name(number), ")")};
  }
  return ending_ ? *ending_ : last_loss_;
}

void ElasticRanks::listen() {
  std::vector<const RankProcess*> all;
  bool calm = together_;
  for (const Place& p : places_) {
    if (p.process) all.push_back(p.process.get());
    calm = calm && (!p.lives() || is_of_generation(p));
  }
  wait_for_words(all, calm ? calm_pause : busy_pause);
  for (Place& p : places_) {
    if (p.process) p.process->listen(name_of(p));
  }
}

std::string ElasticRanks::name_of(const Place& p) const {
  return p.generation > 0 ? str("rank ", p.rank) : str("process ", p.name);
}

void ElasticRanks::look() {
  std::vector<size_t> lost;
  for (size_t i = 0; i < places_.size(); ++i) {
    Place& p = places_[i];
    if (!p.lives()) continue;
    p.process->look();
    if (p.lives() || p.succeeded()) continue;
    p.process->listen(name_of(p));  // its report may be the last thing that it said
    if (is_lost(p)) lost.push_back(i);
  }
  for (size_t i : lost) lose(i);
}

// Of one that has ended, but not well; what is no loss is dealt with here.
bool ElasticRanks::is_lost(Place& p) {
  const ChildStatus& seen = p.process->seen;
  const Outcome as_seen{Outcome::stopped, code_of(seen), str(name_of(p), " ", describe(seen))};
  if (p.process->ended_with_own_reason()) {
    if (p.generation == 0 && somebody_holds_the_run()) {
      give_up_place(p);
    } else {
      const std::string& report = p.process->report;
      end_all({Outcome::own_reason, as_seen.code, report.empty() ? as_seen.cause : report});
    }
    return false;
  }
  if (seen.kind != ChildStatus::exited) return !ending_;
  if (is_after_a_signal(seen.number)) {
    if (!passed_on_) end_all(as_seen);  // somebody told it to stop, and it the others
    return false;
  }
  if (seen.number != exit_comm_failure) {  // another has a reason, and says it
    last_loss_ = as_seen;
    return false;
  }
  return !ending_ && !passed_on_;
}

void ElasticRanks::lose(size_t place) {
  const Place p = std::exchange(places_[place], Place());
  places_[place].processes = p.processes;
  const RankProcess& process = *p.process;
  const bool was_stopped = process.given_up && process.before_kill.kind == ChildStatus::stopped;
  std::string what = process.given_up && !was_stopped
                         ? "did not come to meet the others in time"
                         : describe(was_stopped ? process.before_kill : process.seen);
  if (!process.report.empty()) what += ": " + process.report;
  const std::string cause =
      p.generation > 0 ? str(name_of(p), " ", what) : str("a process that was to be a rank ", what);
  last_loss_ = {Outcome::harmed, code_of(process.seen), cause};
  if (is_of_generation(p)) {
    has_lost_ = true;
    break_generation(cause);
  }
  const bool restarts = !stop_requested() && restarts_ < options_.max_restarts;
  if (restarts) {
    ++restarts_;
    start(place);
  }
  tell_loss(cause, restarts);
}

// Another in its place would meet the same; the others can do without.
void ElasticRanks::give_up_place(Place& p) {
  tell_error(str("a process that was to be a rank cannot: ", p.process->report, "; ",
                 counted_ranks(holders()), holders() == 1 ? " goes on" : " go on", " without it"));
  p.process.reset();
}

int64_t ElasticRanks::holders() const {
  return std::count_if(places_.begin(), places_.end(), [&](const Place& p) {
    return p.lives() && (is_of_generation(p) || p.arrival.progress.step >= 0);
  });
}

void ElasticRanks::tell_loss(const std::string& cause, bool restarts) const {
  const int64_t left = holders();
  std::string line = cause;
  if (left > 0) line += str("; ", counted_ranks(left), left == 1 ? " goes on" : " go on");
  if (restarts) {
    line += str(left > 0 ? ", and" : ";", " another is started (restart ", restarts_, " of ",
                options_.max_restarts, ")");
  }
  tell_error(line);
}

void ElasticRanks::break_generation(const std::string& why) {
  if (!together_) return;
  together_ = false;
  options_.store->set(elastic::broken_key(generation_), why, within(store_timeout));
}

void ElasticRanks::hear() {
  const auto arrivals = options_.store->try_get(elastic::arrivals_key, within(store_timeout));
  if (!arrivals || *arrivals == arrivals_) return;
  arrivals_ = *arrivals;
  for (Place& p : places_) {
    if (!p.lives()) continue;
    const auto text = options_.store->try_get(elastic::arrival_key(p.name), within(store_timeout));
    if (text) p.arrival = elastic::parse_arrival(*text);
  }
}

bool ElasticRanks::broken_up() {
  if (!together_) return true;
  const Place* newcomer = nullptr;
  for (const Place& p : places_) {
    if (!p.waits()) continue;
    if (is_of_generation(p)) {
      break_generation("a rank has left");
      return true;
    }
    newcomer = &p;
  }
  if (newcomer && !knows_of_newcomers_) {
    knows_of_newcomers_ = true;
    options_.store->set(elastic::newcomers_key(generation_), newcomer->name, within(store_timeout));
  }
  return false;
}

// Whether the next generation has to wait for this process.
bool ElasticRanks::is_waited_for(const Place& p) const {
  if (together_ || !p.lives() || p.waits()) return false;
  if (is_of_generation(p)) return true;
  // From a checkpoint, or the beginning, all go on together.
  return !somebody_holds_the_run();
}

void ElasticRanks::regroup() {
  if (!broken_up()) return;
  const auto waited_for = [&](const Place& p) { return is_waited_for(p); };
  if (std::any_of(places_.begin(), places_.end(), waited_for)) {
    if (!late_from_) late_from_ = CommClock::now();
    return;
  }
  late_from_.reset();
  form();
}

void ElasticRanks::form() {
  std::vector<Place*> ranks;
  for (Place& p : places_) {
    if (p.waits()) ranks.push_back(&p);
  }
  if (ranks.empty()) return;
  // Ranks that lose each other, and nobody is gone, may do so again and again.
  if (generation_ > 0 && !has_lost_ && !knows_of_newcomers_) {
    const auto says_why = std::find_if(ranks.begin(), ranks.end(),
                                       [](const Place* p) { return !p->arrival.why.empty(); });
    const std::string why = says_why == ranks.end() ? "ranks have left" : (*says_why)->arrival.why;
    if (restarts_ >= options_.max_restarts) {
      return end_all({Outcome::lost_others, exit_comm_failure, why});
    }
    ++restarts_;
    tell_error(str(why, "; ", counted_ranks(static_cast<int64_t>(ranks.size())), " go on (restart ",
                   restarts_, " of ", options_.max_restarts, ")"));
  }
  std::stable_sort(ranks.begin(), ranks.end(), [](const Place* a, const Place* b) {
    return a->arrival.progress > b->arrival.progress;
  });
  if (generation_ > 0 && ranks.front()->arrival.progress.step < 0) {
    std::fprintf(stderr,
                 "rondo: no rank is left that holds the run: starting again from the last "
                 "checkpoint, with %s\n",
                 counted_ranks(static_cast<int64_t>(ranks.size())).c_str());
  }
  ++generation_;
  together_ = true;
  knows_of_newcomers_ = has_lost_ = false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    Place& p = *ranks[i];
    p.generation = generation_;
    p.rank = static_cast<int>(i);
    p.rounds_answered = p.arrival.round;
    const elastic::Seat seat{generation_, p.rank, static_cast<int>(ranks.size())};
    options_.store->set(elastic::seat_key(p.name, p.arrival.round), elastic::encode(seat),
                        within(store_timeout));
  }
}

bool ElasticRanks::run_is_done() const {
  if (generation_ == 0 || has_lost_) return false;
  return std::all_of(places_.begin(), places_.end(),
                     [&](const Place& p) { return !is_of_generation(p) || p.succeeded(); });
}

// The first that ends everything counts.
void ElasticRanks::end_all(const Outcome& outcome) {
  if (ending_) return;
  ending_ = outcome;
  options_.store->set(elastic::over_key, "1", within(store_timeout));
  kill_at_ = within(outcome.kind == Outcome::succeeded ? CommClock::duration{} : options_.grace);
}

void ElasticRanks::pass_on_signal() {
  if (!stop_requested() || passed_on_) return;
  passed_on_ = true;
  for (const Place& p : places_) {
    if (p.lives()) p.process->process.signal(signal_to_pass_on());
  }
}

std::chrono::duration<double> ElasticRanks::patience_with(const Place& p) const {
  if (p.process->seen.kind == ChildStatus::stopped) return options_.grace;
  double seconds = 0;
  for (const Place& other : places_) seconds = std::max(seconds, other.arrival.patience);
  if (seconds == 0) seconds = most_seconds;  // nobody has said anything yet
  return std::chrono::duration<double>(p.generation == 0 ? patience_at_start * seconds : seconds);
}

void ElasticRanks::kill_the_late() {
  const auto now = CommClock::now();
  for (Place& p : places_) {
    if (!p.lives() || p.process->given_up) continue;
    bool late = kill_at_ && now >= *kill_at_;
    if (!late && late_from_ && is_waited_for(p)) {
      late = now - *late_from_ >= patience_with(p);
    }
    if (!late) continue;
    p.process->given_up = true;
    p.process->process.signal(SIGKILL);
  }
}

}  // namespace rondo
