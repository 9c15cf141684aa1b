// rondo try-kernels: the helper of a trial (engine/trial/trial.h). Not for people: it says one line
// of JSON on standard error before it tries a variant, one after it, and one when all of a class
// are through.
#include <chrono>
#include <cstdio>

#include "bench/cases/check/trial.h"
#include "engine/io/json.h"
#include "kernels/devices.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"

namespace rondo {
namespace {

struct TryOptions {
  std::string device;
  std::vector<std::string> known, calls;
};

// "OP/CLASS": where the class begins.
size_t class_at(const std::string& calls) {
  const size_t slash = calls.find('/');
  if (slash == std::string::npos) throw WrongUsage("'" + calls + "' is no OP/CLASS");
  return slash + 1;
}

void say(const std::string& op, const std::string& call_class, const check::TrialLine& line,
         const char* is) {
  const Json json = Json::object({{"op", op},
                                  {"calls", call_class},
                                  {"variant", line.variant},
                                  {"is", is},
                                  {"us", line.us},
                                  {"why", line.why}});
  std::fprintf(stderr, "%s\n", json.dump_replacing().c_str());
}

void try_calls(const TryOptions& o, const std::string& calls, check::TrialOptions trial) {
  const size_t at = class_at(calls);
  const std::string op = calls.substr(0, at - 1), call_class = calls.substr(at);
  for (const std::string& known : o.known) {
    if (known.starts_with(calls + "/")) trial.known.insert(known.substr(calls.size() + 1));
  }
  check::run_trial(op, call_class, trial, [&](const check::TrialLine& line) {
    say(op, call_class, line, check::name_of(line.state));
  });
  say(op, call_class, {}, "ends");
}

}  // namespace

void add_try_kernels(Command& program, std::span<const Variant> more) {
  Command& command = program.add_command("try-kernels", "Tries kernels for another process");
  command.hidden();
  auto o = std::make_shared<TryOptions>();
  command.add_option("--device", o->device, "where").check(check_device_name).required();
  command.add_option("--known", o->known, "OP/CLASS/VARIANT that is not tried again").one_word();
  command.add_option("CALLS", o->calls, "OP/CLASS").required();
  command.action([o, more] {
    const DeviceId device = require_device(o->device);
    check::TrialOptions trial;
    trial.more = more;
    trial.device = &require_device(device.kind, device.index);
    if (device.kind == DeviceKind::sim) {  // where nothing is fast
      trial.short_frames = 6;
      trial.long_frames = 12;
      trial.seconds = 0.001;
    }
    trial.seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    for (const std::string& calls : o->calls) try_calls(*o, calls, trial);
    return 0;
  });
}

}  // namespace rondo
