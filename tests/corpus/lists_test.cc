// Manifests for data sets as people have them.
#include <sys/stat.h>
#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/corpus/examination/list_corpus.h"
#include "engine/corpus/examination/list_passes.h"
#include "engine/corpus/lists/csv.h"
#include "engine/corpus/lists/read_text.h"
#include "engine/corpus/lists/tar.h"
#include "engine/data/audio/audio.h"
#include "engine/data/audio/run_program.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "engine/data/manifest.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/kaldi_golden.h"
#include "tests/data/temporary_folder.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using corpus::CsvReader;
using corpus::CsvRow;
using corpus::Finding;
using corpus::ListedUtterance;
using corpus::Quoting;
using corpus::quoting_of;

class Data {
 public:
  std::string path(const std::string& name) const { return folder_.path(str("data/", name)); }
  std::string out() const { return folder_.path("out"); }

  void text(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    data::write_whole_file(path(name), content);
  }
  // Something is heard: a constant would be silence.
  void recording(const std::string& name, double seconds = 1) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::vector<float> samples(static_cast<size_t>(8000 * seconds), -0.1f);
    for (size_t i = 7; i < samples.size(); i += 8) samples[i] = 0.1f;
    write_wav(path(name), {8000, samples});
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

// What is wrong with a row stands for its fields.
std::vector<std::vector<std::string>> fields(const std::string& text, char delimiter = ',',
                                             Quoting quoting = Quoting::doubled) {
  std::vector<std::vector<std::string>> all;
  CsvReader reader(text, delimiter, quoting);
  for (CsvRow row; reader.next(row);)
    all.push_back(row.problem.empty() ? row.fields : std::vector<std::string>{"! " + row.problem});
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

TEST_CASE("CSV as RFC 4180 has it", "[csv]") {
  CHECK(fields("a,b\n1,2\n") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(fields("a,b\r\n1,2") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(fields("a,b\r1,2\r") == Rows{{"a", "b"}, {"1", "2"}});  // an old Macintosh
  CHECK(fields("a,b\n\n  \n,\n") == Rows{{"a", "b"}, {"", ""}});
  CHECK(fields("\"x, \"\"y\"\"\nz\",2\n3,\"\"\n") == Rows{{"x, \"y\"\nz", "2"}, {"3", ""}});
  CHECK(fields("a\t\"b\tc", '\t', Quoting::none) == Rows{{"a", "\"b", "c"}});
  CHECK(fields("a, \"b, c\" ,d\n") == Rows{{"a", "b, c", "d"}});
  CHECK(fields("a,say \"no\",5\" long\n") == Rows{{"a", "say \"no\"", "5\" long"}});
  CHECK(fields("\"a\\\"b\\\\\",c\n", ',', Quoting::backslash) == Rows{{"a\"b\\", "c"}});
  CsvReader reader("a\n\"b\nc\"\nd\n", ',', Quoting::doubled);
  CsvRow row;
  for (const int line : {1, 2, 4}) {
    REQUIRE(reader.next(row));
    CHECK(row.line == line);
  }
}

TEST_CASE("a quote that does not fit costs its row and no other", "[csv]") {
  CHECK(fields("a,1\nb,\"2\nc,3\nd,4\n") ==
        Rows{{"a", "1"}, {"! a quote is opened and not closed"}, {"c", "3"}, {"d", "4"}});
  // The next quote in the file closes it, many lines further down.
  CHECK(fields("b,\"2\nc,3\nd,\"4\"\n") ==
        Rows{{"! a quoted field is followed by '4'"}, {"c", "3"}, {"d", "4"}});
  CHECK(fields("\"b\"c,d\ne,f\n") == Rows{{"! a quoted field is followed by 'c'"}, {"e", "f"}});
}

TEST_CASE("the way of quoting is the one by which the fewest rows are wrong", "[csv]") {
  CHECK(quoting_of("a,b\n1,2\n", ',') == Quoting::doubled);
  CHECK(quoting_of("a,b\n1,\"say \"\"no\"\"\"\n", ',') == Quoting::doubled);
  CHECK(quoting_of("a,b\n1,\"say \\\"no, no\\\"\"\n", ',') == Quoting::backslash);
  CHECK(quoting_of("a,b\n\"C:\\dir\\\",\"x\"\n", ',') == Quoting::doubled);
  CHECK(quoting_of("a\tb\n1\t\"No\" he said\n2\t\"open\n", '\t') == Quoting::none);
  // Between commas a quote that does not fit is a slip.
  CHECK(quoting_of("a,b\n1,\"No\" he said\n2,\"open\n", ',') == Quoting::doubled);
  // One bad row among well quoted ones is a bad row.
  CHECK(quoting_of("a\tb\n1\t\"No\" he said\n2\t\"x\"\n", '\t') == Quoting::doubled);
}

TEST_CASE("text files in UTF-16, with marks, compressed", "[lists]") {
  using corpus::decoded_text;
  const std::string zero(1, '\0');
  CHECK(decoded_text("\xef\xbb\xbf"
                     "a\n",
                     "x") == "a\n");
  const std::string low =
      "a" + zero + "\xe9" + zero + "\xac\x20" + std::string("\x3d\xd8\0\xde", 4);
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
  CHECK(decoded_text("\xff\xfe" + low, "x") == text);
  std::string high = low;
  for (size_t i = 0; i + 1 < high.size(); i += 2) std::swap(high[i], high[i + 1]);
  CHECK(decoded_text("\xfe\xff" + high, "x") == text);
  CHECK(decoded_text("a" + zero + "b" + zero, "x") == "ab");
  // What is not UTF-16 stays no UTF-8, for who reads it to say so.
  CHECK(decoded_text(std::string("\xff\xfe\x3d\xd8", 4), "x") == "\xed\xa0\xbd");
  CHECK(decoded_text("caf\xe9", "x") == "caf\xe9");
  const Data d;
  d.text("a.txt", "one\n");
  const auto packed = [&](const std::string& content) {
    d.text("p.txt", content);
    fs::remove(d.path("p.txt.gz"));
    REQUIRE(run_program("gzip", {d.path("p.txt")}, std::chrono::seconds(20), "").status == 0);
    return data::read_regular_file(d.path("p.txt.gz"));
  };
  const std::string one = packed("one\n"), two = packed(std::string(200000, 'x'));
  CHECK(decoded_text(one + two, "x") == "one\n" + std::string(200000, 'x'));
  CHECK(corpus::read_text(d.path("p.txt")) == std::string(200000, 'x'));
  CHECK_THROWS_WITH(decoded_text(one.substr(0, 15), "x.gz"),
                    Contains("x.gz: the compressed file ends too early"));
  std::string damaged = two;
  damaged[two.size() - 6] ^= 0x55;  // its checksum
  CHECK_THROWS_WITH(decoded_text(damaged, "x.gz"), Contains("x.gz: "));
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
  layout.text = {"siad"};
  CHECK_THROWS_WITH(list_table(layout), Contains("did you mean 'said'?"));
  d.text("t.csv", "who;file;said\n");
  CHECK_THROWS_WITH(list_table(layout), Contains("divided otherwise: --delimiter semicolon"));
  layout.text = {"said"};
  d.text("t.csv", "file,said,said\n");
  CHECK_THROWS_WITH(list_table(layout), Contains("t.csv: has two columns 'said', expected one"));
}

TEST_CASE("what is wrong with a row of a table costs that row", "[lists]") {
  const Data d;
  corpus::TableLayout layout;
  layout.files = {{d.path("t.csv"), ""}};
  layout.audio = "file";
  layout.text = {"text"};
  const auto listed = [&](const std::string& table) {
    d.text("t.csv", table);
    std::vector<std::string> all;
    for (const ListedUtterance& u : list_table(layout)) {
      const std::string place = u.where.substr(u.where.rfind(':') + 1);
      std::string notes;
      for (const auto& note : u.notes) notes += str(" + ", kind_of(note.finding).key);
      all.push_back(u.problem.empty() ? str(place, " ", fs::path(u.file.path).filename().string(),
                                            "=", u.text, notes)
                                      : str(place, " ", kind_of(u.finding).key, ": ", u.problem));
    }
    return all;
  };
  using Entries = std::vector<std::string>;
  // The comma that nobody quoted: the text is the last column, and its own.
  CHECK(listed("file,text\na.wav,one, two\nb.wav,three\n") ==
        Entries{"2 a.wav=one, two + joined-text", "3 b.wav=three"});
  CHECK(listed("file,text,who\na.wav,one, two,ben\nb.wav,three,ben\nc.wav,four\n") ==
        Entries{"2 wrong-fields: has 4 fields, expected 3, as the first line has", "3 b.wav=three",
                "4 wrong-fields: has 2 fields, expected 3, as the first line has"});
  // What spreadsheets leave behind the last column.
  CHECK(listed("file,text\na.wav,one,,\n") == Entries{"2 a.wav=one"});
  CHECK(listed(" file ,text \n a.wav , one \n") == Entries{"2 a.wav=one"});
  CHECK(listed("file,text\n,one\nb.wav,two\n") ==
        Entries{"2 names-nothing: names no recording in column 'file'", "3 b.wav=two"});
  CHECK(listed("file,text\na.wav,\"one\nb.wav,two\n") ==
        Entries{"2 bad-row: a quote is opened and not closed", "3 b.wav=two"});
  CHECK(listed("file,text\ra.wav,one\r") == Entries{"2 a.wav=one"});
  const std::string zero(1, '\0');
  std::string wide = "\xff\xfe";
  for (const char c : std::string("file,text\r\na.wav,\"x, y\"\r\n")) wide += c + zero;
  CHECK(listed(wide) == Entries{"2 a.wav=x, y"});
  layout.delimiter = 0;
  CHECK(listed("file;text\na.wav;1,5\n") == Entries{"2 a.wav=1,5"});
  CHECK(listed("file\ttext\na.wav\tone\n") == Entries{"2 a.wav=one"});
  CHECK_THROWS_WITH(listed("files;text\n"), Contains("it has files, text; did you mean 'files'?"));
  CHECK(listed("sep=|\r\nfile|text\r\na.wav|one\r\n") == Entries{"3 a.wav=one"});
  REQUIRE(run_program("gzip", {d.path("t.csv")}, std::chrono::seconds(20), "").status == 0);
  CHECK(list_table(layout).at(0).text == "one");
}

TEST_CASE("manifests of NeMo, where a bad line costs that line", "[lists]") {
  const Data d;
  d.text("train.json",
         "{\"audio_filepath\": \"a.wav\", \"text\": \"one\", \"duration\": 9}\n"
         "{\"audio_filepath\": \"b.wav\", \"text\": \"two\", \"offset\": 1.5, \"duration\": 2, "
         "\"speaker\": 7}\n\n"
         "{\"audio_filepath\": \"c.wav\"}\nno json\n[1]\n{\"text\": \"x\"}\n"
         "{\"audio_filepath\": \"d.wav\", \"offset\": -1}\n");
  const auto list = corpus::list_nemo({d.path("train.json")});
  REQUIRE(list.size() == 7);
  CHECK(list[0].file.path == d.path("a.wav"));
  CHECK(list[0].duration == 9);
  CHECK(list[2].duration == -1);
  CHECK(list[0].split == "train");
  CHECK(list[1].offset == 1.5);
  CHECK(list[1].duration == 2);
  CHECK(list[1].speaker == "7");
  CHECK_FALSE(list[2].has_text);
  CHECK(list[3].where == str(d.path("train.json"), ":5"));
  for (size_t i = 3; i < 7; ++i) CHECK(list[i].finding == Finding::bad_line);
  CHECK_THAT(list[3].problem, Contains("is not valid JSON"));
  CHECK_THAT(list[6].problem, Contains("\"offset\" is -1, expected a number of seconds"));
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
  REQUIRE(whole.size() == 4);
  CHECK(whole[0].text == "whole");
  CHECK_FALSE(whole[1].has_text);
  CHECK(whole[2].finding == Finding::text_alone);
  CHECK_THAT(whole[2].problem, Contains("'u1' is not in wav.scp"));
  d.text("k/segments", "u1 r1 0.5 2.25\nu2 r2 1 -1\n");
  const auto parts = corpus::list_kaldi(d.path("k"));
  REQUIRE(parts.size() == 3);
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
    d.text("k/segments", line + "\nu2 r2 1 -1\n");
    const auto some = corpus::list_kaldi(d.path("k"));
    REQUIRE(some.size() >= 2);
    CHECK(some[0].where.ends_with("segments:1"));
    CHECK(some[0].finding == Finding::bad_line);
    CHECK_THAT(some[0].problem, Contains(says));
    CHECK(some[1].problem.empty());
  }
  fs::remove(d.path("k/segments"));
  d.text("k/wav.scp", "r1 sph2pipe -f wav x.sph |\nr2 /w/2.wav\nr2 /w/3.wav\nr4\n");
  d.text("k/text", "r2 two\nr2 three\nr9 nine\n");
  std::map<std::string, Finding> found;
  for (const ListedUtterance& u : corpus::list_kaldi(d.path("k")))
    if (!u.problem.empty()) found[u.where.substr(u.where.rfind('/') + 1)] = u.finding;
  CHECK(found == std::map<std::string, Finding>{{"wav.scp:1", Finding::command},
                                                {"wav.scp:3", Finding::doubled},
                                                {"wav.scp:4", Finding::names_nothing},
                                                {"text:2", Finding::doubled_otherwise},
                                                {"text:3", Finding::text_alone}});
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
  CHECK_THAT(corpus::list_kaldi(d.path("k"), true).at(0).problem,
             Contains("'/f.ark' is no matrix in an archive"));
  d.text("k/feats.scp", "FM copy-feats ark:x ark:- |\n");
  CHECK_THAT(corpus::list_kaldi(d.path("k"), true).at(0).problem, Contains("output of a command"));
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
      const auto done = run_program("tar", arguments, std::chrono::seconds(20), "");
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
    CHECK(s.findings.of(Finding::no_text).count == 1);
    CHECK(s.findings.left_out() == 1);
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
      run_program("tar", {"-cf", d.path("good.tar"), "-C", d.path("in"), "a.wav", "a.txt"},
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
  for (const auto& [finding, found] : s.findings.all()) {
    for (const auto& e : found.examples) causes.insert(str(e.where, " ", kind_of(finding).title));
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

TEST_CASE("what is listed twice is used once, and parts of one recording are not twice",
          "[lists]") {
  const Data d;
  d.recording("a.wav", 40);
  std::vector<ListedUtterance> list;
  const auto add = [&](double offset, const std::string& text) {
    ListedUtterance& u = list.emplace_back();
    u.where = str("list:", list.size());
    u.file = d.path("a.wav");
    u.text = text;
    u.offset = offset;
    u.duration = 1;
  };
  for (int i = 0; i < 20; ++i) add(30 + (i + 1) * 1e-5, "x");  // as close as no one hears
  add(30 + 3 * 1e-5, "x");
  add(30 + 5 * 1e-5, "y");
  PrepareListOptions o;
  o.dev = o.test = 0;
  const DataSummary s = d.prepare(list, o);
  CHECK(d.manifest("train").size() == 20);
  CHECK(s.findings.of(Finding::doubled).count == 1);
  CHECK(s.findings.of(Finding::doubled_otherwise).count == 1);
  CHECK_THAT(s.findings.of(Finding::doubled_otherwise).examples[0].what,
             Contains("has the text 'y' here and 'x' in list:5"));
}

TEST_CASE("of many recordings 20,000 are drawn, whatever their order", "[lists]") {
  std::vector<ListedUtterance> list(25'000);
  for (size_t i = 0; i < list.size(); ++i) list[i].file = str("/d/", i, ".wav");
  const auto names = [&](const corpus::Drawn& drawn) {
    std::set<std::string> all;
    for (const ListedUtterance& u : list)
      if (drawn.contains(u)) all.insert(u.file.path);
    return all;
  };
  const std::set<std::string> some = names(corpus::Drawn(list, 1, false));
  CHECK(some.size() == 20'000);
  std::reverse(list.begin(), list.end());
  CHECK(names(corpus::Drawn(list, 1, false)) == some);
  CHECK(names(corpus::Drawn(list, 2, false)) != some);
  CHECK(names(corpus::Drawn(list, 1, true)).empty());
  list.resize(20'000);
  CHECK(names(corpus::Drawn(list, 1, false)).size() == 20'000);
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
  for (const char* name : {"train/a/1", "train/b/1", "val/a/2", "test/b/3"})
    d.recording(str(name, ".wav"));
  std::map<std::string, std::string> splits;
  for (const ListedUtterance& u : corpus::list_classes(d.path(""))) splits[u.split] += u.label;
  CHECK(splits == std::map<std::string, std::string>{{"dev", "a"}, {"test", "b"}, {"train", "ab"}});
  // Sounds of vehicles, of which some are trains.
  d.recording("car/a/1.wav");
  std::set<std::string> classes;
  for (const ListedUtterance& u : corpus::list_classes(d.path(""))) classes.insert(u.label);
  CHECK(classes == std::set<std::string>{"car", "test", "train", "val"});
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
  const std::map<Finding, std::string> causes = {
      {Finding::blank, "nothing stands on it"},
      {Finding::several_lines, "more than one line"},
      {Finding::too_narrow, "240 columns at a height of 48, for a text of 61 characters"},
      {Finding::too_wide, "1680 columns at a height of 48, for a text of 2 characters"},
      {Finding::few_pixels, "7 x 40 pixels, expected 8 each way"},
      {Finding::no_text, "no text goes with it"}};
  for (const auto& [cause, what] : causes) {
    INFO(kind_of(cause).title);
    const auto& found = s.findings.of(cause);
    REQUIRE(found.count == 1);
    CHECK_THAT(found.examples.front().what, Contains(what));
  }
  const auto& unreadable = s.findings.of(Finding::unreadable).examples;
  REQUIRE(unreadable.size() == 2);
  CHECK_THAT(unreadable[0].what, Contains("broken.png: is no image"));
  CHECK_THAT(unreadable[1].what, Contains("no-image.png: "));
  o.strict = true;
  CHECK_THROWS_WITH(d.prepare(corpus::list_lines(d.path("")), o), Contains("of 10 lines"));
}

}  // namespace rondo
