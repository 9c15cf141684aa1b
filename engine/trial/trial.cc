#include "engine/trial/trial.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>

#include "engine/io/json.h"
#include "engine/ops/lstm/lstm.h"
#include "kernels/base/error.h"
#include "kernels/lstm/lstm_class.h"

extern char** environ;

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// Nothing in a graph says of which dtype a node computes but its values.
DType compute_of(const Graph& graph, const Node& node) {
  return graph.value(node.inputs.at(node.op == "lstm" ? 0 : 3)).dtype;
}

}  // namespace

std::vector<TriedCalls> tried_calls(const Graph& graph, int64_t sequences) {
  std::vector<TriedCalls> calls;
  const auto most =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(sequences, 1))));
  for (int64_t n = most; n >= 1; n /= 2) {
    for (const Node& node : graph.nodes) {
      const bool forward = node.op == "lstm";
      if ((!forward && node.op != "lstm_backward") || lstm_run_of(node) != LstmRun::both) continue;
      TriedCalls c{forward ? LstmForwardArgs::op : LstmBackwardArgs::op,
                   lstm_class(compute_of(graph, node), lstm_dims_of(node), n).text()};
      if (std::find(calls.begin(), calls.end(), c) == calls.end()) calls.push_back(std::move(c));
    }
  }
  return calls;
}

namespace {

std::string name_of(const DeviceId& device) {
  const std::string kind = rondo::name_of(device.kind);
  return device.kind == DeviceKind::cuda ? str(kind, ":", device.index) : kind;
}

std::string key_of(const TriedCalls& calls) { return calls.op + "/" + calls.call_class; }

// The helpers of one trial, one after the other.
class Helpers {
 public:
  Helpers(const DeviceId& device, const std::vector<TriedCalls>& calls,
          const TrialSettings& settings)
      : device_(device),
        calls_(calls),
        settings_(settings),
        end_(Clock::now() + settings.longest) {}

  std::vector<TrialRow> run(std::string* trouble) {
    while (!left().empty() && trouble_.empty()) run_one();
    *trouble = trouble_;
    // Of calls that are not through, a variant that was not tried may be the quickest.
    std::erase_if(rows_, [&](const TrialRow& row) { return !done_.contains(key_of(row.calls)); });
    return rows_;
  }

 private:
  // The calls that are not through.
  std::vector<TriedCalls> left() const {
    std::vector<TriedCalls> calls;
    for (const TriedCalls& c : calls_) {
      if (!done_.contains(key_of(c))) calls.push_back(c);
    }
    return calls;
  }

  std::vector<std::string> arguments() const {
    std::vector<std::string> words = settings_.arguments;
    words.insert(words.end(), {"--device", name_of(device_)});
    const std::vector<TriedCalls> calls = left();
    for (const TrialRow& row : rows_) {
      if (std::find(calls.begin(), calls.end(), row.calls) == calls.end()) continue;
      words.insert(words.end(), {"--known", key_of(row.calls) + "/" + row.variant});
    }
    for (const TriedCalls& c : calls) words.push_back(key_of(c));
    return words;
  }

  void run_one() {
    std::vector<std::string> environment;
    for (char** v = environ; *v; ++v) environment.emplace_back(*v);
    ChildProcess helper(arguments(), environment, settings_.helper);
    begun_.reset();
    last_word_.clear();
    Clock::time_point heard = Clock::now();
    // Until the first variant begins a GPU is opened.
    const std::chrono::milliseconds opening = std::max(settings_.patience, settings_.longest);
    while (true) {
      pollfd pipe{helper.error_pipe(), POLLIN, 0};
      ::poll(&pipe, 1, 20);
      for (const std::string& line : helper.read_lines()) {
        hear(line);
        heard = Clock::now();
      }
      if (helper.error_pipe() < 0 && helper.status().ended()) return conclude(helper.status());
      const Clock::time_point now = Clock::now();
      if (now >= end_) {
        trouble_ = str("not all kernels were tried in ", settings_.longest.count() / 1000, " s");
        return;
      }
      if (now - heard < (begun_ ? settings_.patience : opening)) continue;
      return give_up(str("did not end within ", settings_.patience.count(), " ms"));
    }
  }

  // A helper has ended by itself.
  void conclude(const ChildStatus& status) {
    if (status.succeeded()) {
      for (const TriedCalls& c : left()) done_.insert(key_of(c));
      return;
    }
    if (begun_) return give_up(describe(status));
    trouble_ = str("the program that tries kernels ", describe(status),
                   last_word_.empty() ? "" : ": " + last_word_);
  }

  // What began did not come to an end.
  void give_up(const std::string& why) {
    if (!begun_) {
      trouble_ = "the program that tries kernels " + why;
      return;
    }
    begun_->outcome = TrialRow::ended;
    begun_->why = why;
    note(*begun_);
    begun_.reset();
  }

  void note(const TrialRow& row) {
    // Without the first one there is nothing to compare others with.
    const bool first = std::none_of(rows_.begin(), rows_.end(),
                                    [&](const TrialRow& r) { return r.calls == row.calls; });
    if (first && row.outcome != TrialRow::right) done_.insert(key_of(row.calls));
    rows_.push_back(row);
    if (settings_.tried) settings_.tried(row);
  }

  // A line of JSON about a variant; others are words for a person.
  void hear(const std::string& line) {
    if (!line.starts_with('{')) {
      if (!line.empty()) last_word_ = line;
      return;
    }
    try {
      const Json json = Json::parse(line);
      TrialRow row;
      row.calls = {json.at("op").get<std::string>(), json.at("calls").get<std::string>()};
      row.variant = json.at("variant").get<std::string>();
      const auto state = json.at("is").get<std::string>();
      if (state == "ends") {
        done_.insert(key_of(row.calls));
        return;
      }
      if (state == "begins") {
        begun_ = row;
        return;
      }
      row.us = json.at("us").get<double>();
      row.why = json.at("why").get<std::string>();
      if (state == "right" && row.us > 0) {
        row.outcome = TrialRow::right;
      } else if (state == "declines") {
        row.outcome = TrialRow::declines;
      } else {
        row.outcome = TrialRow::wrong;
        if (row.why.empty()) row.why = "is told to be " + state;
      }
      begun_.reset();
      note(row);
    } catch (const JsonError& e) {
      last_word_ = str("what it said is not understood: ", e.what());
    }
  }

  const DeviceId device_;
  const std::vector<TriedCalls>& calls_;
  const TrialSettings& settings_;
  const Clock::time_point end_;
  std::vector<TrialRow> rows_;
  std::set<std::string> done_;
  std::optional<TrialRow> begun_;
  std::string last_word_, trouble_;
};

enum class Wanted : uint8_t { off, on, by_device };
Wanted wanted_trial() {
  const char* const variable = std::getenv("RONDO_TRIAL");
  const std::string text = variable ? variable : "";
  if (text == "off") return Wanted::off;
  if (text == "on") return Wanted::on;
  if (text.empty() || text == "auto") return Wanted::by_device;
  fail_input("the environment's RONDO_TRIAL is '", text, "'; expected on, off or auto");
}

bool tries_on(const DeviceId& device) {
  const Wanted wanted = wanted_trial();
  return wanted == Wanted::by_device ? device.kind == DeviceKind::cuda
                                     : wanted == Wanted::on && device.kind != DeviceKind::cpu;
}

// Under the Multi-Process Service a kernel that traps ends the work of all its clients.
bool under_mps() {
  const char* const variable = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::filesystem::path folder = variable && *variable ? variable : "/tmp/nvidia-mps";
  std::error_code error;
  return std::filesystem::exists(folder / "control", error);
}

// What rank 0 finds, for all.
TrialOutcome find(const DeviceId& device, const std::vector<TriedCalls>& calls,
                  const TrialSettings& settings) {
  TrialOutcome outcome;
  outcome.table = read_trial_cache(identity_of(require_device(device.kind, device.index)));
  std::vector<TriedCalls> missing;
  for (const TriedCalls& c : calls) {
    if (settings.again || !outcome.table.knows(c)) missing.push_back(c);
  }
  if (missing.empty() || settings.helper.empty()) return outcome;
  if (device.kind == DeviceKind::cuda && under_mps()) {
    outcome.messages.emplace_back(
        "kernels are not tried under the CUDA Multi-Process Service: the portable ones run");
    return outcome;
  }
  std::string trouble;
  if (settings.begins) settings.begins(missing.size());
  std::vector<TrialRow> rows;
  try {
    rows = run_trials(device, missing, settings, &trouble);
  } catch (const InputError& e) {  // without a trial the first variants run
    trouble = e.what();
  }
  outcome.table.add(rows);
  if (!trouble.empty()) outcome.messages.push_back("warning: " + trouble);
  for (const TrialRow& row : rows) {
    if (row.outcome != TrialRow::wrong && row.outcome != TrialRow::ended) continue;
    outcome.messages.push_back(str("warning: ", row.calls.op, " ", row.variant, " (",
                                   row.calls.call_class, ") is not used here: ", row.why));
  }
  for (const TriedCalls& c : missing) {
    if (outcome.table.knows(c)) outcome.messages.push_back("tried " + line_of(outcome.table, c));
  }
  const std::string why = write_trial_cache(outcome.table);
  if (!why.empty()) outcome.messages.push_back("what was tried is not kept: " + why);
  return outcome;
}

bool alike(const Ranks& ranks, const std::string& identity) {
  const std::vector<std::string> all = ranks.gather(identity);
  const bool same =
      std::all_of(all.begin(), all.end(), [&](const auto& i) { return i == identity; });
  return ranks.broadcast(std::string(same ? "same" : "other")) == "same";
}

}  // namespace

std::vector<TrialRow> run_trials(const DeviceId& device, const std::vector<TriedCalls>& calls,
                                 const TrialSettings& settings, std::string* trouble) {
  return Helpers(device, calls, settings).run(trouble);
}

TrialOutcome choose_kernels(const Ranks& ranks, const DeviceId& device,
                            const std::vector<TriedCalls>& calls, const TrialSettings& settings) {
  TrialOutcome outcome;
  if (device.kind == DeviceKind::cpu) return outcome;
  bool tries = false;
  std::string identity;
  ranks.together([&] {
    tries = tries_on(device);
    if (tries) identity = identity_of(require_device(device.kind, device.index));
  });
  if (ranks.size() > 1 && !alike(ranks, identity)) {
    outcome.messages.emplace_back(
        "kernels are not tried on devices that differ: the portable ones run");
    tries = false;
  }
  // What rank 0 needs is tried, for all; of stages others may need more, which stays as it is.
  if (tries) {
    ranks.at_first([&] { outcome = find(device, calls, settings); });
    outcome.table =
        trial_table_from_json(ranks.broadcast(to_json(outcome.table)), "rank 0's trial");
    const bool failed = std::any_of(calls.begin(), calls.end(), [&](const TriedCalls& c) {
      return outcome.table.knows(c) && chosen_of(outcome.table, c).empty();
    });
    outcome.failed = ranks.broadcast(std::string(failed ? "failed" : "right")) == "failed";
  }
  // A run that goes on keeps what it had, tried here or not.
  outcome.choices =
      choices_after(settings.before, outcome.table, backend_of(device.kind), &outcome.changed);
  set_choices(outcome.choices);
  return outcome;
}

void choose_known_kernels(const DeviceId& device) {
  if (device.kind == DeviceKind::cpu || !tries_on(device)) return;
  const std::string identity = identity_of(require_device(device.kind, device.index));
  set_choices(choices_of(read_trial_cache(identity), backend_of(device.kind)));
}

}  // namespace rondo
