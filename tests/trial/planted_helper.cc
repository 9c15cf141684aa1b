// A helper of trials (engine/trial/trial.h) with candidates that are wrong in every way that a
// kernel can be, and one that is right and quicker than what is simulated.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>

#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/lstm/lstm.h"
#include "tools/command.h"
#include "tools/command_line/command_line.h"

using namespace rondo;

namespace {

// The numbers of the reference, which needs no workspace; the simulator's memory is the host's.
void compute(const Context& context, const LstmForwardArgs& args) {
  context.stream->synchronize();
  Stream stream = cpu_device().make_stream();
  const Context host = {Backend::ref, &cpu_device(), &stream, nullptr};
  select_variant(host, LstmForwardArgs::op, &args).run(host, &args);
}

float* output(const LstmForwardArgs& args) { return static_cast<float*>(args.y.data); }

void quick(const Context& context, const LstmForwardArgs& args) { compute(context, args); }

void slow(const Context& context, const LstmForwardArgs& args) {
  compute(context, args);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

void wrong(const Context& context, const LstmForwardArgs& args) {
  compute(context, args);
  output(args)[3] += 0.01f;
}

// A number that no comparison of differences would find too large.
void not_a_number(const Context& context, const LstmForwardArgs& args) {
  compute(context, args);
  output(args)[0] = std::numeric_limits<float>::quiet_NaN();
}

// Only where sequences are long.
void wrong_later(const Context& context, const LstmForwardArgs& args) {
  compute(context, args);
  if (args.layout.capacity.frames > 6) output(args)[args.y.numel() - 1] += 0.01f;
}

void out_of_bounds(const Context& context, const LstmForwardArgs& args) {
  compute(context, args);
  output(args)[args.y.numel()] = 0;
}

// The second run's differ by less than any tolerance.
void other_bits(const Context& context, const LstmForwardArgs& args) {
  static int runs = 0;
  compute(context, args);
  if (++runs % 2 == 0) output(args)[0] = std::nextafter(output(args)[0], 2.0f);
}

void never_ends(const Context&, const LstmForwardArgs&) {
  while (true) ::pause();
}

void traps(const Context&, const LstmForwardArgs&) { std::abort(); }

void declines(const Context&, const LstmForwardArgs&) { std::abort(); }
bool accepts_nothing(const Context&, const void*) { return false; }

template <void (*kernel)(const Context&, const LstmForwardArgs&)>
constexpr Variant candidate(const char* name,
                            bool (*accepts)(const Context&, const void*) = nullptr) {
  return variant<LstmForwardArgs, kernel>(name, Backend::sim, Role::named, accepts);
}

constexpr Variant planted[] = {
    candidate<wrong>("wrong"),
    candidate<traps>("traps"),
    candidate<not_a_number>("not_a_number"),
    candidate<never_ends>("never_ends"),
    candidate<wrong_later>("wrong_later"),
    candidate<out_of_bounds>("out_of_bounds"),
    candidate<other_bits>("other_bits"),
    candidate<declines>("declines", accepts_nothing),
    candidate<slow>("slow"),
    candidate<quick>("quick"),
};

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("planted", "Trials of kernels that are wrong.");
  line.require_command("a command");
  add_try_kernels(line, planted);
  try {
    return line.parse(argc, argv) ? line.run() : 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "planted: %s\n", e.what());
    return 1;
  }
}
