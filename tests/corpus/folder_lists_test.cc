// Manifests for folders of recordings with their texts, and for a folder per class.
#include <sys/stat.h>
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "engine/data/features/endings.h"
#include "kernels/base/cpu/printable.h"
#include "tests/catch.h"
#include "tests/corpus/listed_data.h"
#include "tools/corpus/examination/list_corpus.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/lists/list_files.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using corpus::Finding;
using corpus::ListedUtterance;
using Data = test::ListedData;

}  // namespace

TEST_CASE("recordings are divided as their folders say", "[lists]") {
  const Data d;
  const std::map<std::string, std::string> splits = {
      {"Train/a", "train"}, {"train/deep/b", "train"}, {"validation/c", "dev"}, {"val/d", "dev"},
      {"test/e", "test"},   {"tests/f", ""},           {"book/train/g", ""},    {"h", ""}};
  for (const auto& [name, split] : splits) {
    d.recording(name + ".wav", 0.2);
    d.text(name + ".txt", "a");
  }
  const auto list = corpus::list_folder(d.path(""));
  CHECK(list.size() == splits.size());
  for (const ListedUtterance& u : list) {
    const fs::path below = fs::path(u.file.path).lexically_relative(fs::canonical(d.path("")));
    INFO(below);
    CHECK(u.split == splits.at(fs::path(below).replace_extension().string()));
  }
  CHECK(d.prepare(list).division == "as the data are divided; 3 of no part are to train on");
  CHECK(d.manifest("train").size() == 5);
  CHECK(d.manifest("dev").size() == 2);
}

TEST_CASE("recordings with a text beside each", "[lists]") {
  const Data d;
  d.recording("a.wav");
  d.text("a.txt", "  one\n");
  d.recording("deep/er/b.WAV");
  d.text("deep/er/b.TXT", "two");
  d.recording("c.wav");
  d.text("notes.txt", "no recording");
  d.text("README", "neither");
  d.text("._a.wav", "what macOS leaves");
  corpus::Findings findings;
  const auto list = corpus::list_folder(d.path(""), true, &findings);
  REQUIRE(list.size() == 4);
  CHECK(list[0].text_file == fs::canonical(d.path("a.txt")));
  CHECK_FALSE(list[1].has_text);
  CHECK(list[2].file.path == fs::canonical(d.path("deep/er/b.WAV")));
  CHECK(list[2].text_file == fs::canonical(d.path("deep/er/b.TXT")));
  CHECK(list[2].speaker == "er");
  CHECK(list[3].finding == Finding::text_alone);
  CHECK_THAT(list[3].problem, Contains("notes.txt: no recording goes with it"));
  CHECK(findings.of(Finding::passed_over).count == 2);
  CHECK(findings.left_out() == 0);
  CHECK_THROWS_WITH(corpus::list_folder(d.path("none")), Contains("cannot be read as a folder"));
  d.text("empty/x.txt", "");
  CHECK_THROWS_WITH(corpus::list_folder(d.path("empty")), Contains("holds no recordings"));
}

namespace {

// "a one, b two": of the recordings that have texts.
std::string texts_of(const std::vector<ListedUtterance>& list) {
  std::set<std::string> all;
  for (const ListedUtterance& u : list) {
    if (!u.has_text || !u.problem.empty()) continue;
    const std::string text =
        u.text_file.empty() ? u.text : u.text_file.substr(u.text_file.rfind('/') + 1);
    all.insert(str(fs::path(u.file.path).stem().string(), " ", text));
  }
  std::string joined;
  for (const std::string& one : all) joined += (joined.empty() ? "" : ", ") + one;
  return joined;
}

}  // namespace

TEST_CASE("texts that lie in another folder than their recordings", "[lists]") {
  const Data d;
  for (const char* name : {"p1/p1_1", "p1/p1_2", "p2/p2_1", "p2/same", "p3/same"})
    d.recording(str("wav/", name, ".wav"), 0.3);
  for (const char* name : {"p1/p1_1", "p1/p1_2", "p2/p2_1", "p2/same", "p3/none"})
    d.text(str("txt/", name, ".txt"), "a");
  const auto list = corpus::list_folder(d.path(""));
  // Which of two recordings a name means is not guessed.
  CHECK(texts_of(list) == "p1_1 p1_1.txt, p1_2 p1_2.txt, p2_1 p2_1.txt");
  PrepareListOptions o;
  o.dev = o.test = 0;
  const DataSummary s = d.prepare(list, o);
  CHECK(s.findings.of(Finding::text_elsewhere).count == 3);
  CHECK_THAT(s.findings.of(Finding::text_elsewhere).examples[0].what,
             Contains("wav/p1/p1_1.wav: its text is ") && Contains("txt/p1/p1_1.txt"));
  CHECK(s.findings.of(Finding::no_text).count == 2);
  CHECK(s.findings.of(Finding::text_alone).count == 2);
  // Where a text lies beside its recording, another's is not looked for afar.
  d.recording("wav/p4/p4.wav", 0.3);
  d.text("wav/p4/p4.txt", "a");
  CHECK(texts_of(corpus::list_folder(d.path(""))) == "p4 p4.txt");
}

TEST_CASE("texts as LibriTTS calls them, and behind numbers of samples as TIMIT has them",
          "[lists]") {
  const Data d;
  d.recording("84_1.wav", 0.3);
  d.text("84_1.normalized.txt", "one");
  d.text("84_1.original.txt", "ONE!");
  d.recording("84_2.wav", 0.3);
  d.text("84_2.original.txt", "0 46797 two");
  const auto list = corpus::list_folder(d.path(""));
  CHECK(texts_of(list) == "84_1 84_1.normalized.txt, 84_2 84_2.original.txt");
  PrepareListOptions o;
  o.dev = o.test = 0;
  const DataSummary s = d.prepare(list, o);
  CHECK(s.findings.left_out() == 0);
  REQUIRE(s.findings.of(Finding::text_elsewhere).count == 1);
  CHECK_THAT(s.findings.of(Finding::text_elsewhere).examples[0].what,
             Contains("and not ") && Contains("84_1.original.txt"));
  CHECK(s.findings.of(Finding::sample_numbers).count == 1);
  CHECK(d.manifest("train")[1].text == "two");
  for (const char* said : {"0 12 x", "0 4000", "0 4000 5 x", "1 4000 x", "0 0400 x", "0 4000x y"})
    CHECK(corpus::sample_numbers(said) == 0);
  CHECK(corpus::sample_numbers("0 4000 x") == 7);
}

TEST_CASE("texts in a list of names", "[lists]") {
  for (const char* name : {"transcripts.txt", "line_index.tsv", "PROMPTS", "deep/a.trn"}) {
    const Data d;
    for (const char* recording : {"x/u1", "x/u2", "y/u3", "y/u4"})
      d.recording(str(recording, ".wav"), 0.3);
    const char* const between = has_ending(name, ".tsv") ? "\t" : " ";
    d.text(name, str("u1", between, "one two\nx/mfc/u2", between, "two\n\nu3.wav", between,
                     "three\nu3", between, "again\nu9", between, "nobody\n"));
    d.text("notes.txt", "u4 may be said\nor not\nor else\n");
    const auto list = corpus::list_folder(d.path(""));
    INFO(name);
    CHECK(texts_of(list) == "u1 one two, u2 two, u3 three");
    PrepareListOptions o;
    o.dev = o.test = 0;
    const DataSummary s = d.prepare(list, o);
    CHECK(s.findings.of(Finding::text_elsewhere).count == 3);
    CHECK(s.findings.of(Finding::no_text).count == 1);
    CHECK(s.findings.of(Finding::doubled).count == 1);
    CHECK(s.findings.of(Finding::names_nothing).count == 1);  // u9
    CHECK(s.findings.of(Finding::text_alone).count == 1);     // the notes
  }
}

TEST_CASE("texts in a list with bars", "[lists]") {
  const Data d;
  for (const char* name : {"book/u1", "book/u2", "book/u3"}) d.recording(str(name, ".wav"), 0.3);
  corpus::Findings findings;
  const auto said_by = [&](const char* content) {
    d.text("transcript", content);
    return texts_of(corpus::list_folder(d.path(""), false, &findings));
  };
  CHECK(said_by("book/u1.wav|No. 1|number one|0.3\nu2|two||\nbook/u3 | a  b\n") ==
        "u1 number one, u2 two, u3 a  b");
  CHECK(said_by("u1|one|0.5\nu2|two|0.25\nu3|three|0.5\n") == "u1 one, u2 two, u3 three");
  CHECK(said_by("u1|anna|one\nu2|anna|two\nu3|ben|three\n") == "u1 one, u2 two, u3 three");
  CHECK(said_by("u1|one|anna\nu2|two|anna\nu3|three|anna\n") == "u1 one, u2 two, u3 three");
  CHECK(findings.of(Finding::passed_over).count == 0);  // it was read
  d.text("log", "started\n");
  corpus::list_folder(d.path(""), false, &findings);
  CHECK(findings.of(Finding::passed_over).count == 1);
}

TEST_CASE("tables that may hold the texts are named with the command that reads them", "[lists]") {
  const auto hint = [](const char* name, const char* content) {
    const Data d;
    d.recording("x/u1.wav", 0.3);
    d.text(name, content);
    corpus::Findings findings;
    corpus::list_folder(d.path(""), false, &findings);
    const auto& examples = findings.of(Finding::unread_list).examples;
    return examples.empty() ? std::string() : examples[0].what;
  };
  CHECK_THAT(hint("metadata.csv", "file_name,transcription\n"),
             Contains("/metadata.csv OUT' reads") && Contains("'rondo prepare csv /"));
  CHECK_THAT(hint("metadata.csv", "u1|one|one\n"), Contains("'rondo prepare ljspeech /"));
  CHECK_THAT(hint("data.jsonl", "{\"audio_filepath\": 1}\n"),
             Contains("'rondo prepare nemo OUT /"));
  CHECK_THAT(hint("wav.scp", "u1 x/u1.wav\n"), Contains("'rondo prepare kaldi /"));
  CHECK(hint("log.jsonl", "{\"epoch\": 1}\n").empty());
  const Data d;
  d.text("wav.scp", "u1 /elsewhere/u1.wav\n");
  CHECK_THROWS_WITH(corpus::list_folder(d.path("")),
                    Contains("holds no recordings") && Contains("'rondo prepare kaldi "));
}

TEST_CASE("in a folder the content decides, and nothing is passed over in silence", "[lists]") {
  const Data d;
  for (const char* name : {"a.wav", "twice.wav", "turned.wav", "named"}) d.recording(name);
  d.text("a.txt", "one");
  d.text("named.txt", "no ending");
  d.text("twice.txt", "two");
  fs::copy_file(d.path("twice.wav"), d.path("twice.flac"));
  // Sound that is called a text, and its text that is called a recording.
  fs::rename(d.path("turned.wav"), d.path("turned.txt"));
  d.text("turned.wav", "three");
  d.recording("lone.wav");
  fs::rename(d.path("lone.wav"), d.path("lone.txt"));
  fs::create_symlink("gone.wav", d.path("link.wav"));
  fs::create_symlink("loop.wav", d.path("loop.wav"));
  REQUIRE(::mkfifo(d.path("pipe.wav").c_str(), 0600) == 0);
  PrepareListOptions o;
  o.dev = o.test = 0;
  const DataSummary s = d.prepare(corpus::list_folder(d.path("")), o);
  std::set<std::string> used;
  for (const ManifestEntry& e : d.manifest("train"))
    used.insert(str(e.path_as_written, " ", *e.text));
  CHECK(used == std::set<std::string>{"../data/a.wav one", "../data/named no ending",
                                      "../data/turned.txt three", "../data/twice.wav two"});
  CHECK(s.findings.of(Finding::same_name).count == 1);
  CHECK_THAT(s.findings.of(Finding::same_name).examples[0].what,
             Contains("twice.flac: twice.wav has the same name"));
  CHECK(s.findings.of(Finding::dangling_link).count == 2);
  CHECK_THAT(s.findings.of(Finding::dangling_link).examples[0].what,
             Contains("link.wav: leads to 'gone.wav', where no file is"));
  CHECK(s.findings.of(Finding::no_file).count == 1);
  CHECK(s.findings.of(Finding::no_text).count == 1);
  CHECK(s.findings.left_out() == 5);
  CHECK(s.listed == 9);
}

TEST_CASE("names with control characters are written out", "[lists]") {
  CHECK(printable("a\x1b[31m\n\tb\x7f") == "a\\x1b[31m\\n\\tb\\x7f");
  CHECK(printable("a\n\tb\r", LineBreaks::kept) == "a\n\tb\\r");
  CHECK(printable("caf\xe9 \xc3\xa9 \xed\xa0\x80 \xf0\x9f\x98\x80") ==
        "caf\\xe9 \xc3\xa9 \\xed\\xa0\\x80 \xf0\x9f\x98\x80");
  CHECK(printable("\xe2\x80\xae"
                  "abc\xc2\x85\xef\xbb\xbf\xf3\xa0\x81\x81") ==
        "\\u202eabc\\u0085\\ufeff\\U000e0041");
  CHECK(printable("\xd9\x86\xe2\x80\x8c\xd9\x85") == "\xd9\x86\xe2\x80\x8c\xd9\x85");  // a joiner
  CHECK(printable_start("\xc3\xa9\xc3\xa9\xc3\xa9", 3) == "\xc3\xa9...");
  const Data d;
  d.recording("good.wav");
  d.text("good.txt", "x");
  d.text("bad\x1b]0;me\x07\n.wav", "no sound");
  d.text("bad\x1b]0;me\x07\n.txt", "x");
  const DataSummary s = d.prepare(corpus::list_folder(d.path("")));
  CHECK_THAT(s.findings.of(Finding::unreadable).examples.at(0).what,
             Contains("bad\\x1b]0;me\\x07\\n.wav: is not audio"));
}

TEST_CASE("LibriSpeech, by the names of its folders", "[lists]") {
  const Data d;
  d.text("train-clean-5/19/198/19-198.trans.txt",
         "19-198-0001 NORTHANGER ABBEY\n19-198-0002 AND\n");
  d.text("dev-clean/84/121/84-121.trans.txt", "84-121-0001 GO\n");
  const auto list = corpus::list_librispeech(d.path(""));
  REQUIRE(list.size() == 3);
  CHECK(list[0].split == "dev");
  CHECK(list[0].speaker == "84");
  CHECK(list[1].text == "NORTHANGER ABBEY");
  CHECK(fs::path(list[1].file.path).filename() == "19-198-0001.flac");
  CHECK(list[1].split == "train");
  // A development set by itself is all there is to train on.
  CHECK(corpus::list_librispeech(d.path("dev-clean"))[0].split.empty());
}

TEST_CASE("a folder for each class names it", "[lists]") {
  const Data d;
  for (int i = 0; i < 20; ++i) d.recording(str("yes/deep/", i, ".wav"), 0.2);
  for (int i = 0; i < 10; ++i) d.recording(str("no/", i, ".wav"), 0.2);
  d.recording("ma\xcc\x81s/1.wav", 0.2);  // as some systems write an accent
  d.recording("beside.wav", 0.2);
  d.text("notes/x.txt", "no recording");
  const auto list = corpus::list_classes(d.path(""));
  REQUIRE(list.size() == 32);
  PrepareListOptions o;
  o.dev = o.test = 0.1;
  const DataSummary s = d.prepare(list, o);
  CHECK(s.division == "by utterance within each class, drawn with the seed");
  CHECK(s.classes == std::map<std::string, int64_t>{{"m\xc3\xa1s", 1}, {"no", 10}, {"yes", 20}});
  CHECK(s.findings.left_out() == 1);
  CHECK_THAT(s.findings.all().begin()->second.examples.at(0).what,
             Contains("beside.wav: lies beside"));
  std::map<std::string, std::map<std::string, int>> counts;
  for (const char* part : {"train", "dev", "test"}) {
    for (const ManifestEntry& e : d.manifest(part)) {
      ++counts[part][e.class_name];
      CHECK_FALSE((e.text || e.label));
    }
  }
  CHECK(counts["train"] == std::map<std::string, int>{{"m\xc3\xa1s", 1}, {"no", 8}, {"yes", 16}});
  CHECK(counts["dev"] == std::map<std::string, int>{{"no", 1}, {"yes", 2}});
  CHECK(counts["test"] == std::map<std::string, int>{{"no", 1}, {"yes", 2}});
}

TEST_CASE("folders of classes in folders of splits", "[lists]") {
  const Data d;
  for (const char* name : {"train/a/1", "Train/b/1", "val/a/2", "validation/a/4", "test/b/3"})
    d.recording(str(name, ".wav"));
  std::map<std::string, std::string> splits;
  for (const ListedUtterance& u : corpus::list_classes(d.path(""))) splits[u.split] += u.label;
  CHECK(splits ==
        std::map<std::string, std::string>{{"dev", "aa"}, {"test", "b"}, {"train", "ba"}});
  // Sounds of vehicles, of which some are trains.
  d.recording("car/a/1.wav");
  std::set<std::string> classes;
  for (const ListedUtterance& u : corpus::list_classes(d.path(""))) classes.insert(u.label);
  CHECK(classes == std::set<std::string>{"Train", "car", "test", "train", "val", "validation"});
}

TEST_CASE("one class, or none, is nothing to tell apart", "[lists]") {
  const Data d;
  d.text("empty/x.txt", "");
  CHECK_THROWS_WITH(corpus::list_classes(d.path("")), Contains("has no recordings; expected a"));
  d.recording("a/1.wav");
  CHECK_THROWS_WITH(corpus::list_classes(d.path("")), Contains("of one class, 'a'; expected a"));
  d.recording("b\x01/1.wav");
  CHECK_THROWS_WITH(corpus::list_classes(d.path("")), Contains("of one class, 'a'"));
  d.recording("c/1.wav");
  const auto list = corpus::list_classes(d.path(""));
  CHECK(std::count_if(list.begin(), list.end(), [](const auto& u) {
          return u.problem.ends_with("its folder's name cannot be that of a class");
        }) == 1);
}

}  // namespace rondo
