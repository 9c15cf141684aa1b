// Data sets of the images of lines: what they become, and what is found before training.
#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "engine/text/alphabet.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

struct Lines {
  // Upright strokes on paper.
  void image(const std::string& name, int32_t width, int32_t height) const {
    GreyImage g(width, height);
    for (int32_t y = 0; y < height; ++y)
      for (int32_t x = 0; x < width; ++x)
        g.row(y)[x] = x % 10 < 3 && y > height / 4 && y < height * 3 / 4 ? 0 : 255;
    data::write_whole_file(folder.path(name), make_png(g));
  }
  ManifestDataset open(const std::string& lines) const {
    return ManifestDataset(read_manifest(folder.write("m.jsonl", lines)), options,
                           {nullptr, &images}, &alphabet);
  }

  TemporaryFolder folder;
  ImageFileReader images;
  Alphabet alphabet{{"a", "b"}};
  DatasetOptions options;
};

}  // namespace

TEST_CASE("lines become as many frames as their images are wide, in every epoch", "[dataset]") {
  Lines l;
  l.image("a.png", 200, 40);
  l.image("page.png", 300, 100);
  l.options.line.height = 20;
  l.options.line.padding = 3;
  l.options.distort.probability = 1;
  l.options.distort.stretch = 0.2f;
  const std::string whole = R"({"image_filepath": "a.png", "text": "ab"})";
  const std::string part =
      R"({"image_filepath": "page.png", "text": "b", "region": [250, 10, 90, 40]})";
  const ManifestDataset d = l.open(whole + "\n" + part + "\n");
  REQUIRE(d.size() == 2);
  CHECK(d.feature_dim() == 20);
  CHECK(d.raw_features(0).frames == 100 + 6);
  CHECK(d.raw_features(1).frames == 25 + 6);  // 50 x 40 pixels of it are on the page
  CHECK((d.seconds(0) == 0 && d.rates().empty()));
  std::set<int32_t> frames;
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    frames.insert(d.frames(0, epoch));
    if (epoch < 5) {
      for (const int64_t i : {0, 1}) {
        const Example e = d.load(i, epoch);
        CHECK(e.features.frames == d.frames(i, epoch));
        CHECK(e.features == d.distorted_line(i, epoch));
      }
    }
  }
  CHECK(*frames.begin() >= 80 + 6);
  CHECK(*frames.begin() <= 82 + 6);
  CHECK(*frames.rbegin() <= 120 + 6);
  CHECK(*frames.rbegin() >= 118 + 6);
  // The widest must be allowed, and the narrowest hold the text.
  l.options.max_frames = 126;
  CHECK(l.open(whole).size() == 1);
  l.options.max_frames = 125;
  CHECK_THROWS_WITH(l.open(whole), Contains("a.png: has 126 frames, at most 125 are allowed"));
  l.options.max_frames = 0;
  l.options.output_frames = [](int64_t n) { return n == 86 ? 1 : 100; };
  CHECK_THROWS_WITH(l.open(whole), Contains("its labels need 2 frames of the network's output, "
                                            "the image gives 1"));
}

namespace {

class CountingReader final : public ImageReader {
 public:
  explicit CountingReader(const ImageReader& reader) : reader_(reader) {}
  ImageInfo info(const FilePart& file) const override { return reader_.info(file); }
  GreyImage read(const FilePart& file) const override {
    ++decoded;
    return reader_.read(file);
  }
  mutable std::atomic<int> decoded = 0;

 private:
  const ImageReader& reader_;
};

}  // namespace

TEST_CASE("an image is decoded once for its size and its first use", "[dataset]") {
  Lines l;
  l.image("a.png", 200, 40);
  l.image("page.png", 300, 100);
  l.options.threads = 2;
  const Manifest manifest =
      read_manifest(l.folder.write("m.jsonl", R"({"image_filepath": "a.png", "text": "ab"}
{"image_filepath": "page.png", "text": "b", "region": [50, 10, 200, 40]}
{"image_filepath": "page.png", "text": "b", "region": [50, 10, 200, 40]}
)"));
  for (const bool by_ink : {false, true}) {
    CAPTURE(by_ink);
    l.options.line.centre = by_ink;
    l.options.distort.noise = 0.1;
    const CountingReader reader(l.images);
    const ManifestDataset d(manifest, l.options, {nullptr, &reader}, &l.alphabet);
    REQUIRE(d.size() == 3);
    CHECK(reader.decoded == (by_ink ? 3 : 0));
    std::vector<Matrix> raw, first;
    if (by_ink) {  // as for statistics of all data, before they are used
      for (int64_t i = 0; i < d.size(); ++i) raw.push_back(d.raw_features(i));
    }
    for (int64_t i = 0; i < d.size(); ++i) first.push_back(d.load(i, 1).features);
    CHECK(reader.decoded == 3);
    for (int64_t i = 0; i < d.size(); ++i) {
      CHECK(d.load(i, 1).features == first[static_cast<size_t>(i)]);
      if (by_ink) CHECK(d.raw_features(i) == raw[static_cast<size_t>(i)]);
    }
    CHECK(reader.decoded == (by_ink ? 9 : 6));
    // What has changed is told all the same.
    l.image("a.png", 200, 60);
    CHECK_THROWS_WITH(d.load(0, 2), Contains("a.png: has changed since training began"));
    l.image("a.png", 200, 40);
  }
}

TEST_CASE("images that lie in one archive are read each from its own bytes", "[dataset]") {
  Lines l;
  l.options.line.height = 20;
  // All of one size, so that one taken for another would go unnoticed.
  std::string archive = "what an archive begins with", whole, parts;
  for (const int32_t step : {7, 10, 13}) {
    GreyImage g(120, 40);
    for (int32_t y = 0; y < g.height; ++y)
      for (int32_t x = 0; x < g.width; ++x) g.row(y)[x] = x % step < 3 && y > 8 && y < 30 ? 0 : 255;
    const std::string name = str(step, ".png"), png = make_png(g);
    data::write_whole_file(l.folder.path(name), png);
    // As it is, and two lines of it: the second finds its page kept.
    for (const char* region :
         {"", R"(, "region": [0, 0, 100, 40])", R"(, "region": [9, 0, 90, 40])"}) {
      const std::string more = str(R"(, "text": "ab")", region, "}\n");
      whole += str(R"({"image_filepath": ")", name, "\"", more);
      parts += str(R"({"image_filepath": "lines.tar", "bytes": [)", archive.size(), ", ",
                   png.size(), "]", more);
    }
    archive += png + "\n";
  }
  data::write_whole_file(l.folder.path("lines.tar"), archive);
  const ManifestDataset files = l.open(whole), inside = l.open(parts);
  REQUIRE((files.size() == 9 && inside.size() == 9));
  std::set<uint64_t> keys;
  for (int64_t i = 0; i < inside.size(); ++i) {
    INFO(i);
    CHECK(inside.load(i, 0).features == files.load(i, 0).features);
    keys.insert(inside.key(i));
  }
  CHECK(keys.size() == 9);
}

TEST_CASE("a line's hash is of its baseline too, unless that is not read", "[dataset]") {
  Lines l;
  l.image("page.png", 300, 100);
  const auto hash = [&](const std::string& baseline) {
    return l
        .open(R"({"image_filepath": "page.png", "text": "b", "region": [20, 10, 200, 60])" +
              baseline + "}")
        .content_hash(0);
  };
  // Each as long as the others, of which the line has its size.
  const std::vector<std::string> baselines = {"", R"(, "baseline": [[20, 50], [220, 50]])",
                                              R"(, "baseline": [[20, 52], [220, 52]])",
                                              R"(, "baseline": [[20, 50], [120, 50], [220, 50]])"};
  std::set<uint64_t> hashes;
  for (const std::string& baseline : baselines) hashes.insert(hash(baseline));
  CHECK(hashes.size() == baselines.size());
  CHECK(hash(baselines[1]) == hash(baselines[1]));
  l.options.line.direction = LineDirection::downwards;
  CHECK(hash(baselines[1]) == hash(""));
}

TEST_CASE("a line's image that is gone, changed or no line is told by name", "[dataset]") {
  Lines l;
  l.image("a.png", 200, 40);
  l.image("wide.png", 60000, 20);
  l.options.bad = BadUtterances::skip;
  const auto line = [](const std::string& name) {
    return R"({"image_filepath": ")" + name + R"(", "text": "a"})" + "\n";
  };
  const ManifestDataset d = l.open(line("gone.png") + line("wide.png") + line("a.png"));
  REQUIRE((d.size() == 1 && d.problems().size() == 2));
  CHECK_THAT(d.problems()[0].what, Contains("gone.png: cannot be opened"));
  CHECK_THAT(d.problems()[1].what, Contains("wide.png: is 60000 x 20 pixels"));
  CHECK(d.name(0).ends_with("m.jsonl:3"));
  const uint64_t before = d.content_hash(0);
  l.image("a.png", 200, 41);
  CHECK_THROWS_WITH(d.load(0, 0), Contains("m.jsonl:3: ") && Contains("a.png: has changed") &&
                                      Contains("now 200 x 41 pixels"));
  CHECK(l.open(line("gone.png") + line("wide.png") + line("a.png")).content_hash(0) != before);
  CHECK_THROWS_WITH(
      ManifestDataset(read_manifest(l.folder.path("m.jsonl")), l.options, nullptr, &l.alphabet),
      Contains("this program cannot read images"));
}
