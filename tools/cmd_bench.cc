// rondo bench: times the kernels on this machine; its subcommand links, what ranks send each other.
#include <cstdio>
#include <vector>

#include "bench/cases/check/check.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"

namespace rondo {
namespace {

// What was asked for, in the user's words.
std::string describe(const check::Options& o) {
  std::string text;
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) text += str(text.empty() ? "" : " ", option, "'", value, "'");
  };
  for (const std::string& filter : o.filters) add("", filter);
  add("--variant ", o.variant);
  add("--backend ", o.backend);
  return text;
}

}  // namespace

void add_bench(Command& program) {
  Command& command =
      program.add_command("bench", "Time this machine's kernels, or the links between ranks");
  add_bench_links(command);
  auto options = std::make_shared<check::Options>();
  options->bench = true;
  options->threads = {usable_cpus()};
  command.add_option("filters", options->filters,
                     "only cases whose OP/LABEL contains one of these, in their order");
  command.add_option("--variant", options->variant, "only this variant (generic, avx512, ...)");
  command.add_option("--backend", options->backend, "only this backend (cpu, sim, cuda)")
      .one_of({"cpu", "sim", "cuda"})
      .type_name("NAME");
  auto device = std::make_shared<std::string>("auto");
  command
      .add_option("--device", *device,
                  "only on this device: cpu, sim, cuda or cuda:N (auto: on all but sim)")
      .check(check_device_name)
      .excludes("--backend")
      .type_name("NAME");
  command.add_option("--threads", options->threads, "CPU threads (default: all)")
      .one_value()
      .range(1, 1024);
  command.add_option("--seconds", options->bench_seconds, "time per case and variant")
      .range(0.0, 3600.0)
      .type_name("FLOAT");
  command.add_flag("--json", options->json, "one JSON line per case");
  command.add_flag("--list", options->list, "list the cases, run nothing");
  command.footer(
      "\nExample:  rondo bench lstm_forward --json\n"
      "          rondo bench links --transport tcp --out links.json\n");
  command.action([options, device] {
    if (*device != "auto") {
      const DeviceId id = options->list ? *device_named(*device) : require_device(*device);
      options->backend = name_of(id.kind);
      options->device_index = id.index;
    }
    std::string why;
    if (!options->backend.empty() && !options->list &&
        find_device(device_named(options->backend)->kind, &why, options->device_index) == nullptr) {
      fail_input("--backend ", options->backend, ": ", why);
    }
    check::Suite suite = check::full_suite();
    std::erase_if(suite.entries, [](const auto& entry) { return !entry.bench; });
    const auto nothing_fits = [](const std::string& words) {
      fail_input("no benchmark fits ", words, "; 'rondo bench --list' shows all");
    };
    const std::string unknown = check::filter_without_cases(suite, *options);
    if (!unknown.empty()) nothing_fits(str("'", unknown, "'"));
    const auto summary = check::run_suite(suite, *options);
    if (summary.chosen == 0) nothing_fits(describe(*options));
    return summary.failed ? 1 : 0;
  });
}

}  // namespace rondo
