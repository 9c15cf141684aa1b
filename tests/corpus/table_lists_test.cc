// Tables of recordings: CSV, TSV, and those of public corpora; text files as programs write them.
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/features/run_program.h"
#include "tests/catch.h"
#include "tests/corpus/listed_data.h"
#include "tools/corpus/lists/csv.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/read_text.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using corpus::CsvReader;
using corpus::CsvRow;
using corpus::ListedUtterance;
using corpus::Quoting;
using corpus::quoting_of;
using Data = test::ListedData;

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

}  // namespace

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
  // A program took the mark of UTF-8 for a character.
  CHECK(decoded_text("\xff\xfe\xff\xfe" + low, "x") == text);
  CHECK(decoded_text("\xef\xbb\xbf\xef\xbb\xbfz", "x") == "z");
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
  layout.text = {""};
  d.text("t.csv", "file, said,\n");
  CHECK_THROWS_WITH(list_table(layout),
                    Contains("t.csv: which of its columns holds the recordings, which the texts? "
                             "It has file, said, ; expected --audio-column NAME and "));
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
  const auto files = corpus::files_with_splits(
      {"my_Train.csv", "x/validation-00000-of-00002.csv", "val.csv", "latest.csv", "valued.csv"});
  std::string splits;
  for (const auto& file : files) splits += file.split + ",";
  CHECK(splits == "train,dev,dev,,,");
}

}  // namespace rondo
