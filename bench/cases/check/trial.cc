#include "bench/cases/check/trial.h"

#include <algorithm>

#include "kernels/base/cpu.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dispatch.h"
#include "kernels/devices.h"
#include "kernels/lstm/lstm_class.h"

namespace rondo::check {
namespace {

constexpr std::string_view first = "portable";

// From `frames` down to half of them.
std::vector<int32_t> ragged(int64_t sequences, int frames) {
  std::vector<int32_t> lengths;
  for (int64_t n = 0; n < sequences; ++n)
    lengths.push_back(frames - static_cast<int32_t>(n * frames / (2 * sequences)));
  return lengths;
}

std::vector<Variant> candidates_of(const std::string& op, Backend backend,
                                   std::span<const Variant> more) {
  std::vector<Variant> found;
  const auto add = [&](std::span<const Variant> from) {
    for (const Variant& v : from) {
      if (op == v.op && v.backend == backend && !is_peer(v.role)) found.push_back(v);
    }
  };
  for (std::span<const Variant> variants : all_ops()) add(variants);
  add(more);
  std::stable_partition(found.begin(), found.end(),
                        [](const Variant& v) { return v.name == first; });
  return found;
}

const Variant& cpu_variant(const std::string& op, const Context& context) {
  for (std::span<const Variant> variants : all_ops()) {
    if (op != variants.front().op) continue;
    if (const Variant* v = default_variant(variants, nullptr, context, nullptr)) return *v;
  }
  fail_input("op ", op, " has no kernel for the CPU");
}

class Trial {
 public:
  Trial(const std::string& op, const std::string& call_class, const TrialOptions& options,
        const std::function<void(const TrialLine&)>& say)
      : op_(op),
        options_(options),
        say_(say),
        backend_(backend_of(options.device->kind())),
        stream_(options.device->make_stream()),
        cpu_stream_(cpu_device().make_stream()),
        pool_(usable_cpus()) {
    const std::optional<LstmClass> c = LstmClass::parse(call_class);
    if (!c || call_class_of(op) == nullptr) {
      fail_input("a trial of ", op, "/", call_class,
                 ": expected lstm_forward or lstm_backward and a class as 'bf16 h512 d2 n32'");
    }
    short_ = lstm_trial_case(op, call_class, ragged(c->sequences, options.short_frames));
    long_ = lstm_trial_case(op, call_class, ragged(c->sequences, options.long_frames));
  }

  void run() {
    for (const Variant& v : candidates_of(op_, backend_, options_.more)) {
      const bool known = options_.known.contains(v.name);
      if (v.name != first && (known || wanted_long_.empty())) continue;
      TrialLine line{v.name, TrialLine::begins, 0, {}};
      if (!known) say_(line);
      try {
        line.state = v.name == first ? run_first(v, &line) : run_other(v, &line);
      } catch (const Error& e) {
        line.state = TrialLine::wrong;
        line.why = e.what();
      }
      if (!known) say_(line);
    }
  }

 private:
  struct Result {
    std::vector<Case::Output> outputs;
    bool accepted = true;
    std::string guards;
    double seconds = 0;  // where it was timed
  };

  Result run_once(const CaseFunction& function, const Variant& v, double time_for = 0) {
    const bool on_cpu = v.backend == Backend::cpu;
    const Context context = {v.backend, on_cpu ? &cpu_device() : options_.device,
                             on_cpu ? &cpu_stream_ : &stream_, &pool_};
    Case c(context, options_.seed, &v, 1);
    if (time_for > 0) c.time_for(time_for);
    function(c);
    Result r;
    r.accepted = c.accepted();
    if (!r.accepted) return r;
    r.outputs = c.collect(&r.guards);
    std::vector<double> seconds = c.seconds();
    std::sort(seconds.begin(), seconds.end());
    r.seconds = c.seconds_in_a_row() > 0 ? c.seconds_in_a_row() : seconds[seconds.size() / 2];
    return r;
  }

  // Twice: what is wrong with the results, which are to be like `wanted`; empty: nothing.
  std::string compare(const CaseFunction& function, const Variant& v,
                      const std::vector<Case::Output>& wanted) {
    std::vector<Case::Output> before;
    for (int run = 0; run < 2; ++run) {
      Result r = run_once(function, v);
      if (!r.accepted) throw Declined("a variant that takes the class declines a call of it");
      if (!r.guards.empty()) return r.guards;
      if (const std::string wrong = difference(r.outputs, wanted, 2); !wrong.empty()) return wrong;
      for (size_t o = 0; o < before.size(); ++o) {
        if (before[o].bytes != r.outputs[o].bytes) {
          return str(before[o].name, ": other bits in a second run");
        }
      }
      before = std::move(r.outputs);
    }
    return {};
  }

  TrialLine::State timed(const Variant& v, TrialLine* line) {
    line->us = run_once(long_, v, options_.seconds).seconds * 1e6 / options_.long_frames;
    return TrialLine::right;
  }

  TrialLine::State run_first(const Variant& v, TrialLine* line) {
    Context cpu;
    cpu.backend = Backend::cpu;
    wanted_short_ = run_once(short_, cpu_variant(op_, cpu)).outputs;
    line->why = compare(short_, v, wanted_short_);
    if (!line->why.empty()) return TrialLine::wrong;
    wanted_short_ = run_once(short_, v).outputs;
    wanted_long_ = run_once(long_, v).outputs;
    return timed(v, line);
  }

  TrialLine::State run_other(const Variant& v, TrialLine* line) {
    if (!run_once(short_, v).accepted) return TrialLine::declines;
    line->why = compare(short_, v, wanted_short_);
    if (line->why.empty()) line->why = compare(long_, v, wanted_long_);
    return line->why.empty() ? timed(v, line) : TrialLine::wrong;
  }

  const std::string op_;
  const TrialOptions& options_;
  const std::function<void(const TrialLine&)>& say_;
  const Backend backend_;
  Stream stream_, cpu_stream_;
  ThreadPool pool_;
  CaseFunction short_, long_;
  std::vector<Case::Output> wanted_short_, wanted_long_;  // of `portable`
};

}  // namespace

const char* name_of(TrialLine::State state) {
  switch (state) {
    case TrialLine::begins:
      return "begins";
    case TrialLine::right:
      return "right";
    case TrialLine::wrong:
      return "wrong";
    case TrialLine::declines:
      return "declines";
  }
  return "?";
}

void run_trial(const std::string& op, const std::string& call_class, const TrialOptions& options,
               const std::function<void(const TrialLine&)>& say) {
  Trial(op, call_class, options, say).run();
}

}  // namespace rondo::check
