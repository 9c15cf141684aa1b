// checkop: compares and times every kernel variant; see kernels/check/check.h.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "kernels/check/check.h"
#include "kernels/devices.h"
#ifdef RONDO_INSTRUMENTED
#include "kernels/simt/instrument/instrument.h"
#endif

namespace {

void list_devices(bool json) {
  for (const auto kind :
       {rondo::DeviceKind::cpu, rondo::DeviceKind::sim, rondo::DeviceKind::cuda}) {
    std::string why;
    rondo::Device* device = rondo::find_device(kind, &why);
    const std::string detail = device ? device->describe() : why;
    if (json) {
      std::printf("{\"kind\":\"%s\",\"available\":%s,\"detail\":\"%s\"}\n", rondo::name_of(kind),
                  device ? "true" : "false", detail.c_str());
    } else {
      std::printf("%-5s %s%s\n", rondo::name_of(kind), device ? "" : "not here: ", detail.c_str());
    }
  }
}

#ifdef RONDO_INSTRUMENTED
void print_counters() {
  for (const auto& c : rondo::simt::counters()) {
    std::printf("%s\n", rondo::simt::to_json(c).c_str());
  }
}
#endif

}  // namespace

int main(int argc, char** argv) {
  rondo::check::Options options;
  CLI::App app{"Compares every kernel variant with its reference, or times it (--bench)."};
  app.add_option("filter", options.filter, "only cases whose OP/LABEL contains this");
  app.add_option("--every", options.every, "of each op only the first case of so many")
      ->check(CLI::Range(1, 1000));
  app.add_option("--variant", options.variant, "only this variant (generic, avx512, ...)");
  app.add_option("--backend", options.backend, "only this backend (cpu, sim, cuda)");
  app.add_option("--threads", options.threads, "thread counts; results must not depend on them")
      ->delimiter(',');
  app.add_option("--seed", options.seed, "seed of the random inputs");
  app.add_option("--orders", options.orders,
                 "in how many orders simulated threads run: 1 forward, 2 forward and another "
                 "(default), 3 forward, reverse and shuffled")
      ->check(CLI::Range(1, 3));
  app.add_flag_callback(
      "--all-orders", [&] { options.orders = 3; }, "--orders 3");
  app.add_flag("--bench", options.bench, "time the benchmark shapes instead of checking");
  app.add_option("--seconds", options.bench_seconds, "time per case and variant with --bench");
  app.add_flag("--json", options.json, "one JSON line per case");
  app.add_flag("--list", options.list, "list the cases and variants, run nothing");
#ifdef RONDO_INSTRUMENTED
  rondo::simt::instrument();
  options.backend = "sim";
  bool counters = false;
  app.add_flag("--counters", counters,
               "what each kernel did, summed over all cases, as JSON lines");
#endif
  bool devices = false;
  app.add_flag("--devices", devices, "list the devices of this machine, run nothing");
  app.footer("Example:  checkop lstm --bench --json");
  CLI11_PARSE(app, argc, argv);
  try {
    if (devices) {
      list_devices(options.json);
      return 0;
    }
    std::string why;
    if (options.backend == "cuda" && !options.list &&
        rondo::find_device(rondo::DeviceKind::cuda, &why) == nullptr) {
      std::fprintf(stderr, "checkop: skipped, no GPU: %s\n", why.c_str());
      return 77;
    }
    const auto summary = rondo::check::run_suite(rondo::check::full_suite(), options);
    // A mistyped name must not look like success.
    if (summary.chosen == 0) rondo::fail_input("no case and variant fit the options; see --list");
    if (!options.list && !options.bench && !options.json) {
      std::printf("checkop: %d passed, %d failed, %d skipped\n", summary.passed, summary.failed,
                  summary.skipped);
    }
#ifdef RONDO_INSTRUMENTED
    if (counters) print_counters();
#endif
    return summary.failed ? 1 : 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "checkop: %s\n", e.what());
    return 1;
  }
}
