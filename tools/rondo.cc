// rondo: trains, evaluates and runs CTC/LSTM sequence models.
#include <rondo/version.h>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <exception>

#include "comm/base/error.h"
#include "engine/reduce/ranks.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/device_option.h"
#include "tools/usage_words.h"

namespace {

constexpr const char* version = "rondo " RONDO_VERSION;

constexpr const char* footer = R"(
Example: from recordings to text
  rondo prepare speech-demo corpus
  rondo train tools/recipes/speech-demo.toml data=corpus training.checkpoint_dir=model
  rondo eval model corpus/test.jsonl
  rondo transcribe model recording.wav

'rondo COMMAND --help' shows the options of a command and an example.)";

int wrong_usage(const CLI::App& app, const CLI::ParseError& e) {
  std::fprintf(stderr, "rondo: %s\n", rondo::describe_wrong_usage(app, e).c_str());
  std::fprintf(stderr, "'%s --help' shows what is expected\n", rondo::chosen_command(app).c_str());
  return 2;
}

// What was printed may lie in a buffer until now, and a full disk shows only here.
void finish_output() {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed_before) return;
  rondo::fail_input("standard output cannot be written",
                    errno != 0 ? rondo::str(": ", std::strerror(errno)) : "");
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  CLI::App app{"Trains CTC/LSTM sequence models on speech, text lines or any feature sequence.",
               "rondo"};
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  app.footer(footer);
  app.get_formatter()->column_width(32);
  rondo::Command run;
  rondo::add_prepare(app, &run);
  rondo::add_train(app, &run);
  rondo::add_launch(app, &run);
  rondo::add_eval(app, &run);
  rondo::add_transcribe(app, &run);
  rondo::add_info(app, &run);
  rondo::add_bench(app, &run);
  rondo::add_plan(app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // CLI11 knows --help and --version as "errors" of code 0.
    if (e.get_exit_code() != 0) return wrong_usage(app, e);
    app.exit(e);
    run = [] { return 0; };
  }
  try {
    const int code = run();
    rondo::tell_preferred_in_vain();
    finish_output();
    return code;
  } catch (const CLI::ParseError& e) {
    return wrong_usage(app, e);
  } catch (const rondo::InputError& e) {
    std::fprintf(stderr, "rondo: %s\n", e.what());
  } catch (const rondo::PeerFailed&) {
    // The rank that failed has said why.
  } catch (const rondo::CommError& e) {
    std::fprintf(stderr, "rondo: %s\n", e.what());
    return rondo::exit_comm_failure;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "rondo: out of memory\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rondo: internal error: %s\n", e.what());
  }
  return 1;
}
