// engine/data/manifest.h: what is read, what is refused, and with which sentence.
#include "engine/data/manifest.h"

#include <set>
#include <string>
#include <vector>

#include "engine/data/features/files.h"
#include "engine/data/manifest_field.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

TEST_CASE("a field of a manifest that is null is absent", "[manifest]") {
  const Manifest m = parse_manifest(
      R"({"audio_filepath": "a.wav", "features_filepath": null, "features_key": null, "offset": null,)"
      R"( "duration": null, "text": "x", "label": null, "target": null, "labels": null,)"
      R"( "frame_labels": null, "speaker": null, "mine": null})",
      "m.jsonl");
  const ManifestEntry& e = m.entries.at(0);
  CHECK(e.kind == InputKind::recording);
  CHECK(e.text == "x");
  CHECK_FALSE((e.duration || e.label || e.labels));
  CHECK((e.target.empty() && e.frame_labels.empty() && e.speaker.empty()));
  CHECK(e.extra == R"({"mine":null})");
  CHECK_THROWS_WITH(parse_manifest(R"({"audio_filepath": null})", "m.jsonl"),
                    Catch::Contains("has no \"audio_filepath\""));
  // Each of them, and with each kind of input.
  for (const std::string input : {"audio_filepath", "features_filepath", "image_filepath"}) {
    const std::string plain = "{\"" + input + "\":\"a\"";
    for (const std::string field :
         {"audio_filepath", "features_filepath", "image_filepath", "features_key", "bytes",
          "region", "baseline", "offset", "duration", "channel", "speaker", "text", "label",
          "target", "labels", "frame_labels"}) {
      if (field == input) continue;
      INFO(input << ", " << field);
      const Manifest one = parse_manifest(plain + ",\"" + field + "\":null}", "m.jsonl");
      CHECK(to_json_line(one.entries.at(0)) == plain + "}");
      CHECK(one.entries[0].wrong_targets.empty());
    }
  }
}

TEST_CASE("a manifest's fields are read and the rest is kept", "[manifest]") {
  const Manifest m = parse_manifest(
      "\xef\xbb\xbf{\"audio_filepath\": \"a/b.wav\", \"duration\": 1.5, \"text\": \"hallo\", "
      "\"speaker\": 7, \"accent\": {\"x\": [1, 2]}}\r\n"
      "\n"
      "{\"audio_filepath\": \"/abs/c.flac\", \"offset\": 0.25, \"duration\": null, \"label\": 3}\n"
      "{\"features_filepath\": \"f.npy\", \"target\": [1, -2.5], \"frame_labels\": [0, 2]}\n"
      "{\"features_filepath\": \"f.safetensors\", \"features_key\": \"u1\", \"labels\": [], "
      "\"target\": 4}",
      "/corpus/train.jsonl");
  REQUIRE(m.entries.size() == 4);
  const ManifestEntry& a = m.entries[0];
  CHECK(a.path == "/corpus/a/b.wav");
  CHECK(a.path_as_written == "a/b.wav");
  CHECK(a.duration == 1.5);
  CHECK(a.text == "hallo");
  CHECK(a.speaker == "7");
  CHECK(a.extra == "{\"accent\":{\"x\":[1,2]}}");
  const ManifestEntry& b = m.entries[1];
  CHECK(b.path == "/abs/c.flac");
  CHECK(b.line == 3);
  CHECK(b.offset == 0.25);
  CHECK_FALSE(b.duration);
  CHECK_FALSE(b.text);
  CHECK(b.label == 3);
  CHECK(m.where(b) == "/corpus/train.jsonl:3");
  CHECK(m.entries[2].kind == InputKind::features);
  CHECK(m.entries[2].target == std::vector<float>{1, -2.5f});
  CHECK(m.entries[2].frame_labels == std::vector<int32_t>{0, 2});
  CHECK(m.entries[3].features_key == "u1");
  CHECK(m.entries[3].labels == std::vector<int32_t>{});
  CHECK(m.transcripts() == std::vector<std::string>{"hallo"});
}

TEST_CASE("a malformed manifest line is named with what was expected", "[manifest]") {
  const auto parse = [](const std::string& line) {
    return parse_manifest("{\"audio_filepath\": \"ok.wav\"}\n" + line + "\n", "m.jsonl");
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"audio_filepath\": \"x.wav\"", "m.jsonl:2: is not valid JSON"},
      {"[1]", "m.jsonl:2: holds JSON that is not an object"},
      {"{}", "m.jsonl:2: has no \"audio_filepath\""},
      {"{\"audio_filepath\": 3}", "\"audio_filepath\" is 3, expected a string"},
      {"{\"audio_filepath\": \"\"}", "expected a file name"},
      {"{\"audio_filepath\": \"a\\u0000b\"}", "expected a file name"},
      {"{\"audio_filepath\": \"a\", \"features_filepath\": \"b\"}", "expected one"},
      {"{\"audio_filepath\": \"a\", \"duration\": \"1\"}", "\"duration\" is \"1\", expected"},
      {"{\"audio_filepath\": \"a\", \"duration\": -1}", "\"duration\" is -1"},
      {"{\"audio_filepath\": \"a\", \"duration\": 1e400}", "m.jsonl:2: "},
      {"{\"audio_filepath\": \"a\", \"duration\": 1e9}", "\"duration\" is 1000000000.0, expected"},
      {"{\"audio_filepath\": \"a\", \"offset\": -0.5}", "\"offset\" is -0.5"},
      {"{\"audio_filepath\": \"a\", \"text\": \"\xff\"}", "is not valid JSON"},
      {"{\"audio_filepath\": \"a\", \"speaker\": {}}", "\"speaker\" is {}"},
      {"{\"audio_filepath\": \"a\", \"channel\": -1}", "\"channel\" is -1, expected a channel"},
      {R"({"image_filepath": "a", "region": [1, 2, 3]})",
       "\"region\" is [1,2,3], expected a box, [left, top, width, height], or a polygon"},
      {R"({"image_filepath": "a", "region": [1, 2, 3, 0]})", "\"region\" is [1,2,3,0]"},
      {R"({"image_filepath": "a", "region": [1, 2, 16777216, 4]})",
       "\"region\" is [1,2,16777216,4]"},
      {R"({"image_filepath": "a", "region": [1, 2, 3, 4.5]})", "\"region\" is [1,2,3,4.5]"},
      {R"({"image_filepath": "a", "region": [[1, 2], [3, 4]]})", "\"region\" is [[1,2],[3,4]]"},
      {R"({"image_filepath": "a", "region": [[1, 2], [3, 4], [5]]})", "\"region\" is [[1,2],"},
      {R"({"image_filepath": "a", "region": [[1, 2], [3, 4], [5, 99999999]]})", "\"region\" is"},
      {R"({"image_filepath": "a", "region": "all"})", "\"region\" is \"all\""},
      {R"({"image_filepath": "a", "region": [1, 2, 30, 40], "baseline": [[1, 2]]})",
       "\"baseline\" is [[1,2]], expected a polyline of two different points or more"},
      {R"({"image_filepath": "a", "region": [1, 2, 30, 40], "baseline": [[1, 2], [1, 2]]})",
       "\"baseline\" is [[1,2],[1,2]], expected a polyline"},
      {R"({"image_filepath": "a", "region": [1, 2, 30, 40], "baseline": [1, 2, 3, 4]})",
       "\"baseline\" is [1,2,3,4], expected a polyline"},
      {R"({"image_filepath": "a", "region": [1, 2, 30, 40], "baseline": [[1, 2], [3, 16777217]]})",
       "\"baseline\" is [[1,2],[3,16777217]], expected a polyline"},
      {R"({"image_filepath": "a", "baseline": [[1, 2], [3, 4]]})",
       "m.jsonl:2: \"baseline\" is given without \"region\", expected both"},
      {R"({"audio_filepath": "a", "region": [1, 2, 3, 4]})",
       "m.jsonl:2: \"region\" is given with \"audio_filepath\", it is a part of an image"},
  };
  for (const auto& [line, wanted] : cases) {
    INFO(line);
    CHECK_THROWS_WITH(parse(line), Contains(wanted));
    CHECK_THROWS_AS(parse(line), InputError);
  }
  CHECK_THROWS_WITH(parse_manifest("\n \n", "m.jsonl"), Contains("holds blank lines only"));
  CHECK_THROWS_WITH(read_manifest("/no/such/file.jsonl"),
                    Contains("/no/such/file.jsonl: cannot be opened"));
  CHECK_THROWS_WITH(read_manifest("/"), Contains("/: cannot be read"));
}

TEST_CASE("a target that is none is kept for who wants it", "[manifest]") {
  const auto parse = [](const std::string& fields) {
    return parse_manifest("{\"features_filepath\": \"a\", " + fields + "}", "m").entries.front();
  };
  const ManifestEntry nemo = parse("\"text\": \"x\", \"label\": \"infer\"");
  CHECK(nemo.text == "x");
  CHECK_FALSE(nemo.label.has_value());
  CHECK(nemo.class_name == "infer");
  CHECK(nemo.extra.empty());
  CHECK(to_json_line(nemo).find("\"infer\"") != std::string::npos);
  for (const char* wrong :
       {"\"text\": [\"x\"]", "\"label\": 1.5", "\"label\": -1", "\"label\": 18446744073709551615",
        "\"label\": 16777216", "\"label\": \"\"", "\"label\": \" \"", "\"label\": \"a\\tb\"",
        "\"label\": [\"a\"]", "\"label\": true", "\"labels\": [0]", "\"target\": [1, \"x\"]",
        "\"target\": 1e39", "\"frame_labels\": [-1]"}) {
    INFO(wrong);
    const ManifestEntry e = parse(wrong);
    CHECK_FALSE((e.text || e.label || !e.class_name.empty() || e.labels || !e.target.empty() ||
                 !e.frame_labels.empty()));
    CHECK_FALSE(e.extra.empty());
  }
}

TEST_CASE("a long value that is wrong is cut short between characters", "[manifest]") {
  for (const char* const before : {"", "x"}) {
    std::string value = before;
    for (int i = 0; i < 40; ++i) value += "\xc3\xa4";
    const auto e = parse_manifest(R"({"features_filepath": "a", "label": [")" + value + "\"]}", "m")
                       .entries.front();
    REQUIRE(e.wrong_targets.size() == 1);
    const std::string& what = e.wrong_targets.front().second;
    CHECK_THAT(what, Contains("\xc3\xa4..., expected a class"));
    CHECK(what.size() < 140);
  }
}

TEST_CASE("a channel is part of what an utterance is", "[manifest]") {
  const auto parse = [](const std::string& more) {
    return parse_manifest("{\"audio_filepath\": \"a.wav\"" + more + "}", "m").entries.front();
  };
  const ManifestEntry none = parse(""), first = parse(", \"channel\": 0"),
                      second = parse(", \"channel\": 1");
  CHECK(none.segment().channel == -1);
  CHECK(second.segment().channel == 1);
  CHECK(second.name() == "a.wav:channel1");
  CHECK(none.key() != first.key());
  CHECK(first.key() != second.key());
  CHECK(parse_manifest(to_json_line(second), "m").entries.front().channel == 1);
}

TEST_CASE("a region is part of what an utterance is", "[manifest]") {
  const auto parse = [](const std::string& more) {
    return parse_manifest("{\"image_filepath\": \"a.png\"" + more + "}", "m").entries.front();
  };
  const ManifestEntry whole = parse(""), box = parse(", \"region\": [10, -2, 300, 40]"),
                      polygon = parse(", \"region\": [[1, 2], [30, 2], [30, 9], [1, 12]]");
  CHECK(whole.region.is_whole());
  CHECK(box.region.is_box());
  CHECK(box.region == ImageRegion::of_box({10, -2, 300, 40}));
  CHECK(box.name() == "a.png:10,-2");
  CHECK(polygon.region.corners == std::vector<ImagePoint>{{1, 2}, {30, 2}, {30, 9}, {1, 12}});
  CHECK_FALSE(polygon.region.is_box());
  CHECK(whole.key() != box.key());
  CHECK(box.key() != parse(", \"region\": [10, -2, 300, 41]").key());
  // Each corner counts, in its order.
  const auto corners = [&](const std::string& list) {
    return parse(", \"region\": [" + list + "]").key();
  };
  const std::set<uint64_t> keys = {
      corners("[1, 2], [30, 2], [30, 9]"), corners("[0, 2], [30, 2], [30, 9]"),
      corners("[1, 2], [31, 2], [30, 9]"), corners("[1, 2], [30, 2], [30, 8]"),
      corners("[2, 1], [30, 2], [30, 9]"), corners("[30, 2], [1, 2], [30, 9]")};
  CHECK(keys.size() == 6);
  CHECK(to_json_line(box) == R"({"image_filepath":"a.png","region":[10,-2,300,40]})");
  // What is known of its baseline changes nothing of which line it is.
  const ManifestEntry straightened =
      parse(", \"region\": [10, -2, 300, 40], \"baseline\": [[10, 30], [300, 28]]");
  CHECK(straightened.region.baseline == std::vector<ImagePoint>{{10, 30}, {300, 28}});
  CHECK(straightened.key() == box.key());
  CHECK(to_json_line(straightened) ==
        R"({"image_filepath":"a.png","region":[10,-2,300,40],"baseline":[[10,30],[300,28]]})");
  for (const ManifestEntry& e : {whole, box, polygon, straightened}) {
    const ManifestEntry again = parse_manifest(to_json_line(e), "m").entries.front();
    CHECK((again.region == e.region && again.key() == e.key()));
  }
}

TEST_CASE("values at their limits are taken, those beyond are not", "[manifest]") {
  const auto parse = [](const std::string& fields) {
    return parse_manifest("{" + fields + "}", "m").entries.front();
  };
  const std::string sound = R"("audio_filepath": "a", )", image = R"("image_filepath": "a", )";
  const ManifestEntry e =
      parse(sound + R"("label": 16777215, "labels": [1, 16777215], "frame_labels": [0, 16777215], )"
                    R"("channel": 0, "offset": 0, "duration": 999999999, "bytes": [0, 1])");
  CHECK((e.label == 16777215 && e.frame_labels == std::vector<int32_t>{0, 16777215}));
  CHECK(e.labels == std::vector<int32_t>{1, 16777215});
  CHECK((e.channel == 0 && e.duration == 999999999 && e.first_byte == 0 && e.byte_count == 1));
  CHECK(to_json_line(e).find(R"("bytes":[0,1])") != std::string::npos);
  for (const char* wrong : {R"("label": 16777216)", R"("labels": [1, 16777216])",
                            R"("labels": [1, 0])", R"("frame_labels": [0, 16777216])"})
    CHECK(parse(sound + wrong).wrong_targets.size() == 1);
  for (const char* region : {"[0, 16777215, 1, 1]", "[16777215, 0, 1, 1]", "[-16777216, -9, 1, 1]",
                             "[[0, 0], [1, 16777216], [-16777216, 2]]"})
    CHECK_NOTHROW(parse(image + R"("region": )" + region));
  for (const std::string& wrong :
       {sound + R"("channel": 16777216)", sound + R"("bytes": [0, 0])", sound + R"("bytes": [0])",
        sound + R"("bytes": [0, 1, 2])", sound + R"("bytes": [-1, 2])",
        image + R"("region": [0, 16777216, 1, 1])", image + R"("region": [16777216, 0, 1, 1])",
        image + R"("region": [-16777217, 0, 1, 1])", image + R"("region": [1, 1, 0, 1])",
        image + R"("region": [[0, 0], [1, 16777217], [3, 2]])"}) {
    INFO(wrong);
    CHECK_THROWS_AS(parse(wrong), InputError);
  }
}

TEST_CASE("an utterance is called by its id, or by where it lies", "[manifest]") {
  const auto name = [](const std::string& fields) {
    return parse_manifest("{" + fields + "}", "m").entries.front().name();
  };
  const std::string sound = R"("audio_filepath": "w/a.wav")";
  CHECK(name(sound) == "w/a.wav");
  CHECK(name(sound + R"(, "offset": 0.5)") == "w/a.wav:0.5");
  CHECK(name(sound + R"(, "bytes": [0, 9])") == "w/a.wav:0");
  CHECK(name(sound + R"(, "bytes": [4, 9], "offset": 12.25)") == "w/a.wav:4:12.25");
  CHECK(name(sound + R"(, "offset": 1, "id": "u7")") == "u7");
  CHECK(name(sound + R"(, "offset": 1, "id": 7)") == "w/a.wav:1");
  CHECK(name(R"("features_filepath": "f.safetensors", "features_key": "k")") == "f.safetensors:k");
  CHECK(name(R"("image_filepath": "p.png", "region": [[9, 8], [3, 20], [30, 5]])") == "p.png:3,5");
}

// Which several threads read, in pieces.
TEST_CASE("a manifest of megabytes has its lines in their order", "[manifest]") {
  const std::string filling(1000, 'x');
  std::string content;
  constexpr int64_t lines = 5000;
  for (int64_t n = 1; n <= lines; ++n) {
    if (n % 7 != 0) content += str(R"({"audio_filepath": ")", n, R"(", "text": ")", filling, "\"}");
    content += n % 2 == 0 ? "\n" : "\r\n";
  }
  const Manifest m = parse_manifest(content, "m.jsonl");
  REQUIRE(m.entries.size() == lines - lines / 7);
  bool right = true;
  int64_t line = 0;
  for (const ManifestEntry& e : m.entries) {
    if (++line % 7 == 0) ++line;
    right = right && e.line == line && e.path_as_written == str(line) && e.text == filling;
  }
  CHECK(right);
  // Of two mistakes the first in the file is named, by its line.
  const auto broken = [&](int64_t n) { return content.find(str("\"", n, "\"")); };
  content[broken(4999)] = '!';
  CHECK_THROWS_WITH(parse_manifest(content, "m.jsonl"), Contains("m.jsonl:4999: is not valid"));
  content[broken(4013)] = '!';
  CHECK_THROWS_WITH(parse_manifest(content, "m.jsonl"), Contains("m.jsonl:4013: is not valid"));
}

TEST_CASE("deeply nested JSON does not exhaust the stack", "[manifest]") {
  const std::string deep(200000, '[');
  CHECK_THROWS_AS(parse_manifest("{\"audio_filepath\": \"a\", \"x\": " + deep, "m"), InputError);
}

TEST_CASE("a manifest that is written reads the same", "[manifest]") {
  const TemporaryFolder folder;
  ManifestEntry e;
  e.path_as_written = "w/\"quoted\" \xc3\xa9.wav";
  e.duration = 0.1;
  e.offset = 2;
  e.text = "zwei\n\"drei\"";
  e.target = {0.5f};
  e.frame_labels = {2, 0, 1};
  e.speaker = "anna";
  e.extra = "{\"rate\":1.25}";
  const std::string path = folder.path("m.jsonl");
  write_manifest(path, {e, e});
  const Manifest m = read_manifest(path);
  REQUIRE(m.entries.size() == 2);
  CHECK(m.entries[1].path == folder.path(e.path_as_written));
  CHECK(m.entries[1].duration == 0.1);
  CHECK(m.entries[1].offset == 2);
  CHECK(m.entries[1].text == e.text);
  CHECK(m.entries[1].target == e.target);
  CHECK(m.entries[1].frame_labels == e.frame_labels);
  CHECK(m.entries[1].speaker == "anna");
  CHECK(m.entries[1].extra == e.extra);
  CHECK_THROWS_WITH(write_manifest(folder.path("no/m.jsonl"), {e}),
                    Contains("m.jsonl: cannot be created"));
}

// Weights, classes and groups are named by a field.
TEST_CASE("the value of each field is there by its name", "[manifest]") {
  const std::string sound =
      R"({"audio_filepath":"a.wav","bytes":[4,9],"offset":0.5,"duration":1.25,"channel":1,)"
      R"("text":"x y","label":"no","target":[1.5,2.5],"labels":[3,1],"frame_labels":[0,2],)"
      R"("speaker":"anna","id":"u1","weight":2.5,"mine":{"a":1}})";
  const std::string image =
      R"({"image_filepath":"p.png","region":[1,2,30,40],"label":7,"target":[0.5],"speaker":3})";
  const std::string line = R"({"image_filepath":"p.png","region":[[1,2],[9,2],[5,8]],)"
                           R"("baseline":[[1,7],[9,7]],"speaker":"007"})";
  const std::string ready =
      R"({"features_filepath":"f.safetensors","features_key":"k","label":0,"text":""})";
  for (const std::string& text : {sound, image, line, ready}) {
    const ManifestEntry entry = parse_manifest(text, "m").entries.front();
    const Json all = Json::parse(text);
    CHECK(Json::parse(to_json_line(entry)).size() == all.size());
    for (const auto& [name, value] : all.members()) {
      INFO(name);
      const Json expected = name == "target" && value.size() == 1 ? value.at(size_t{0}) : value;
      CHECK(field_value(entry, name).dump() == expected.dump());
    }
    CHECK(field_value(entry, "none").is_null());
  }
  const ManifestEntry plain = parse_manifest(R"({"audio_filepath":"a.wav"})", "m").entries.front();
  CHECK(field_value(plain, "offset").dump() == "0.0");
  for (const char* name : {"duration", "label", "text", "speaker", "channel", "bytes"})
    CHECK(field_value(plain, name).is_null());
}

TEST_CASE("utterance keys follow what is written, not where it lies", "[manifest]") {
  const auto key = [](const std::string& line, const std::string& path) {
    return parse_manifest(line, path).entries[0].key();
  };
  const std::string a = "{\"audio_filepath\": \"a.wav\"}";
  CHECK(key(a, "/x/m.jsonl") == key(a, "/y/z.jsonl"));
  CHECK(key(a, "m") != key("{\"audio_filepath\": \"b.wav\"}", "m"));
  CHECK(key(a, "m") != key("{\"audio_filepath\": \"a.wav\", \"offset\": 1}", "m"));
  // Utterances of one file differ by their bytes, or by the names of their features.
  const auto of = [&](const std::string& more) {
    return key(R"({"features_filepath": "f", )" + more + "}", "m");
  };
  const std::set<uint64_t> keys = {of(R"("bytes": [0, 5])"), of(R"("bytes": [5, 5])"),
                                   of(R"("bytes": [10, 5])"), of(R"("features_key": "a")"),
                                   of(R"("features_key": "b")")};
  CHECK(keys.size() == 5);
}
