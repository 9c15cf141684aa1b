#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>

#include "bench/cases/check/check.h"
#include "bench/cases/check/peaks.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/hash.h"
#include "kernels/devices.h"
#include "kernels/simt/sim/sim_device.h"

namespace rondo::check {
namespace {

// Bytes below which a copy's time is that of its launch.
constexpr double least_copied = 1 << 20;

struct Runner {
  const Options& options;
  std::span<const Variant> variants;  // of the case's op
  Summary summary;
  std::map<int, std::unique_ptr<ThreadPool>> pools;
  std::map<Device*, Stream> streams;
  std::map<std::pair<int, DType>, double> gemm_peaks = {};  // by threads and inputs
  std::map<int, double> copy_peaks = {};                    // by threads
  std::map<double, double> copy_seconds = {};               // on GPUs, by bytes
  // A run that goes on begins after a name.
  bool begun = options.after.empty();

  bool turn_of(const Suite::Entry& e, const Variant& v) {
    if (begun) return true;
    begun = name_of(e, v) == options.after;
    return false;
  }
  bool wants(const Variant& v) const {
    return v.backend != Backend::ref &&
           (options.backend.empty() || options.backend == rondo::name_of(v.backend)) &&
           (options.variant.empty() || options.variant == v.name) &&
           (options.peers || !is_peer(v.role));
  }
  static bool is_for(const Suite::Entry& e, const Variant& v) {
    if (e.gpus_only && v.backend == Backend::cpu) return false;
    return v.backend != Backend::sim || !e.simulated ||
           std::find(e.simulated->begin(), e.simulated->end(), v.name) != e.simulated->end();
  }
  bool wants(const Suite::Entry& e) const {
    const auto& ops = options.ops;
    if (!ops.empty() && std::find(ops.begin(), ops.end(), e.op) == ops.end()) return false;
    return options.against.empty() ? !e.bench || options.bench : e.bench;
  }

  ThreadPool& pool(int threads) {
    auto& p = pools[threads];
    if (!p) p = std::make_unique<ThreadPool>(threads);
    return *p;
  }

  Context context(Backend backend, Device& device, int threads) {
    Stream& stream = streams[&device];
    if (!stream) stream = device.make_stream();
    return {backend, &device, &stream, &pool(threads)};
  }

  void report(const Suite::Entry& e, const Variant& v, const char* status,
              const std::string& detail, const std::string& digest = {}) {
    if (options.json) {
      std::string escaped;
      for (char c : detail) {
        if (c == '"' || c == '\\') escaped += '\\';
        escaped += c < ' ' && c >= 0 ? ' ' : c;
      }
      std::printf(
          "{\"op\":\"%s\",\"case\":\"%s\",\"backend\":\"%s\",\"variant\":\"%s\","
          "\"status\":\"%s\",\"detail\":\"%s\",\"digest\":\"%s\"}\n",
          e.op.c_str(), e.label.c_str(), rondo::name_of(v.backend), v.name, status, escaped.c_str(),
          digest.c_str());
      std::fflush(stdout);
    } else if (const std::string_view s = status; s == "failed" || s == "differs") {
      std::printf("%s %s/%s %s:%s  %s\n", s == "failed" ? "FAILED" : "DIFFERS", e.op.c_str(),
                  e.label.c_str(), rondo::name_of(v.backend), v.name, detail.c_str());
    }
  }
  void report_wrong(const Suite::Entry& e, const Variant& v, const std::string& detail) {
    ++(is_peer(v.role) ? summary.peers_differ : summary.failed);
    report(e, v, is_peer(v.role) ? "differs" : "failed", detail);
    if (v.backend == Backend::cuda) require_device(e, v);
  }

  // After a fault on a GPU every later call of the process fails.
  void require_device(const Suite::Entry& e, const Variant& v) {
    try {
      Device& device = rondo::require_device(DeviceKind::cuda, options.device_index);
      Buffer probe(device, 64, "a probe");
      Stream stream = device.make_stream();
      device.fill_bytes(stream, probe.data(), 0, probe.bytes());
      stream.synchronize();
    } catch (const Error& error) {
      throw DeviceLost(str("the GPU was lost in ", name_of(e, v), ": ", error.what()));
    }
  }
  static std::string name_of(const Suite::Entry& e, const Variant& v) {
    return str(e.op, "/", e.label, " ", rondo::name_of(v.backend), ":", v.name);
  }

  // FNV-1a of the compared bytes, eight at a time: the same on every run of a deterministic kernel.
  static std::string digest(const std::vector<Case::Output>& outputs) {
    uint64_t hash = fnv1a_begin;
    for (const auto& o : outputs) {
      const size_t words = o.bytes.size() / sizeof(uint64_t) * sizeof(uint64_t);
      for (size_t i = 0; i < words; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, o.bytes.data() + i, sizeof word);
        hash = fnv1a(hash, word);
      }
      hash = fnv1a(o.bytes.data() + words, o.bytes.size() - words, hash);
    }
    char text[20];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    return text;
  }

  struct Result {
    std::vector<Case::Output> outputs;
    std::string error;
    bool accepted = true;
    double flops = 0;
  };
  Result run_once(const Suite::Entry& e, const Variant& v, const Context& context) {
    Result r;
    try {
      Case c(context, options.seed, &v, 1);
      if (options.chosen) c.only_if_chosen(variants);
      e.function(c);
      r.accepted = c.accepted();
      if (r.accepted) r.outputs = c.collect(&r.error);
      r.flops = c.flops();
    } catch (const Error& error) {
      r.error = error.what();
    }
    return r;
  }

  // What must not change a result: host threads on cpu, the order of GPU threads on sim, a second
  // run on cuda.
  struct Setting {
    std::string name;
    int threads = 1;
    SimOptions sim = {};
  };
  std::vector<Setting> settings(Backend backend, const std::string& label) const {
    switch (backend) {
      case Backend::ref:
        return {{"one run"}};
      case Backend::cpu: {
        std::vector<Setting> all;
        for (int n : options.threads) all.push_back({str(n, " threads"), n});
        return all;
      }
      case Backend::sim: {
        const Setting forward = {"forward order", 1, {SimOrder::forward, options.seed}};
        const Setting reverse = {"reverse order", 1, {SimOrder::reverse, options.seed}};
        const Setting shuffled = {"shuffled order", 1, {SimOrder::shuffled, options.seed}};
        if (options.orders == 1) return {forward};
        if (options.orders == 3) return {forward, reverse, shuffled};
        return {forward, std::hash<std::string>()(label) % 2 ? reverse : shuffled};
      }
      case Backend::cuda:
        return {{"the first run"}, {"the second run"}};
    }
    return {};
  }

  void check(const Suite::Entry& e, const Variant& v, Device& device,
             const std::vector<Case::Output>& want) {
    std::vector<Case::Output> first;
    const std::vector<Setting> all = settings(v.backend, e.label);
    for (const Setting& setting : all) {
#ifdef RONDO_WITH_SIM
      set_sim_options(setting.sim);
#endif
      Result r = run_once(e, v, context(v.backend, device, setting.threads));
      if (!r.accepted) {
        ++summary.skipped;
        report(e, v, "skipped", "does not accept the arguments");
        return;
      }
      std::string error =
          r.error.empty() ? difference(r.outputs, want, options.against.empty() ? 1 : 2) : r.error;
      if (error.empty() && !first.empty() && !is_peer(v.role)) {
        for (size_t o = 0; o < first.size(); ++o) {
          if (first[o].bytes != r.outputs[o].bytes) {
            error = str(first[o].name, ": not bitwise the same with ", setting.name, " as with ",
                        all.front().name);
          }
        }
      }
      if (!error.empty()) return report_wrong(e, v, error);
      if (first.empty()) first = std::move(r.outputs);
      // One order is enough for a simulated case that takes seconds.
      if (v.backend == Backend::sim && r.flops > 5e7 && options.orders < 3) break;
    }
    ++summary.passed;
    report(e, v, "passed", "", digest(first));
  }

  // The rates' shares of the CPU's; of another device's no peak is known.
  std::string shares_json(const Case& c, Backend backend, int threads, double median) {
    double gemm = 0, copy = 0;
    if (backend == Backend::cpu && c.flops() > 0) {
      double& peak = gemm_peaks[{threads, c.dtype()}];
      if (peak == 0) peak = gemm_peak_gflops(context(backend, cpu_device(), threads), c.dtype());
      gemm = peak;
    }
    if (backend == Backend::cpu && c.bytes() > 0) {
      double& peak = copy_peaks[threads];
      if (peak == 0) peak = copy_peak_gbytes_per_s(pool(threads));
      copy = peak;
    }
    return str("\"share_of_gemm_peak\":", share_json(c.flops() / median * 1e-9, gemm),
               ",\"share_of_copy_peak\":", share_json(c.bytes() / median * 1e-9, copy));
  }

  // What is known of runs on a GPU alone: one in a row, and how long a copy of its bytes takes,
  // less than which no kernel that moves them can take. (The simulator shows that the figure is
  // there.)
  std::string on_gpu_json(const Case& c, const Context& context) {
    std::string json;
    char text[48];
    if (c.seconds_in_a_row() > 0) {
      std::snprintf(text, sizeof text, "\"stream_us\":%.3f,", c.seconds_in_a_row() * 1e6);
      json += text;
    }
    if (context.backend != Backend::cpu && c.bytes() >= least_copied) {
      double& seconds = copy_seconds[c.bytes()];
      if (seconds == 0) seconds = device_copy_seconds(context, c.bytes());
      std::snprintf(text, sizeof text, "\"copy_us\":%.3f,", seconds * 1e6);
      json += text;
    }
    return json;
  }

  void bench(const Suite::Entry& e, const Variant& v, Device& device) {
    const int threads = *std::max_element(options.threads.begin(), options.threads.end());
    try {
      Case c(context(v.backend, device, threads), options.seed, &v, 2);
      if (options.chosen) c.only_if_chosen(variants);
      c.time_for(options.bench_seconds);
      e.function(c);
      if (!c.accepted()) return;
      std::vector<double> s = c.seconds();
      std::sort(s.begin(), s.end());
      const double median = s[s.size() / 2];
      const double least_thread =
          *std::min_element(c.thread_seconds().begin(), c.thread_seconds().end());
      if (options.json) {
        std::printf(
            "{\"op\":\"%s\",\"case\":\"%s\",\"backend\":\"%s\",\"variant\":\"%s\","
            "\"threads\":%d,\"median_us\":%.3f,\"min_us\":%.3f,"
            "\"min_thread_us\":%.3f,%s\"runs\":%d,"
            "\"dtype\":\"%s\",\"operands\":%s,"
            "\"flops\":%.0f,\"bytes\":%.0f,\"gflops\":%.2f,\"gbytes_per_s\":%.2f,%s}\n",
            e.op.c_str(), e.label.c_str(), rondo::name_of(v.backend), v.name, threads, median * 1e6,
            s.front() * 1e6, least_thread * 1e6, on_gpu_json(c, c.context()).c_str(),
            static_cast<int>(s.size()), rondo::name_of(c.dtype()), c.operands_json().c_str(),
            c.flops(), c.bytes(), c.flops() / median * 1e-9, c.bytes() / median * 1e-9,
            shares_json(c, v.backend, threads, median).c_str());
      } else {
        std::printf("%-18s %-36s %4s:%-12s %10.1f us (min %.1f) %8.1f GFLOP/s %7.1f GB/s\n",
                    e.op.c_str(), e.label.c_str(), rondo::name_of(v.backend), v.name, median * 1e6,
                    s.front() * 1e6, c.flops() / median * 1e-9, c.bytes() / median * 1e-9);
      }
      std::fflush(stdout);
    } catch (const Error& error) {
      report_wrong(e, v, error.what());
    }
  }
};

Device* device_for(Backend backend, int index, std::string* why) {
  if (backend == Backend::sim) return find_device(DeviceKind::sim, why);
  if (backend == Backend::cuda) return find_device(DeviceKind::cuda, why, index);
  return &cpu_device();
}

std::vector<Variant> variants_of(const Suite& suite, const std::string& op) {
  std::vector<Variant> found;
  for (const auto& list : all_ops()) {
    if (op == list.front().op) found.assign(list.begin(), list.end());
  }
  std::copy_if(suite.variants.begin(), suite.variants.end(), std::back_inserter(found),
               [&](const Variant& v) { return op == v.op; });
  if (found.empty()) fail_input("no op '", op, "'; see --list");
  return found;
}

const Variant& reference_of(const Suite::Entry& e, std::span<const Variant> variants) {
  const auto ref = std::find_if(variants.begin(), variants.end(),
                                [](const Variant& v) { return v.backend == Backend::ref; });
  RONDO_CHECK(ref != variants.end(), e.op, " has no ref variant");
  return *ref;
}

// One case: all variants that the options name.
class CaseRun {
 public:
  CaseRun(Runner& runner, const Suite& suite, const Suite::Entry& entry)
      : runner_(runner),
        options_(runner.options),
        e_(entry),
        variants_(variants_of(suite, entry.op)),
        ref_(reference_of(entry, variants_)) {
    runner.variants = variants_;
  }

  void run() {
    for (const Variant& v : variants_) {
      if (!runner_.wants(v) || is_judge(v) || !Runner::is_for(e_, v)) continue;
      if (!runner_.turn_of(e_, v)) continue;
      ++runner_.summary.chosen;
      if (options_.list) {
        list(v);
      } else {
        run(v);
      }
    }
  }

 private:
  void list(const Variant& v) {
    if (!options_.json) {
      std::printf("%s\n", Runner::name_of(e_, v).c_str());
      return;
    }
    if (!weighed_) {
      Case c(runner_.context(Backend::cpu, cpu_device(), 1), options_.seed, &v, 1);
      c.only_weigh();
      e_.function(c);
      weighed_ = {c.host_bytes(), c.flops(), c.bytes()};
    }
    std::printf(
        "{\"op\":\"%s\",\"case\":\"%s\",\"variant\":\"%s\",\"timed\":%s,\"host_bytes\":%zu,"
        "\"flops\":%g,\"bytes\":%g}\n",
        e_.op.c_str(), e_.label.c_str(), v.name, e_.bench ? "true" : "false", weighed_->host_bytes,
        weighed_->flops, weighed_->bytes);
  }

  void run(const Variant& v) {
    if (v.role == Role::timed && !options_.bench) return;
    std::string why = "not on this machine";
    Device* const device = device_for(v.backend, options_.device_index, &why);
    if (options_.announce) {
      std::fprintf(stderr, "checkop: running %s\n", Runner::name_of(e_, v).c_str());
    }
    if (device == nullptr || (v.accepts && !is_peer(v.role) &&
                              !v.accepts(runner_.context(v.backend, *device, 1), nullptr))) {
      ++runner_.summary.skipped;
      return runner_.report(e_, v, "skipped", why);
    }
    if (options_.bench) {
      // Simulated kernels say nothing about speed: timed only when asked for.
      const bool timed = v.backend != Backend::sim || options_.backend == "sim";
      if (e_.bench && timed) runner_.bench(e_, v, *device);
      return;
    }
    if (find_wanted(v, *device)) runner_.check(e_, v, *device, wanted_);
  }

  bool is_judge(const Variant& v) const {
    return std::find(options_.against.begin(), options_.against.end(), v.name) !=
           options_.against.end();
  }

  // What the outputs should be, in wanted_; false: nobody can tell, which is told.
  bool find_wanted(const Variant& v, Device& device) {
    const Backend judge = options_.against.empty() ? Backend::ref : v.backend;
    if (!wanted_.empty() && wanted_of_ == judge) return true;
    wanted_.clear();
    wanted_of_ = judge;
    if (judge == Backend::ref) {
      auto r = runner_.run_once(e_, ref_, runner_.context(Backend::ref, cpu_device(), 1));
      RONDO_CHECK(r.error.empty(), e_.op, "/", e_.label, ": ref failed: ", r.error);
      wanted_ = std::move(r.outputs);
      return true;
    }
    const auto other = std::find_if(variants_.begin(), variants_.end(), [&](const Variant& o) {
      return o.backend == v.backend && is_judge(o);
    });
    if (other != variants_.end()) {
      auto r = runner_.run_once(e_, *other, runner_.context(v.backend, device, 1));
      if (!r.error.empty()) runner_.report_wrong(e_, *other, r.error);
      if (r.error.empty() && r.accepted) wanted_ = std::move(r.outputs);
    }
    if (!wanted_.empty()) return true;
    ++runner_.summary.skipped;
    runner_.report(e_, v, "skipped", "no results of a variant to compare with");
    return false;
  }

  Runner& runner_;
  const Options& options_;
  const Suite::Entry& e_;
  const std::vector<Variant> variants_;
  const Variant& ref_;
  std::vector<Case::Output> wanted_;
  Backend wanted_of_ = Backend::ref;
  struct Weight {
    size_t host_bytes;
    double flops, bytes;  // of Case::work
  };
  std::optional<Weight> weighed_;
};

}  // namespace

std::string difference(const std::vector<Case::Output>& got, const std::vector<Case::Output>& want,
                       double sides) {
  if (got.size() != want.size()) return "different number of outputs";
  for (size_t o = 0; o < got.size(); ++o) {
    const auto& g = got[o];
    const auto& w = want[o];
    if (g.values.size() != w.values.size()) return str(g.name, ": different sizes");
    const Tolerance tolerance = {sides * w.tolerance.absolute, sides * w.tolerance.relative};
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < g.values.size(); ++i) {
      if (!matches(g.values[i], w.values[i], tolerance) && bad++ == 0) first = i;
    }
    if (bad == 0) continue;
    char text[256];
    std::snprintf(text, sizeof text,
                  "%s[%s]: %zu of %zu differ, first at %zu: got %.9g, want %.9g (allowed "
                  "%.3g + %.3g x |want|)",
                  g.name.c_str(), g.shape.c_str(), bad, g.values.size(), first, g.values[first],
                  w.values[first], tolerance.absolute, tolerance.relative);
    return text;
  }
  return {};
}

std::string filter_without_cases(const Suite& suite, const Options& options) {
  for (const std::string& filter : options.filters) {
    const bool fits = std::any_of(suite.entries.begin(), suite.entries.end(), [&](const auto& e) {
      return (e.op + "/" + e.label).find(filter) != std::string::npos;
    });
    if (!fits) return filter;
  }
  return {};
}

Summary run_suite(const Suite& suite, const Options& options) {
  for (const std::string& op : options.ops) variants_of(suite, op);
  Runner runner{options, {}, {}, {}, {}};
  std::map<std::string, int> cases;                  // by op
  std::map<std::string, const Suite::Entry*> named;  // those that had their turn
  const std::vector<std::string> all = {""};
  for (const std::string& filter : options.filters.empty() ? all : options.filters) {
    for (const Suite::Entry& e : suite.entries) {
      const std::string name = e.op + "/" + e.label;
      if (!runner.wants(e) || name.find(filter) == std::string::npos) continue;
      const auto [known, is_new] = named.emplace(name, &e);
      RONDO_CHECK(known->second == &e, "two cases are called ", name);
      if (!is_new) continue;
      if (cases[e.op]++ % options.parts == options.part - 1) CaseRun(runner, suite, e).run();
    }
  }
  if (!runner.begun) fail_input("no case '", options.after, "' to go on after; see --list");
  return runner.summary;
}

}  // namespace rondo::check
