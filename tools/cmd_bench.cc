// rondo bench: times the kernels on this machine.
#include <cstdio>

#include "kernels/check/check.h"
#include "tools/command.h"

namespace rondo {

void add_bench(CLI::App& app, Command* run) {
  auto* command = app.add_subcommand("bench", "Time the kernels on this machine");
  auto options = std::make_shared<check::Options>();
  options->bench = true;
  options->threads = {usable_cpus()};
  command->add_option("filter", options->filter, "only cases whose OP/LABEL contains this");
  command->add_option("--variant", options->variant, "only this variant (generic, avx512, ...)");
  command->add_option("--backend", options->backend, "only this backend (cpu, sim, cuda)");
  command->add_option("--threads", options->threads, "CPU threads (default: all)")
      ->expected(1)
      ->check(CLI::Range(1, 1024));
  command->add_option("--seconds", options->bench_seconds, "time per case and variant");
  command->add_flag("--json", options->json, "one JSON line per case");
  command->add_flag("--list", options->list, "list the cases, run nothing");
  command->footer("\nExample:  rondo bench lstm_forward --json\n");
  command->callback([options, run] {
    *run = [options] {
      const auto summary = check::run_suite(check::full_suite(), *options);
      return summary.failed ? 1 : 0;
    };
  });
}

}  // namespace rondo
