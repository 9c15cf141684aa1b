// Trials of kernels (engine/trial): a helper with planted variants, what is kept, what is chosen.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "comm/group/process_group.h"
#include "comm/in_process/run_ranks.h"
#include "engine/trial/trial.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/lstm/lstm.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;

namespace {

const TriedCalls small{"lstm_forward", "f32 h5 d1 n2"}, other{"lstm_backward", "f32 h5 d1 n2"};

TrialSettings planted() {
  TrialSettings s;
  s.helper = std::getenv("RONDO_PLANTED_HELPER");
  s.arguments = {"planted", "try-kernels"};
  s.patience = std::chrono::seconds(15);  // of busy machines, and under sanitizers
  s.longest = std::chrono::minutes(5);
  return s;
}

TrialRow row(const TriedCalls& calls, const std::string& variant, double us,
             TrialRow::Outcome outcome = TrialRow::right) {
  return {calls, variant, outcome, us, outcome == TrialRow::right ? "" : "why"};
}

}  // namespace

TEST_CASE("a trial finds the variants that are wrong, and goes on behind those that never end",
          "[slow]") {
  std::string trouble;
  const auto rows = run_trials(DeviceKind::sim, {small, other}, planted(), &trouble);
  CHECK(trouble.empty());
  std::map<std::string, TrialRow> found;
  size_t backward = 0;
  for (const TrialRow& r : rows) {
    if (r.calls == other) ++backward;
    if (r.calls != small) continue;
    INFO(r.variant << " is told twice");
    CHECK(found.emplace(r.variant, r).second);
  }
  CHECK(rows.front().variant == "portable");
  const auto is = [&](const std::string& variant, TrialRow::Outcome outcome,
                      const std::string& why) {
    INFO(variant << ": " << name_of(found[variant].outcome) << ", " << found[variant].why);
    CHECK(found[variant].outcome == outcome);
    CHECK(found[variant].why.find(why) != std::string::npos);
    CHECK((found[variant].us > 0) == (outcome == TrialRow::right));
  };
  for (const std::string variant : {"portable", "cluster_split", "grid", "slow", "quick"}) {
    is(variant, TrialRow::right, "");
  }
  is("grid_cluster", TrialRow::declines, "");  // bf16 alone
  is("declines", TrialRow::declines, "");
  is("wrong", TrialRow::wrong, "1 of");
  is("not_a_number", TrialRow::wrong, "nan");
  is("wrong_later", TrialRow::wrong, "1 of");
  const TrialRow::Outcome out_of_bounds = found["out_of_bounds"].outcome;
  CHECK((out_of_bounds == TrialRow::wrong || out_of_bounds == TrialRow::ended));  // by a sanitizer
  is("other_bits", TrialRow::wrong, "y: other bits in a second run");
  is("traps", TrialRow::ended, "SIGABRT");
  is("never_ends", TrialRow::ended, "did not end within 15000 ms");
  CHECK(backward == 4);  // portable, cluster_split, grid_cluster, grid

  TrialTable table;
  table.add(rows);
  CHECK(chosen_of(table, small) == "quick");
}

TEST_CASE("where the first variant is not right nothing is tried against it") {
  TrialTable table;
  table.add({row(small, "portable", 0, TrialRow::wrong)});
  CHECK(table.knows(small));
  CHECK(chosen_of(table, small).empty());
  CHECK(choices_of(table, Backend::sim).empty());
  CHECK(line_of(table, small) ==
        "lstm_forward f32 h5 d1 n2: no variant is right (portable wrong: why)");
}

TEST_CASE("noise chooses nothing: another variant is to be quicker by 15 percent") {
  TrialTable table;
  table.add({row(small, "portable", 11.5), row(small, "grid", 10.01), row(other, "portable", 11.5),
             row(other, "grid", 10), row(other, "cluster_split", 1, TrialRow::wrong)});
  CHECK(chosen_of(table, small) == "portable");
  CHECK(chosen_of(table, other) == "grid");
  CHECK(line_of(table, other) ==
        "lstm_backward f32 h5 d1 n2: grid, 10.0 us a time step "
        "(portable 11.5, cluster_split wrong: why)");
  // A trial that is repeated replaces what it repeats, and no more.
  table.add({row(small, "portable", 3)});
  CHECK(chosen_of(table, small) == "portable");
  CHECK(chosen_of(table, other) == "grid");
  CHECK(table.rows.size() == 4);
}

TEST_CASE("a run that goes on keeps its kernels where they are right") {
  const KernelChoice forward{Backend::sim, small.op, small.call_class, "grid"};
  const KernelChoice backward{Backend::sim, other.op, other.call_class, "cluster_split"};
  const std::map<std::string, std::string> text = {
      {"sim lstm_forward/f32 h5 d1 n2", "grid"},
      {"sim lstm_backward/f32 h5 d1 n2", "cluster_split"}};
  CHECK(written({forward, backward}) == text);
  CHECK(choices_written(text) == std::vector<KernelChoice>{backward, forward});
  CHECK(choices_written({{"", "v"}, {"sim", "v"}, {"cpu a/b", "v"}, {"sim/a b", "v"}}).empty());

  TrialTable table;  // by which portable is the quickest of both
  table.add({row(small, "portable", 1), row(small, "grid", 2), row(other, "portable", 1)});
  std::vector<std::string> changed;
  const auto after = [&](const std::vector<KernelChoice>& before) {
    changed.clear();
    return written(choices_after(before, table, Backend::sim, &changed));
  };
  const std::string forward_calls = "sim lstm_forward/f32 h5 d1 n2";
  const std::string backward_calls = "sim lstm_backward/f32 h5 d1 n2";
  CHECK(after({}) == std::map<std::string, std::string>{{forward_calls, "portable"},
                                                        {backward_calls, "portable"}});
  CHECK(after({forward})[forward_calls] == "grid");
  CHECK(changed.empty());
  CHECK(after({backward})[backward_calls] == "portable");
  REQUIRE(changed.size() == 1);
  CHECK(changed[0] ==
        "lstm_backward f32 h5 d1 n2 was computed by cluster_split, which is not right here, "
        "and is now by portable");
  // Of calls that were not tried here nothing is known against it; another device's do not count.
  KernelChoice unknown = forward;
  unknown.call_class = "f32 h5 d1 n4";
  CHECK(after({unknown})["sim lstm_forward/f32 h5 d1 n4"] == "grid");
  unknown.backend = Backend::cuda;
  CHECK(after({unknown}).size() == 2);
  CHECK(changed.empty());
}

TEST_CASE("a helper that is none, or ends with a sentence, leaves the kernels untried") {
  std::string trouble;
  TrialSettings settings = planted();
  settings.helper = "/nowhere/helper";
  CHECK(run_trials(DeviceKind::sim, {small}, settings, &trouble).empty());
  CHECK(trouble.find("ended with exit code 127") != std::string::npos);
  CHECK(
      run_trials(DeviceKind::sim, {{"lstm_forward", "f32 h0 d1 n2"}}, planted(), &trouble).empty());
  INFO(trouble);
  CHECK(trouble.find("f32 h0 d1 n2") != std::string::npos);
  settings = planted();
  settings.longest = std::chrono::milliseconds(2500);  // over while one variant never ends
  CHECK(run_trials(DeviceKind::sim, {small}, settings, &trouble).empty());
  CHECK(trouble == "not all kernels were tried in 2 s");
}

TEST_CASE("the cache is read back, and a file that is none counts as none") {
  const TemporaryFolder home;
  ::setenv("XDG_CACHE_HOME", home.path("").c_str(), 1);
  TrialTable table = read_trial_cache("a device");
  CHECK(table.device == "a device");
  CHECK(table.rows.empty());
  table.add({row(small, "portable", 1.25), row(small, "grid", 0, TrialRow::ended)});
  REQUIRE(write_trial_cache(table).empty());
  CHECK(read_trial_cache("a device").rows == table.rows);
  CHECK(read_trial_cache("another device").rows.empty());
  const std::string whole = to_json(table);
  for (const std::string& text :
       {std::string(), std::string("{"), whole.substr(0, whole.size() / 2),
        std::string("{\"trials\":2,\"device\":\"a device\",\"rows\":[]}"),
        to_json({"another device", table.rows})}) {
    std::ofstream(trial_cache("a device")) << text;
    INFO(text);
    CHECK(read_trial_cache("a device").rows.empty());
  }
  // A folder where a file should be.
  ::setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  CHECK_FALSE(write_trial_cache(table).empty());
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", home.path("").c_str(), 1);
  CHECK(trial_cache("a device").string().starts_with(home.path("") + ".cache/rondo/"));
}

TEST_CASE("ranks run one table, whatever calls each of them has") {
  const TemporaryFolder home;
  ::setenv("XDG_CACHE_HOME", home.path("").c_str(), 1);
  ::setenv("RONDO_TRIAL", "on", 1);
  for (const TrialRow::Outcome outcome : {TrialRow::right, TrialRow::wrong}) {
    TrialTable table{identity_of(require_device(DeviceKind::sim)), {}};
    table.add({row(small, "portable", 3, outcome), row(small, "grid", 1, outcome)});
    REQUIRE(write_trial_cache(table).empty());
    TrialOutcome found[2];
    run_ranks(2, [&](int rank, Transport& transport) {
      const auto group = make_ring_group(transport);
      const Ranks ranks(*group, std::chrono::seconds(30));
      TrialSettings settings;
      settings.helper.clear();  // the cache alone
      const std::vector<TriedCalls> calls = {small};
      found[rank] = choose_kernels(ranks, DeviceKind::sim,
                                   rank == 0 ? calls : std::vector<TriedCalls>(), settings);
    });
    for (const TrialOutcome& o : found) {
      CHECK(o.failed == (outcome == TrialRow::wrong));
      CHECK(o.choices.size() == (outcome == TrialRow::right ? 1 : 0));
      if (!o.choices.empty()) CHECK(o.choices[0].variant == "grid");
    }
  }
  set_choices({});
  ::unsetenv("RONDO_TRIAL");
}

TEST_CASE("what the cache knows runs, unless nobody wants trials") {
  const TemporaryFolder home;
  ::setenv("XDG_CACHE_HOME", home.path("").c_str(), 1);
  TrialTable table{identity_of(require_device(DeviceKind::sim)), {}};
  table.add({row(small, "portable", 3), row(small, "grid", 1)});
  REQUIRE(write_trial_cache(table).empty());
  LstmForwardArgs args;
  args.dims = {1, 4, 5, 0};
  args.layout.capacity = {4, 2, 2};
  args.x.dtype = DType::f32;
  Stream stream = require_device(DeviceKind::sim).make_stream();
  const Context context = {Backend::sim, &require_device(DeviceKind::sim), &stream, nullptr};
  const auto runs = [&] { return std::string(select_variant(context, args.op, &args).name); };
  for (const char* const off :
       {"off", "auto"}) {  // the simulator is tried on where it is asked for
    ::setenv("RONDO_TRIAL", off, 1);
    choose_known_kernels(DeviceKind::sim);
    CHECK(runs() == "portable");
  }
  ::setenv("RONDO_TRIAL", "on", 1);
  choose_known_kernels(DeviceKind::sim);
  CHECK(runs() == "grid");
  // A run that is not to try takes back what was chosen before.
  ::setenv("RONDO_TRIAL", "off", 1);
  TrialSettings settings;
  settings.helper.clear();
  CHECK(choose_kernels({}, DeviceKind::sim, {small}, settings).choices.empty());
  CHECK(runs() == "portable");
  ::unsetenv("RONDO_TRIAL");
}

TEST_CASE("a table that is no table is refused by what is wrong with it") {
  const auto wrong = [](const std::string& row_text) {
    const std::string text = "{\"trials\":1,\"device\":\"d\",\"rows\":[" + row_text + "]}";
    try {
      (void)trial_table_from_json(text, "file");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  const std::string begin = "{\"op\":\"o\",\"calls\":\"c\",\"variant\":\"v\",\"outcome\":";
  CHECK(wrong(begin + "\"right\",\"us\":1.5,\"why\":\"\"}") == "taken");
  CHECK(wrong(begin + "\"right\",\"us\":0,\"why\":\"\"}").starts_with("file: "));
  CHECK(wrong(begin + "\"fine\",\"us\":1,\"why\":\"\"}").find("fine") != std::string::npos);
  CHECK(wrong("{}").find("op") != std::string::npos);
  CHECK(wrong("7").starts_with("file: "));
}

TEST_CASE("what was chosen runs where it takes the call, and a preference comes first") {
  LstmForwardArgs args;
  args.dims = {1, 4, 8, 0};
  args.layout.capacity = {8, 4, 3};
  args.x.dtype = DType::f32;
  Stream stream = require_device(DeviceKind::sim).make_stream();
  const Context context = {Backend::sim, &require_device(DeviceKind::sim), &stream, nullptr};
  const auto runs = [&] { return std::string(select_variant(context, args.op, &args).name); };
  CHECK(runs() == "portable");
  set_choices({{Backend::sim, "lstm_forward", "f32 h8 d1 n4", "grid"}});
  CHECK(runs() == "grid");
  args.layout.capacity.sequences = 5;  // another class
  CHECK(runs() == "portable");
  args.layout.capacity.sequences = 4;
  args.run = LstmRun::first;  // is not tried
  CHECK(runs() == "portable");
  args.run = LstmRun::both;
  prefer_variant("lstm_forward", "cluster_split");
  CHECK(runs() == "cluster_split");
  prefer_variant("lstm_forward", "");
  CHECK(runs() == "grid");
  set_choices({{Backend::sim, "lstm_forward", "f32 h8 d1 n4", "grid_cluster"}});
  CHECK(runs() == "portable");  // bf16 alone is for it
  set_choices({{Backend::cuda, "lstm_forward", "f32 h8 d1 n4", "grid"}});
  CHECK(runs() == "portable");
  set_choices({});
}
