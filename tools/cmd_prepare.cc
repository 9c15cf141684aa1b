// rondo prepare: corpora to try with. Those of one's own data are in cmd_prepare_list.cc.
#include <cstdio>

#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/corpus/corpus.h"
#include "tools/prepare/progress.h"

namespace rondo {
namespace {

int report(const CorpusReport& r) {
  std::printf("%s:", r.path.c_str());
  for (const SplitReport& s : r.splits) {
    std::printf(" %s %lld utterances (%.1f min)%s", s.name.c_str(),
                static_cast<long long>(s.utterances), s.seconds / 60,
                &s == &r.splits.back() ? "\n" : ",");
  }
  return 0;
}

void add_counts(Command& command, int64_t* train, int64_t* dev, int64_t* test, const char* what) {
  const auto add = [&](const char* name, int64_t* count, const char* use, int64_t least) {
    command.add_option(name, *count, str(use, " ", what))
        .range(least, int64_t{1} << 40)
        .type_name("INT")
        .show_default();
  };
  add("--train", train, "training", 1);
  add("--dev", dev, "validation", 0);
  add("--test", test, "test", 1);
}

void add_overwrite(Command& command, bool* overwrite) {
  command.add_flag("--overwrite", *overwrite,
                   "replace manifests that were edited, and keep those as .bak");
}

void add_speech_demo(Command& parent) {
  Command& command = parent.add_command(
      "speech-demo", "Digit strings and short commands spoken by espeak-ng in several voices");
  auto o = std::make_shared<PrepareSpeechDemoOptions>();
  command.add_option("out", o->out, "folder of the corpus").required();
  add_counts(command, &o->train, &o->dev, &o->test, "utterances");
  command.add_option("--rate", o->sample_rate, "samples per second: 8000 or 16000")
      .one_of({8000, 16000})
      .type_name("INT")
      .show_default();
  command.add_option("--seed", o->seed, "of what is chosen at random").show_default();
  command.add_option("--threads", o->threads, "0: one per CPU")
      .range(0, 4096)
      .type_name("INT")
      .show_default();
  add_overwrite(command, &o->overwrite);
  command.footer("\nExample:  rondo prepare speech-demo corpus\n");
  command.action([o] {
    o->progress = progress_line("utterances");
    return prepare_unless_stopped([&] { return report(prepare_speech_demo(*o)); });
  });
}

void add_fsdd(Command& parent) {
  Command& command = parent.add_command(
      "fsdd", "Strings of 3 to 7 digits out of the recordings of the Free Spoken Digit Dataset");
  auto o = std::make_shared<PrepareFsddOptions>();
  command.add_option("dir", o->recordings, "folder of {digit}_{speaker}_{take}.wav").required();
  command.add_option("out", o->out, "folder of the corpus").required();
  command.add_option("--hold-out", o->hold_out, "this speaker in the test set only");
  add_counts(command, &o->train, &o->dev, &o->test, "strings");
  command.add_option("--seed", o->seed, "of what is chosen at random").show_default();
  add_overwrite(command, &o->overwrite);
  command.footer("\nExample:  rondo prepare fsdd recordings digits --hold-out theo\n");
  command.action([o] {
    o->progress = progress_line("utterances");
    return prepare_unless_stopped([&] { return report(prepare_fsdd(*o)); });
  });
}

}  // namespace

void add_prepare(Command& program) {
  Command& command =
      program.add_command("prepare", "Make manifests for your recordings, or a corpus to try with");
  command.require_command("what to prepare");
  command.footer(
      "\nExample:  rondo prepare folder recordings mine     (a.wav with a.txt beside it)\n"
      "          rondo prepare speech-demo corpus\n");
  add_prepare_lists(command);
  add_speech_demo(command);
  add_fsdd(command);
}

}  // namespace rondo
