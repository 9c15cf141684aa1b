// checkop: compares and times every kernel variant; see bench/cases/check/check.h.
#include <malloc.h>

#include <charconv>
#include <cstdio>
#include <string>

#include "bench/cases/check/check.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"
#include "tools/command_line/command_line.h"
#ifdef RONDO_INSTRUMENTED
#include <fstream>
#include <set>

#include "kernels/simt/instrument/instrument.h"
#endif

namespace {

// Exit statuses, beside 0 for success, 1 when a kernel failed, 77 when there is no GPU.
constexpr int could_not_run = 2;
constexpr int lost_device = 3;  // what is left needs a process of its own

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

// "I/N" into options.part and options.parts; false when it is none.
bool parse_part(const std::string& text, rondo::check::Options& options) {
  const char* const end = text.data() + text.size();
  const auto [slash, no_part] = std::from_chars(text.data(), end, options.part);
  if (no_part != std::errc{} || slash == end || *slash != '/') return false;
  const auto [rest, no_parts] = std::from_chars(slash + 1, end, options.parts);
  return no_parts == std::errc{} && rest == end && 1 <= options.part &&
         options.part <= options.parts;
}

#ifdef RONDO_INSTRUMENTED
void print_counters() {
  for (const auto& c : rondo::simt::counters()) {
    std::printf("%s\n", rondo::simt::to_json(c).c_str());
  }
}

// A line for each kernel: its name, and the bytes of shared memory that its launches ask for.
std::set<std::string> shared_memory_lines() {
  std::set<std::string> lines;
  for (const auto& c : rondo::simt::counters()) {
    std::string sizes;
    for (const size_t bytes : c.shared_memory) sizes += rondo::str(" ", bytes);
    lines.insert(rondo::str(c.kernel, ":", sizes));
  }
  return lines;
}

// Whether a file has these lines and no others; "-": prints them.
bool is_shared_memory_of(const std::string& path) {
  const std::set<std::string> found = shared_memory_lines();
  if (path == "-") {
    for (const std::string& line : found) std::printf("%s\n", line.c_str());
    return true;
  }
  std::ifstream file(path);
  if (!file) rondo::fail_input(path, ": cannot be read");
  std::set<std::string> wanted;
  for (std::string line; std::getline(file, line);) wanted.insert(line);
  for (const std::string& line : found) {
    if (!wanted.contains(line)) std::printf("checkop: %s lacks: %s\n", path.c_str(), line.c_str());
  }
  for (const std::string& line : wanted) {
    if (!found.contains(line))
      std::printf("checkop: %s has in vain: %s\n", path.c_str(), line.c_str());
  }
  return found == wanted;
}
#endif

}  // namespace

int main(int argc, char** argv) {
#ifdef __GLIBC__
  // Cases make and drop large arrays all the time. What goes back to the system is cleared by it
  // before it comes again, which takes as long as filling it.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  rondo::check::Options options;
  rondo::CommandLine app(
      "checkop", "Compares every kernel variant with its reference, or times it (--bench).");
  app.add_option("filters", options.filters,
                 "only cases whose OP/LABEL contains one of these, in their order");
  app.add_option("--op", options.ops, "only these ops, named in full, in the suite's order")
      .one_word()
      .delimiter(',')
      .type_name("NAME");
  std::string part;
  app.add_option("--part", part,
                 "1/5: of each op only the first case of five, the sixth, the eleventh ...")
      .type_name("I/N");
  app.add_option("--variant", options.variant, "only this variant (generic, avx512, ...)");
  app.add_flag("--chosen", options.chosen, "of each case only the variant that runs by itself");
  app.add_option("--backend", options.backend, "only this backend (cpu, sim, cuda)")
      .one_of({"cpu", "sim", "cuda"})
      .type_name("NAME");
  app.add_option("--threads", options.threads,
                 "thread counts; results must not depend on them (default: 1,2,3; with --bench one "
                 "per CPU)")
      .range(1, 1024)
      .delimiter(',')
      .type_name("INT");
  app.add_option("--seed", options.seed, "seed of the random inputs");
  app.add_option("--orders", options.orders,
                 "in how many orders simulated threads run: 1 forward, 2 forward and another "
                 "(default), 3 forward, reverse and shuffled")
      .range(1, 3);
  app.add_flag(
      "--all-orders", [&] { options.orders = 3; }, "--orders 3");
  app.add_flag("--bench", options.bench, "time the benchmark shapes instead of checking");
  app.add_option("--seconds", options.bench_seconds, "time per case and variant with --bench")
      .range(0.0, 3600.0)
      .type_name("FLOAT");
  app.add_flag("--json", options.json, "one JSON line per case");
  app.add_flag("--announce", options.announce,
               "name each case and variant on stderr before it runs");
  app.add_option("--after", options.after,
                 "go on after this one, named as --list and --announce name it");
  app.add_flag(
      "--no-peers", [&] { options.peers = false; }, "without other libraries' kernels");
  app.add_option(
         "--against", options.against,
         "check the benchmark shapes, against the one of these variants that an op has (ref "
         "takes minutes there)")
      .delimiter(',')
      .type_name("NAME");
  app.add_flag("--list", options.list,
               "list the cases and variants, run nothing (--json: with the bytes of each)");
#ifdef RONDO_INSTRUMENTED
  rondo::simt::instrument();
  options.backend = "sim";
  bool counters = false;
  std::string shared_memory;
  app.add_flag("--counters", counters,
               "what each kernel did, summed over all cases, as JSON lines");
  app.add_option("--shared-memory", shared_memory,
                 "a file that must say what launches ask for of shared memory; -: print it")
      .type_name("FILE");
#endif
  bool devices = false;
  app.add_flag("--devices", devices, "list the devices of this machine, run nothing");
  app.footer("Example:  checkop lstm --bench --json");
  try {
    if (!app.parse(argc, argv)) return 0;
  } catch (const rondo::WrongUsage& e) {
    return app.tell(e);
  }
  if (app.has("--part") && !parse_part(part, options)) {
    std::fprintf(stderr, "checkop: --part is '%s', expected I/N with 1 <= I <= N\n", part.c_str());
    return 2;
  }
  if (options.bench && !app.has("--threads")) options.threads = {rondo::usable_cpus()};
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
    // A mistyped name must not look like success.
    const rondo::check::Suite suite = rondo::check::full_suite();
    const std::string unknown = rondo::check::filter_without_cases(suite, options);
    if (!unknown.empty()) rondo::fail_input("no case fits '", unknown, "'; see --list");
    const auto summary = rondo::check::run_suite(suite, options);
    if (summary.chosen == 0 && options.after.empty())
      rondo::fail_input("no case and variant fit the options; see --list");
    if (!options.list && !options.bench && !options.json) {
      std::printf("checkop: %d passed, %d failed, %d skipped\n", summary.passed, summary.failed,
                  summary.skipped);
    }
#ifdef RONDO_INSTRUMENTED
    if (counters) print_counters();
    if (!shared_memory.empty() && !is_shared_memory_of(shared_memory)) return 1;
#endif
    return summary.failed ? 1 : 0;
  } catch (const rondo::check::DeviceLost& e) {
    std::fprintf(stderr, "checkop: %s\n", e.what());
    return lost_device;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "checkop: %s\n", e.what());
    return could_not_run;
  }
}
