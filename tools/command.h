// The subcommands of `rondo`, each in its own file.
//
// Exit codes: 0 done, 1 failed (the message says why), 2 wrong usage, 75 another rank was lost or
// late (worth another try).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace rondo {

inline constexpr int exit_comm_failure = 75;

// What a chosen subcommand does; returns the exit code.
using Command = std::function<int()>;

// For CLI11's check(): the name of a file.
inline std::string check_file_name(const std::string& text) {
  return text.empty() ? "an empty name, expected that of a file" : "";
}

// Each adds its subcommand to `app`, and sets *run when the command line chooses it.
void add_prepare(CLI::App& app, Command* run);
void add_train(CLI::App& app, Command* run);
void add_launch(CLI::App& app, Command* run);
void add_eval(CLI::App& app, Command* run);
void add_transcribe(CLI::App& app, Command* run);
void add_info(CLI::App& app, Command* run);
void add_bench(CLI::App& app, Command* run);
void add_plan(CLI::App& app, Command* run);

// Adds `rondo bench links` to `bench`.
void add_bench_links(CLI::App& bench, Command* run);

// Runs a command as so many processes of this machine, as `rondo launch` does; the exit code.
int launch_ranks(int ranks, const std::vector<std::string>& words);

}  // namespace rondo
