// Tesseract's model files: what a network that was read computes, beside the same layers written
// out here as the file has them, and what is said of files that cannot be used.
// tests/cli/tesseract.py compares with Tesseract itself, where that is installed.
#include <algorithm>
#include <cmath>
#include <random>

#include "engine/train/model/tesseract_model.h"
#include "engine/train/recognition/recognizer.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"
#include "tests/train/tesseract_file.h"

using namespace rondo;

namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

ForeignModel read(const std::string& bytes) {
  return read_tesseract_model(std::as_bytes(std::span(bytes)), "x.traineddata");
}

std::string refusal(TesseractFile file) {
  try {
    read(file.bytes());
  } catch (const InputError& e) {
    const std::string text = e.what();
    CHECK(text.starts_with("x.traineddata"));
    return text.substr(13);
  }
  return "no refusal";
}

double weighted(const TesseractFile::Matrix& m, int row, const Row& x) {
  double sum = m.at(row, m.cols - 1);
  for (int i = 0; i + 1 < m.cols; ++i) sum += m.at(row, i) * x[static_cast<size_t>(i)];
  return sum;
}

// The outputs of each step. Gates: cell input, input, forget, output.
Rows lstm(const TesseractFile& f, const std::string& name, const Rows& x) {
  const auto cells = static_cast<size_t>(f.matrices.at(name + "0").rows);
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  Row h(cells), c(cells);
  Rows out;
  for (const Row& frame : x) {
    Row all = frame;
    all.insert(all.end(), h.begin(), h.end());
    for (size_t i = 0; i < cells; ++i) {
      double gates[4];
      for (int g = 0; g < 4; ++g)
        gates[g] = weighted(f.matrices.at(name + std::to_string(g)), static_cast<int>(i), all);
      c[i] = sigmoid(gates[2]) * c[i] + sigmoid(gates[1]) * std::tanh(gates[0]);
      h[i] = sigmoid(gates[3]) * std::tanh(c[i]);
    }
    out.push_back(h);
  }
  return out;
}

Rows backwards(Rows rows) {
  std::reverse(rows.begin(), rows.end());
  return rows;
}

// The convolution's output at a pixel; what lies outside is zero.
Row convolved(const TesseractFile& f, const Matrix& line, int64_t x, int64_t y) {
  Row under;
  for (int64_t i = x - f.across; i <= x + f.across; ++i) {
    for (int64_t j = y - f.down; j <= y + f.down; ++j) {
      const bool inside = i >= 0 && i < line.frames && j >= 0 && j < f.height;
      under.push_back(inside ? line.row(i)[j] : 0);
    }
  }
  Row out;
  for (int c = 0; c < f.channels; ++c)
    out.push_back(std::tanh(weighted(f.matrices.at("convolution"), c, under)));
  return out;
}

// What stands under the pixels is largest in each channel, from top to bottom, then its summary.
Rows columns(const TesseractFile& f, const Matrix& line) {
  Rows out;
  for (int64_t x = 0; x + f.pool_along <= line.frames; x += f.pool_along) {
    Rows pooled;
    for (int64_t y = 0; y < f.height; y += f.pool_down) {
      Row most(static_cast<size_t>(f.channels), -2);
      for (int64_t i = x; i < x + f.pool_along; ++i) {
        for (int64_t j = y; j < y + f.pool_down; ++j) {
          const Row at = convolved(f, line, i, j);
          for (size_t c = 0; c < most.size(); ++c) most[c] = std::max(most[c], at[c]);
        }
      }
      pooled.push_back(most);
    }
    out.push_back(lstm(f, "summary", pooled).back());
  }
  return out;
}

// The logits of Tesseract's classes.
Rows reference(const TesseractFile& f, const Matrix& line) {
  Rows x = columns(f, line);
  if (f.both_ways) {
    x = lstm(f, "first", x);
    const Rows forward = lstm(f, "forward", x);
    const Rows backward = backwards(lstm(f, "backward", backwards(x)));
    for (size_t t = 0; t < x.size(); ++t) {
      x[t] = forward[t];
      x[t].insert(x[t].end(), backward[t].begin(), backward[t].end());
    }
  } else {
    x = backwards(lstm(f, "backward", backwards(lstm(f, "forward", x))));
  }
  Rows out;
  for (const Row& frame : x) {
    Row logits;
    for (int c = 0; c < f.classes; ++c)
      logits.push_back(weighted(f.matrices.at("softmax"), c, frame));
    out.push_back(logits);
  }
  return out;
}

Recognizer recognizer(const ForeignModel& model, const TemporaryFolder& folder) {
  std::vector<TensorToWrite> tensors;
  for (const auto& t : model.tensors)
    tensors.push_back({t.name, DType::f32, t.shape, nullptr,
                       [bytes = std::as_bytes(std::span(t.values))](uint64_t at, auto into) {
                         std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(at), into.size(),
                                     into.begin());
                       }});
  save_model(folder.path("model"), tensors, model.description);
  return Recognizer(folder.path("model"), DeviceId{}, 1);
}

}  // namespace

TEST_CASE("a network of Tesseract's computes what its layers say") {
  TesseractFile file;
  file.in_bytes = GENERATE(false, true);
  file.both_ways = GENERATE(false, true);
  const TemporaryFolder folder;
  const ForeignModel model = read(file.bytes());
  // Without a row for the mark of joined characters; in normal form C.
  CHECK(model.description.alphabet == std::vector<std::string>{" ", "b", "ä"});
  CHECK(model.description.sizes.outputs == 4);

  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0, 1);
  Matrix line(20, TesseractFile::height);
  for (float& v : line.data) v = uniform(random);
  const Transcript found = recognizer(model, folder).transcribe(line);
  for (float& v : line.data) v = 1 - 2 * v;  // ours is ink; theirs is 1 for paper and -1 for ink
  const Rows expected = reference(file, line);
  REQUIRE(expected.size() == 6);  // of 20 columns: two fill no window
  REQUIRE(found.logits.size() == expected.size() * 4);
  const size_t classes[] = {3, 0, 1, 2};  // of Tesseract's: ours begin with the blank
  for (size_t t = 0; t < expected.size(); ++t) {
    for (size_t c = 0; c < 4; ++c) {
      INFO("frame " << t << ", label " << c << ": " << found.logits[t * 4 + c] << " and "
                    << expected[t][classes[c]]);
      const double difference = std::abs(found.logits[t * 4 + c] - expected[t][classes[c]]);
      CHECK_FALSE(!(difference <= 1e-5));
    }
  }
}

TEST_CASE("a network of Tesseract's for a script from right to left is mirrored") {
  TesseractFile file;
  file.characters = "4\nNULL 0 Common 0\n\u05d0 3 Hebrew 1 0\nJoined 7 Hebrew 2\n\u05d1 3\n";
  file.both_ways = GENERATE(false, true);
  const TemporaryFolder folder;
  const ForeignModel model = read(file.bytes());
  CHECK(model.description.config.features.direction == LineDirection::leftwards);
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0, 1);
  Matrix line(21, TesseractFile::height), mirrored(21, TesseractFile::height);  // whole windows
  for (float& v : line.data) v = uniform(random);
  for (int64_t x = 0; x < 21; ++x)
    std::copy_n(line.row(x), TesseractFile::height, mirrored.row(20 - x));
  const Transcript found = recognizer(model, folder).transcribe(mirrored);
  for (float& v : line.data) v = 1 - 2 * v;
  const Rows expected = backwards(reference(file, line));
  REQUIRE(found.logits.size() == expected.size() * 4);
  const size_t classes[] = {3, 0, 1, 2};
  for (size_t i = 0; i < found.logits.size(); ++i) {
    const double difference = std::abs(found.logits[i] - expected[i / 4][classes[i % 4]]);
    CHECK_FALSE(!(difference <= 1e-5));
  }
}

TEST_CASE("characters of Tesseract's in several classes have one for each code point") {
  // Ka, and ka with its virama, in two classes of which the first is ka's own.
  TesseractFile file;
  file.characters = "4\nNULL 0 Common 0\n\u0915\u094d 3 Devanagari 1 0\nJoined 7\n\u0915 3\n";
  file.codes = {{0}, {1, 2}, {3}, {1}};
  CHECK(read(file.bytes()).description.alphabet ==
        std::vector<std::string>{" ", "\u0915", "\u094d"});
  // One class may write several code points, if readers see them as one character.
  file.codes = {{0}, {1}, {3}, {2}};
  CHECK(read(file.bytes()).description.alphabet ==
        std::vector<std::string>{" ", "\u0915\u094d", "\u0915"});
  // The marks of joined and broken characters may have classes of their own.
  file.characters = "4\nNULL 0 Common 0\nJoined 7 Latin 2\n|Broken|0|1 15 Common 2\na 3 Latin\n";
  file.codes = {{0}, {1}, {3}, {2}};
  const ForeignModel model = read(file.bytes());
  CHECK(model.description.alphabet == std::vector<std::string>{" ", "a"});
  CHECK(model.description.sizes.outputs == 3);
}

TEST_CASE("files of Tesseract's that cannot be used are refused by their names") {
  TesseractFile f;
  f.codes[1] = {1, 2};
  CHECK(refusal(f) ==
        ": it writes 'b' in 2 classes, one after another; expected one for each of its 1 code "
        "points");
  f = {};
  f.codes[1] = {2};
  CHECK(refusal(f) == ": it has two characters for the class 2, the second is 'ä'");
  f.codes[1] = {4};
  CHECK(refusal(f).ends_with("found 4 as a code, expected 0 to 3"));
  f.codes.pop_back();
  CHECK(refusal(f).find("it has 3 codes for 4 characters") != std::string::npos);
  f = {};
  f.blank = 4;
  CHECK(refusal(f) == ": the class of no character is 4, expected 0 to 3");
  f = {};
  f.characters.replace(f.characters.find("b 3"), 1, "ab");
  CHECK(refusal(f).starts_with(": its characters cannot be an alphabet: "));
  f = {};
  f.characters.replace(f.characters.find("\xcc\x88"), 2, "\xcc\xcc");
  CHECK(refusal(f).starts_with(": its characters cannot be an alphabet: text is not valid UTF-8"));
  f = {};
  f.characters[0] = '5';
  CHECK(refusal(f) == ": its characters are 4 and said to be '5'");
  f = {};
  f.last = "Relu";
  CHECK(refusal(f) == ": its network ends with 'Relu', expected a softmax of characters");
  f.last = "LSTMSoftmax";
  CHECK(refusal(f).ends_with("found a layer of the kind 'LSTMSoftmax', which is not read"));
  f = {};
  f.in_training = true;
  CHECK(refusal(f).find("found a layer that is in training") != std::string::npos);
  const std::string whole = TesseractFile().bytes();
  CHECK_THROWS_WITH(read(whole.substr(0, 40)),
                    "x.traineddata (a model of Tesseract's), byte 36: found 4 bytes, expected 8 "
                    "more, for a component's place");
  CHECK_THROWS_WITH(read(whole.substr(0, 1000)), Catch::Contains("(its network), byte"));
  std::string old = whole;
  for (size_t i = 0; i < 8; ++i) old[4 + 17 * 8 + i] = '\xff';
  CHECK_THROWS_WITH(read(old), Catch::StartsWith("x.traineddata: has no network of an LSTM"));
}
