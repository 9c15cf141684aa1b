#include "tools/ranks/local_ranks.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/io/signals.h"
#include "kernels/base/error.h"

namespace rondo {

LocalRanks::LocalRanks(LocalRanksOptions options) : options_(std::move(options)) {
  const auto arguments = rank_arguments(options_.words, options_.goes_on);
  for (int i = 0; i < options_.ranks; ++i) {
    std::vector<std::string> environment = rank_environment(options_.settings);
    environment.push_back(str("RANK=", rank_of(i)));
    environment.push_back(str("WORLD_SIZE=", options_.nodes * options_.ranks));
    environment.push_back(str("LOCAL_RANK=", i));
    environment.push_back(str("LOCAL_WORLD_SIZE=", options_.ranks));
    environment.push_back("RONDO_ATTEMPT=" + options_.attempt);
    children_.emplace_back(ChildProcess(arguments, environment));
  }
}

void LocalRanks::wait(const std::function<Elsewhere()>& elsewhere,
                      const std::function<void()>& tell) {
  bool told_to_stop = false, has_told = false;
  while (std::any_of(children_.begin(), children_.end(),
                     [](const RankProcess& c) { return !c.seen.ended(); })) {
    listen();
    look();
    if (first_failed_ && !has_told) {
      has_told = true;
      tell();
    }
    const Elsewhere others = elsewhere();
    if (others != Elsewhere::fine) give_up_later();
    if ((stop_requested() || others == Elsewhere::told_to_stop) && !told_to_stop) {
      told_to_stop = true;
      for (const RankProcess& c : children_)
        c.process.signal(stop_signal() ? stop_signal() : SIGTERM);
    }
    if (give_up_at_ && CommClock::now() >= *give_up_at_) kill_the_rest();
  }
  listen();
}

void LocalRanks::listen() {
  std::vector<const RankProcess*> all;
  for (const RankProcess& c : children_) all.push_back(&c);
  wait_for_words(all, 20);
  for (size_t i = 0; i < children_.size(); ++i) {
    const int rank = rank_of(static_cast<int>(i));
    const bool speaks_for_all = rank == 0 && divides_inputs(options_.words);
    children_[i].listen(speaks_for_all ? "" : str("rank ", rank));
  }
}

void LocalRanks::look() {
  for (size_t i = 0; i < children_.size(); ++i) {
    RankProcess& c = children_[i];
    if (c.seen.ended()) continue;
    c.look();
    if (!c.seen.ended() || c.seen.succeeded()) continue;
    order_.push_back(i);
    if (first_failed_) continue;
    first_failed_ = i;
    give_up_later();
  }
}

// The others notice by themselves, and say what they saw; not one that is stopped.
void LocalRanks::give_up_later() {
  if (!give_up_at_) give_up_at_ = within(options_.grace);
}

void LocalRanks::kill_the_rest() {
  for (RankProcess& c : children_) {
    c.given_up = c.given_up || !c.seen.ended();
    c.process.signal(SIGKILL);
  }
}

// A rank that ended by itself and says what it failed at.
std::optional<size_t> LocalRanks::that_says_why() const {
  for (size_t i : order_) {
    if (children_[i].ended_with_own_reason() && !children_[i].report.empty()) return i;
  }
  return std::nullopt;
}

int LocalRanks::code_of(size_t i) const {
  const ChildStatus& s = children_[i].seen;
  return s.kind == ChildStatus::exited ? s.number : 128 + s.number;
}

// 0, or the code of the rank that the cause below is about, so far as it has one: the others may
// be noticed first.
int LocalRanks::exit_code() const {
  if (!first_failed_) return 0;
  if (const auto i = that_says_why()) return code_of(*i);
  for (size_t i = 0; i < children_.size(); ++i) {
    if (!children_[i].given_up && children_[i].was_harmed()) return code_of(i);
  }
  return code_of(*first_failed_);
}

std::string LocalRanks::cause() const {
  if (const auto i = that_says_why()) return children_[*i].report;
  for (size_t i = 0; i < children_.size(); ++i) {  // a rank that something was done to
    const RankProcess& c = children_[i];
    if (!c.was_harmed()) continue;
    const std::string victim = str("rank ", rank_of(static_cast<int>(i)));
    const std::string seen = witness_of(victim + " is lost");
    return str(victim, " ", describe(c.given_up ? c.before_kill : c.seen), seen.empty() ? "" : "; ",
               seen);
  }
  const std::string witness = witness_of("");
  if (!witness.empty()) return witness;
  if (children_[*first_failed_].given_up) return "";  // killed here, for what happened elsewhere
  return str("rank ", rank_of(static_cast<int>(*first_failed_)), " ",
             describe(children_[*first_failed_].seen));
}

// What a rank reported; rather one that says `what` than one that only lost those who followed.
std::string LocalRanks::witness_of(const std::string& what) const {
  std::string first;
  for (size_t i : order_) {
    const std::string& report = children_[i].report;
    if (report.find(what) != std::string::npos && !report.empty()) return report;
    if (first.empty()) first = report;
  }
  return first;
}

Outcome::Kind LocalRanks::kind() const {
  const auto any = [&](auto what) { return std::any_of(children_.begin(), children_.end(), what); };
  if (!first_failed_) return Outcome::succeeded;
  if (any([](const RankProcess& c) { return c.ended_with_own_reason(); }))
    return Outcome::own_reason;
  if (stop_requested()) return Outcome::told;
  if (any([](const RankProcess& c) { return c.was_harmed(); })) return Outcome::harmed;
  if (any([](const RankProcess& c) {
        return c.seen.kind == ChildStatus::exited && is_after_a_signal(c.seen.number);
      })) {
    return Outcome::stopped;
  }
  return Outcome::lost_others;
}

Outcome LocalRanks::outcome() const {
  const Outcome::Kind k = kind();
  if (k == Outcome::succeeded) return {};
  if (k == Outcome::told) {
    const int number = stop_signal() ? stop_signal() : SIGTERM;
    return {k, 128 + number,
            str("node ", options_.node_rank, " was told to stop (", signal_name(number), ")")};
  }
  return {k, exit_code(), cause()};
}

}  // namespace rondo
