// rondo: trains, evaluates and runs CTC/LSTM sequence models.
#include <clocale>
#include <cstdio>
#include <exception>

#include "kernels/base/error.h"
#include "tools/command.h"

namespace {

constexpr const char* version = "rondo " RONDO_VERSION;

constexpr const char* footer = R"(
Example: from recordings to text
  rondo prepare speech-demo corpus
  rondo train tools/recipes/speech-demo.toml data=corpus training.checkpoint_dir=model
  rondo eval model corpus/test.jsonl
  rondo transcribe model recording.wav

'rondo COMMAND --help' shows the options of a command and an example.)";

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
  rondo::add_eval(app, &run);
  rondo::add_transcribe(app, &run);
  rondo::add_info(app, &run);
  rondo::add_bench(app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& e) {
    // A word that is no command counts as "no command" for CLI11.
    if (argc > 1 && app.get_subcommands().empty() && argv[1][0] != '-') {
      std::fprintf(stderr, "rondo: unknown command '%s'; rondo --help lists the commands\n",
                   argv[1]);
      return 2;
    }
    app.exit(e);
    return 2;
  } catch (const CLI::ParseError& e) {
    // CLI11 knows --help and --version as "errors" of code 0.
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    return run();
  } catch (const rondo::InputError& e) {
    std::fprintf(stderr, "rondo: %s\n", e.what());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "rondo: out of memory\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rondo: internal error: %s\n", e.what());
  }
  return 1;
}
