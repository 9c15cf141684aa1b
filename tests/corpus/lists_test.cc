// Manifests for data sets as people have them.
#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/corpus/lists/csv.h"
#include "engine/corpus/lists/list_corpus.h"
#include "engine/corpus/lists/tar.h"
#include "engine/corpus/run_program.h"
#include "engine/data/audio/audio.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "engine/data/manifest.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/kaldi_golden.h"
#include "tests/data/temporary_folder.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using corpus::CsvRow;
using corpus::ListedUtterance;
using corpus::parse_csv;

class Data {
 public:
  std::string path(const std::string& name) const { return folder_.path(str("data/", name)); }
  std::string out() const { return folder_.path("out"); }

  void text(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    data::write_whole_file(path(name), content);
  }
  void recording(const std::string& name, double seconds = 1) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    write_wav(path(name), {8000, std::vector<float>(static_cast<size_t>(8000 * seconds), 0.1f)});
  }

  // An upright stroke every 20 pixels; none: blank paper.
  void line(const std::string& name, int32_t width = 200, bool strokes = true) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    GreyImage image(width, 40);
    for (int32_t y = 0; y < image.height; ++y)
      for (int32_t x = 0; x < width; ++x) image.row(y)[x] = strokes && x % 20 < 4 ? 0 : 255;
    data::write_whole_file(path(name), make_png(image));
  }

  DataSummary prepare(const std::vector<ListedUtterance>& list, PrepareListOptions o = {}) const {
    o.kind = "test";
    o.out = out();
    const SndfileReader audio;
    const ImageFileReader images;
    return prepare_list(list, {&audio, &images}, o);
  }
  std::vector<ManifestEntry> manifest(const std::string& split) const {
    return read_manifest(str(out(), "/", split, ".jsonl")).entries;
  }

 private:
  TemporaryFolder folder_;
};

std::vector<std::vector<std::string>> fields(const std::string& text, char delimiter = ',',
                                             bool quotes = true) {
  std::vector<std::vector<std::string>> all;
  for (const CsvRow& row : parse_csv(text, delimiter, quotes, "t.csv")) all.push_back(row.fields);
  return all;
}

using Rows = std::vector<std::vector<std::string>>;

// So many utterances of one second, of speakers with so many each.
std::vector<ListedUtterance> spoken(const Data& data, int speakers, int each) {
  std::vector<ListedUtterance> list;
  for (int s = 0; s < speakers; ++s) {
    for (int i = 0; i < each; ++i) {
      const std::string name = str("s", s, "/", i, ".wav");
      data.recording(name, 0.2);
      ListedUtterance u;
      u.file = data.path(name);
      u.text = std::string("a");
      u.speaker = str("s", s);
      list.push_back(u);
    }
  }
  return list;
}

}  // namespace

TEST_CASE("CSV as RFC 4180 has it", "[csv]") {
  CHECK(fields("a,b\n1,2\n") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(fields("a,b\r\n1,2") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(fields("\xef\xbb\xbf"
               "a,b\n\n,\n") == Rows{{"a", "b"}, {"", ""}});
  CHECK(fields("\"x, \"\"y\"\"\nz\",2\n3,\"\"\n") == Rows{{"x, \"y\"\nz", "2"}, {"3", ""}});
  CHECK(fields("a\t\"b\tc", '\t', false) == Rows{{"a", "\"b", "c"}});
  CHECK(parse_csv("a\n\"b\nc\"\nd\n", ',', true, "t")[2].line == 4);
  CHECK_THROWS_WITH(fields("a\n\"b"), Contains("t.csv:2: a quote is opened and not closed"));
  CHECK_THROWS_WITH(fields("\"b\"c,d"), Contains("t.csv:1: a quoted field is followed by 'c'"));
}

TEST_CASE("recordings with a text beside each", "[lists]") {
  const Data d;
  d.recording("a.wav");
  d.text("a.txt", "  one\n");
  d.recording("deep/er/b.WAV");
  d.text("deep/er/b.txt", "two");
  d.recording("c.wav");
  d.text("notes.txt", "no recording");
  const auto list = corpus::list_folder(d.path(""), true);
  REQUIRE(list.size() == 3);
  CHECK(list[0].text == "one");
  CHECK_FALSE(list[1].has_text);
  CHECK(list[2].file.path == fs::canonical(d.path("deep/er/b.WAV")));
  CHECK(list[2].speaker == "er");
  CHECK_THROWS_WITH(corpus::list_folder(d.path("none")), Contains("cannot be read as a folder"));
  d.text("empty/x.txt", "");
  CHECK_THROWS_WITH(corpus::list_folder(d.path("empty")), Contains("holds no recordings"));
}

TEST_CASE("a table of any columns", "[lists]") {
  const Data d;
  d.text("t.csv", "who,file,said\nanna,x/1.wav,\"one, two\"\nben,/abs/2.wav,three\n");
  corpus::TableLayout layout;
  layout.files = {{d.path("t.csv"), ""}};
  layout.audio = "file";
  layout.text = {"said"};
  layout.speaker = "who";
  const auto list = list_table(layout);
  REQUIRE(list.size() == 2);
  CHECK(list[0].file.path == d.path("x/1.wav"));
  CHECK(list[0].text == "one, two");
  CHECK(list[0].where == str(d.path("t.csv"), ":2"));
  CHECK(list[1].file.path == "/abs/2.wav");
  CHECK(list[1].speaker == "ben");
  layout.text = {"sentence"};
  CHECK_THROWS_WITH(list_table(layout),
                    Contains("t.csv: has no column 'sentence', it has who, file, said"));
}

TEST_CASE("Common Voice, LJSpeech and DeepSpeech", "[lists]") {
  const Data d;
  d.text("cv/train.tsv", "client_id\tpath\tsentence\nx\ta.mp3\tHe said \"no\n");
  d.text("cv/test.tsv", "client_id\tpath\tsentence\ny\tb.mp3\tYes.\n");
  const auto voices = list_table(corpus::common_voice(d.path("cv")));
  REQUIRE(voices.size() == 2);
  CHECK(voices[0].file.path == fs::canonical(d.path("cv")) / "clips/a.mp3");
  CHECK(voices[0].text == "He said \"no");
  CHECK(voices[0].speaker == "x");
  CHECK(voices[1].split == "test");
  CHECK_THROWS_WITH(corpus::common_voice(d.path("")), Contains("as Common Voice has them"));

  d.text("lj/metadata.csv", "LJ1|In 1900,|In nineteen hundred,\nLJ2|Only|\n");
  const auto read = list_table(corpus::lj_speech(d.path("lj")));
  REQUIRE(read.size() == 2);
  CHECK(read[0].text == "In nineteen hundred,");
  CHECK(read[1].text == "Only");
  CHECK(fs::path(read[0].file.path).filename() == "LJ1.wav");

  const std::string head = "wav_filename,wav_filesize,transcript\n";
  d.text("ds/clips-train.csv", str(head, "a.wav,5,one\n"));
  d.text("ds/other.csv", str(head, "b.wav,5,two\n"));
  const auto clips = list_table(
      corpus::deep_speech({d.path("ds/clips-train.csv"), str("dev=", d.path("ds/other.csv"))}));
  REQUIRE(clips.size() == 2);
  CHECK(clips[0].split == "train");
  CHECK(clips[0].file.path == d.path("ds/a.wav"));
  CHECK(clips[1].split == "dev");
  CHECK(list_table(corpus::deep_speech({d.path("ds/other.csv")}))[0].split.empty());
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

TEST_CASE("a data directory of Kaldi", "[lists]") {
  const Data d;
  d.text("k/wav.scp", "r1 /w/1.wav\nr2   /w/2.wav\n");
  d.text("k/text", "u1 one two\nu2 three\nr1 whole\n");
  d.text("k/utt2spk", "u1 anna\n");
  const auto whole = corpus::list_kaldi(d.path("k"));
  REQUIRE(whole.size() == 2);
  CHECK(whole[0].text == "whole");
  CHECK_FALSE(whole[1].has_text);
  d.text("k/segments", "u1 r1 0.5 2.25\nu2 r2 1 -1\n");
  const auto parts = corpus::list_kaldi(d.path("k"));
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].file.path == "/w/1.wav");
  CHECK(parts[0].offset == 0.5);
  CHECK(parts[0].duration == 1.75);
  CHECK(parts[0].speaker == "anna");
  CHECK(parts[0].text == "one two");
  CHECK(parts[1].duration == -1);
  for (const auto& [line, says] : std::vector<std::pair<std::string, std::string>>{
           {"u1 r9 0 1", "recording 'r9' is not in wav.scp"},
           {"u1 r1 0", "expected UTTERANCE RECORDING BEGIN END"},
           {"u1 r1 x 1", "'x' is no time"},
           {"u1 r1 2 1", "ends at 1 s, which is not after 2 s"}}) {
    d.text("k/segments", line);
    CHECK_THROWS_WITH(corpus::list_kaldi(d.path("k")), Contains(str("segments:1: ", says)));
  }
  d.text("k/wav.scp", "r1 sph2pipe -f wav x.sph |\n");
  CHECK_THROWS_WITH(corpus::list_kaldi(d.path("k")), Contains("is the output of a command"));
}

TEST_CASE("features that Kaldi has made", "[lists]") {
  const Data d;
  std::string archive, index;
  for (const GoldenMatrix& m : golden_matrices) {
    archive += str(m.token, " ");
    index += str(m.token, " ", d.path("k/feats.ark"), ":", archive.size(), "\n");
    for (int b : m.bytes) archive += static_cast<char>(b);
  }
  d.text("k/feats.ark", archive);
  d.text("k/feats.scp", index);
  d.text("k/text", "FM one\nDM two\nCM three\nCM2 four\nCM3 five\n");
  d.text("k/utt2spk", "CM anna\n");
  d.text("k/frame_shift", "0.02\n");
  const auto list = corpus::list_kaldi(d.path("k"));
  REQUIRE(list.size() == 5);
  CHECK(list[0].kind == InputKind::features);
  CHECK(list[2].id == "CM");
  CHECK(list[2].speaker == "anna");
  PrepareListOptions o;
  o.dev = o.test = 0;
  const DataSummary s = d.prepare(list, o);
  CHECK(s.parts.at(0).length == Approx(5 * 9 * 0.02));
  const auto train = d.manifest("train");
  REQUIRE(train.size() == 5);
  for (size_t i = 0; i < train.size(); ++i) {
    const GoldenMatrix& golden = golden_matrices[i];
    CHECK(train[i].kind == InputKind::features);
    CHECK(train[i].byte_count == golden.bytes.size());
    CHECK(train[i].name() == golden.token);
    const Matrix read = read_feature_file(train[i].file(), train[i].features_key);
    CHECK(read.data.front() == Approx(golden.values.front()).margin(1e-4));
    CHECK(read.data.back() == Approx(golden.values.back()).margin(1e-4));
  }
  // Recordings come first where there are some.
  d.text("k/wav.scp", "FM /w/1.wav\n");
  CHECK(corpus::list_kaldi(d.path("k"))[0].kind == InputKind::recording);
  CHECK(corpus::list_kaldi(d.path("k"), true)[0].kind == InputKind::features);
  d.text("k/feats.scp", "FM /f.ark\n");
  CHECK_THROWS_WITH(corpus::list_kaldi(d.path("k"), true),
                    Contains("feats.scp:1: '/f.ark' is no matrix in an archive"));
  d.text("k/feats.scp", "FM copy-feats ark:x ark:- |\n");
  CHECK_THROWS_WITH(corpus::list_kaldi(d.path("k"), true), Contains("output of a command"));
}

TEST_CASE("recordings in tar archives are read where they are", "[lists]") {
  const Data d;
  const std::string deep = std::string(60, 'd') + "/" + std::string(60, 'e') + "/";
  const std::vector<std::string> names = {"a", "sub/b", deep + "c", "silent"};
  for (const std::string& name : names) {
    d.recording(str("in/", name, ".wav"), name == "a" ? 1 : 0.5);
    if (name != "silent") d.text(str("in/", name, ".txt"), str("text of ", name.back(), "\n"));
  }
  d.text("in/sub/b.json", R"({"text": "other", "speaker": "ben"})");
  fs::remove(d.path("in/sub/b.txt"));
  for (const std::string& format : std::vector<std::string>{"gnu", "pax", "ustar"}) {
    INFO(format);
    const std::string archive = d.path(format + ".tar");
    const auto tar = [&](std::vector<std::string> arguments) {
      const auto done = corpus::run_program("tar", arguments, std::chrono::seconds(20), "");
      REQUIRE(done.status == 0);
    };
    tar({"--format", format, "--sort=name", "-cf", archive, "-C", d.path("in"), "."});
    const auto list = corpus::list_tar({archive});
    REQUIRE(list.size() == 4);
    std::map<std::string, const ListedUtterance*> by_end;
    for (const ListedUtterance& u : list) by_end[u.id.substr(u.id.rfind('/') + 1)] = &u;
    CHECK(by_end.at("a")->text == "text of a");
    CHECK(by_end.at("c")->text == "text of c");
    CHECK(by_end.at("c")->id == str("./", deep, "c"));
    CHECK(by_end.at("b")->text == "other");
    CHECK(by_end.at("b")->speaker == "ben");
    CHECK_FALSE(by_end.at("silent")->has_text);
    PrepareListOptions o;
    o.dev = o.test = 0;
    const DataSummary s = d.prepare(list, o);
    CHECK(s.parts.at(0).length == Approx(2));
    CHECK(s.left_out.at("without a text").size() == 1);
    for (const ManifestEntry& e : d.manifest("train")) {
      const Waveform w = SndfileReader().read(e.file(), 8000, e.segment());
      CHECK(w.seconds() == Approx(*e.duration));
      CHECK(w.samples[7] == Approx(0.1).margin(1e-4));
    }
  }
}

TEST_CASE("tar archives that are damaged, compressed or no archives", "[lists]") {
  const Data d;
  d.recording("in/a.wav");
  d.text("in/a.txt", "one");
  const auto done =
      corpus::run_program("tar", {"-cf", d.path("good.tar"), "-C", d.path("in"), "a.wav", "a.txt"},
                          std::chrono::seconds(20), "");
  REQUIRE(done.status == 0);
  const std::string good = data::read_regular_file(d.path("good.tar"));
  const auto fails = [&](std::string bytes, const std::string& says) {
    d.text("bad.tar", bytes);
    CHECK_THROWS_WITH(corpus::list_tar({d.path("bad.tar")}), Contains(says));
  };
  fails("\x1f\x8b" + good, "bad.tar: is compressed, expected a plain tar archive");
  fails("hello", "bad.tar: at byte 0 ends within a header");
  fails(std::string(600, 'x'), "at byte 0 ");
  fails(good.substr(0, 5000), "at byte 0 is cut off: its file of 16044 bytes");
  std::string changed = good;
  changed[3] = 'x';  // in a name
  fails(changed, "at byte 0 holds no header of a tar archive");
  fails(std::string(1024, '\0'), "holds no recordings");
  CHECK_THROWS_WITH(corpus::list_tar({d.path("in")}), Contains("holds no tar archives"));
  CHECK(corpus::list_tar({d.path("")}).size() == 1);  // good.tar; bad.tar is empty
}

TEST_CASE("what cannot be used is left out, and said", "[lists]") {
  const Data d;
  std::vector<ListedUtterance> list;
  const auto add = [&](const std::string& name, const std::string& text) -> ListedUtterance& {
    ListedUtterance u;
    u.where = str("list:", list.size() + 1);
    u.file = d.path(name);
    u.text = text;
    return list.emplace_back(u);
  };
  d.recording("good.wav", 2);
  d.recording("short.wav", 0.05);
  d.text("noise.wav", "no sound");
  add("good.wav", "  Gut \xc3\xa4 ");
  add("missing.wav", "x");
  add("noise.wav", "x");
  add("short.wav", "x");
  add("good.wav", " ");
  add("good.wav", "\xff");
  add("good.wav", "").has_text = false;
  ListedUtterance& beyond = add("good.wav", "x");
  beyond.offset = 1;
  beyond.duration = 3;
  add("caf\xe9.wav", "x");
  const DataSummary s = d.prepare(list);
  CHECK(s.listed == 9);
  std::set<std::string> causes;
  for (const auto& [cause, problems] : s.left_out) {
    for (const auto& p : problems) causes.insert(str(p.where, " ", cause));
  }
  CHECK(causes ==
        std::set<std::string>{"list:2 missing or unreadable", "list:3 missing or unreadable",
                              "list:4 too short", "list:5 with an empty text",
                              "list:6 with a text that is not UTF-8", "list:7 without a text",
                              "list:9 with a name that is not UTF-8",
                              "list:8 beyond the end of its recording"});
  const auto train = d.manifest("train");
  REQUIRE(train.size() == 1);
  CHECK(train[0].text == "Gut \xc3\xa4");
  CHECK(train[0].path_as_written == "../data/good.wav");
  CHECK(train[0].duration == 2.0);
  CHECK(s.characters.at("\xc3\xa4") == 1);
  CHECK(fs::exists(str(d.out(), "/lengths.svg")));
  PrepareListOptions strict;
  strict.strict = true;
  CHECK_THROWS_WITH(d.prepare(list, strict), Contains("of 9 utterances") && Contains("list:7: "));
  list.erase(list.begin());
  CHECK_THROWS_WITH(d.prepare(list), Contains("there is nothing left to train on"));
  CHECK(d.manifest("train").size() == 1);  // what was there stays
}

TEST_CASE("nobody is in two parts, whatever the order of the list", "[lists]") {
  const Data d;
  std::vector<ListedUtterance> list = spoken(d, 20, 5);
  PrepareListOptions o;
  o.dev = 0.1;
  o.test = 0.2;
  const DataSummary s = d.prepare(list, o);
  CHECK_THAT(s.division, Contains("by speaker"));
  std::map<std::string, std::set<std::string>> parts;
  std::map<std::string, size_t> sizes;
  for (const char* split : {"train", "dev", "test"}) {
    for (const ManifestEntry& e : d.manifest(split)) parts[e.speaker].insert(split);
    sizes[split] = d.manifest(split).size();
  }
  CHECK(parts.size() == 20);
  for (const auto& [speaker, in] : parts) CHECK(in.size() == 1);
  CHECK(sizes["test"] == 20);
  CHECK(sizes["dev"] == 10);
  std::reverse(list.begin(), list.end());
  const auto before = d.manifest("test");
  d.prepare(list, o);
  std::set<std::string> a, b;
  for (const ManifestEntry& e : before) a.insert(e.path);
  for (const ManifestEntry& e : d.manifest("test")) b.insert(e.path);
  CHECK(a == b);
  o.seed = 2;
  d.prepare(list, o);
  b.clear();
  for (const ManifestEntry& e : d.manifest("test")) b.insert(e.path);
  CHECK(a != b);
}

TEST_CASE("of few speakers, or of nobody known, utterances are drawn", "[lists]") {
  const Data d;
  std::vector<ListedUtterance> list = spoken(d, 3, 20);
  CHECK_THAT(d.prepare(list).division, Contains("3 speakers are too few"));
  CHECK(d.manifest("dev").size() == 3);
  CHECK(d.manifest("test").size() == 3);
  CHECK(d.manifest("train").size() == 54);
  // Wherever the data lie, the same are drawn.
  const Data elsewhere;
  elsewhere.prepare(spoken(elsewhere, 3, 20));
  const auto here = d.manifest("test"), there = elsewhere.manifest("test");
  for (size_t i = 0; i < here.size(); ++i)
    CHECK(here[i].path_as_written == there[i].path_as_written);
  list[7].speaker.clear();
  CHECK(d.prepare(list).division == "by utterance, drawn with the seed");
  // As the data say, where they do.
  list[0].split = "test";
  CHECK_THAT(d.prepare(list).division, Contains("as the data are divided"));
  CHECK(d.manifest("test").size() == 1);
  CHECK(d.manifest("train").size() == 59);
}

TEST_CASE("images of lines with their texts, as other programs call them", "[lists]") {
  const Data d;
  for (const char* name :
       {"1.png", "2.bin.png", "2.nrm.png", "3.png", "3.bin.png", "a/4.PNG", "a/p.1.png", "a/5.png"})
    d.line(name);
  for (const char* name : {"1", "2", "3", "a/4", "a/p.1", "a/gone"})
    d.text(str(name, ".gt.txt"), str("text ", name, "\n"));
  d.text("1.txt", "not this one");
  d.text("a/5.txt", "nor this one");
  const auto list = corpus::list_lines(d.path(""));
  std::map<std::string, const ListedUtterance*> by_name;
  for (const ListedUtterance& u : list) {
    CHECK(u.kind == InputKind::image);
    by_name[fs::path(u.file.path).filename().string()] = &u;
  }
  REQUIRE(list.size() == 7);
  CHECK(by_name.at("1.png")->text == "text 1");
  CHECK(by_name.at("2.nrm.png")->text == "text 2");
  CHECK(by_name.at("3.png")->text == "text 3");
  CHECK(by_name.at("4.PNG")->folder == "a");
  CHECK(by_name.at("p.1.png")->text == "text a/p.1");
  // Beside texts called .gt.txt, others are what some program has read.
  CHECK_FALSE(by_name.at("5.png")->has_text);
  CHECK(by_name.at("1.png")->folder.empty());
  CHECK_FALSE(fs::exists(by_name.at("gone.png")->file.path));
  const Data other;
  other.line("6.png");
  other.text("6.txt", "this one");
  CHECK(corpus::list_lines(other.path("")).at(0).text == "this one");
  CHECK_THROWS_WITH(corpus::list_lines(d.path("b")), Contains("cannot be read as a folder"));
  fs::create_directories(d.path("c"));
  CHECK_THROWS_WITH(corpus::list_lines(d.path("c")),
                    Contains("holds neither images (.png") && Contains("nor pages"));
}

TEST_CASE("books are kept apart, or divided as their folders say", "[lists]") {
  const Data d;
  for (int book = 0; book < 8; ++book) {
    for (int n = 0; n < 5; ++n) {
      const std::string name = str("book", book, "/", n);
      d.line(name + ".png");
      d.text(name + ".gt.txt", "text");
    }
  }
  PrepareListOptions o;
  o.dev = o.test = 0.125;
  const DataSummary s = d.prepare(corpus::list_lines(d.path("")), o);
  CHECK(s.division == "by folder: none is in two parts");
  REQUIRE(s.parts.size() == 3);
  CHECK(s.parts[1].groups == 1);
  CHECK(s.parts[0].characters == 30 * 4);
  CHECK(s.parts[0].median == 240);  // 200 x 40 at a height of 48
  for (const ManifestEntry& e : d.manifest("dev")) {
    CHECK(e.kind == InputKind::image);
    CHECK(e.extra == d.manifest("dev").front().extra);
  }
  CHECK_THAT(d.manifest("dev").front().extra, Contains("\"folder\":\"book"));
  for (int book = 0; book < 8; ++book) {
    fs::create_directories(d.path(book ? "train" : "val"));
    fs::rename(d.path(str("book", book)), d.path(str(book ? "train/" : "val/", book)));
  }
  CHECK(d.prepare(corpus::list_lines(d.path("")), o).division == "as the data are divided");
  CHECK(d.manifest("train").size() == 35);
  CHECK(d.manifest("dev").size() == 5);
  CHECK_FALSE(fs::exists(d.out() + "/test.jsonl"));
}

TEST_CASE("lines that cannot be learnt are left out by cause", "[lists]") {
  const Data d;
  const std::map<std::string, std::string> texts = {{"good", "text"},
                                                    {"blank", "text"},
                                                    {"two", "text\ntext"},
                                                    {"narrow", std::string(61, 'x')},
                                                    {"just", std::string(60, 'x')},
                                                    {"wide", "te"},
                                                    {"no-image", "text"},
                                                    {"broken", "text"},
                                                    {"tiny", "t"}};
  for (const auto& [name, text] : texts) {
    d.text(name + ".gt.txt", text);
    if (name != "no-image" && name != "broken")
      d.line(name + ".png", name == "wide" ? 1400 : name == "tiny" ? 7 : 200, name != "blank");
  }
  d.line("no-text.png");
  d.text("broken.png", "no image");
  PrepareListOptions o;
  o.dev = o.test = 0;
  const DataSummary s = d.prepare(corpus::list_lines(d.path("")), o);
  CHECK(s.parts.at(0).utterances == 2);
  const std::map<std::string, std::string> causes = {
      {"blank", "nothing stands on it"},
      {"with a text of several lines", "more than one line"},
      {"narrower than their texts", "240 columns at a height of 48, for a text of 61 characters"},
      {"far wider than their texts", "1680 columns at a height of 48, for a text of 2 characters"},
      {"with too few pixels", "7 x 40 pixels, expected 8 each way"},
      {"without a text", "no text goes with it"}};
  for (const auto& [cause, what] : causes) {
    INFO(cause);
    REQUIRE(s.left_out.contains(cause));
    CHECK(s.left_out.at(cause).size() == 1);
    CHECK_THAT(s.left_out.at(cause).front().what, Contains(what));
  }
  REQUIRE(s.left_out.at("missing or unreadable").size() == 2);
  CHECK_THAT(s.left_out.at("missing or unreadable")[0].what, Contains("broken.png: is no image"));
  CHECK_THAT(s.left_out.at("missing or unreadable")[1].what, Contains("no-image.png: "));
  o.strict = true;
  CHECK_THROWS_WITH(d.prepare(corpus::list_lines(d.path("")), o), Contains("of 10 lines"));
}

}  // namespace rondo
