// The subcommands of `rondo`, each in its own file.
//
// Exit codes: 0 done, 1 failed (the message says why), 2 wrong usage, 75 another rank was lost or
// late (worth another try).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/command_line/command_line.h"

namespace rondo {

struct Variant;  // kernels/base/op.h

// For CommandOption::check(): the name of a file.
inline std::string check_file_name(const std::string& text) {
  return text.empty() ? "an empty name, expected that of a file" : "";
}

// Each adds its subcommand to the program.
void add_prepare(Command& program);
void add_train(Command& program);
void add_launch(Command& program);
void add_eval(Command& program);
void add_score(Command& program);
void add_transcribe(Command& program);
void add_predict(Command& program);
void add_decode(Command& program);
void add_align(Command& program);
void add_convert(Command& program);
void add_tune(Command& program);
void add_info(Command& program);
void add_card(Command& program);
void add_lm(Command& program);
void add_bench(Command& program);
void add_plan(Command& program);
void add_serve(Command& program);

// Adds the helper of trials (engine/trial/trial.h), with candidates beside those of the program.
void add_try_kernels(Command& program, std::span<const Variant> more = {});
// Adds `rondo bench links` to `bench`.
void add_bench_links(Command& bench);
// Adds the layouts of one's own data to `prepare`.
void add_prepare_lists(Command& prepare);

// Runs a command as so many processes of this machine, as `rondo launch` does; the exit code.
int launch_ranks(int ranks, const std::vector<std::string>& words);

}  // namespace rondo
