#include "engine/report/charts.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <regex>

#include "engine/report/svg.h"
#include "tests/support/support.h"

using namespace rondo;
using Catch::Contains;
using rondo::test::spit;

namespace {

// Set RONDO_PICTURES to a directory to look at them.
void keep(const std::string& name, const std::string& svg) {
  if (const char* dir = std::getenv("RONDO_PICTURES")) spit(std::filesystem::path(dir) / name, svg);
}

// Balanced elements and no stray markup: enough of XML to catch a broken picture.
void check_xml(const std::string& svg) {
  int depth = 0;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    REQUIRE(end != std::string::npos);
    REQUIRE(svg.find('<', at + 1) > end);
    if (svg[at + 1] == '/') {
      --depth;
    } else if (svg[end - 1] != '/') {
      ++depth;
    }
    REQUIRE(depth >= 0);
  }
  CHECK(depth == 0);
  CHECK_THAT(svg, !Contains("nan") && !Contains("inf\""));
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Series series(const char* name, int n, double scale, double (*f)(double)) {
  Series s;
  s.name = name;
  for (int i = 1; i <= n; ++i) {
    s.x.push_back(i * scale);
    s.y.push_back(f(i * scale));
  }
  return s;
}

LearningCurve example_curve() {
  LearningCurve c;
  c.title = "Spoken digits <fsdd> & more";
  c.loss = {
      series("training", 3000, 1,
             [](double x) { return 3 * std::exp(-x / 500) + 0.05 + 0.04 * std::sin(x * 1.7); }),
      series("validation", 15, 200, [](double x) { return 3 * std::exp(-x / 550) + 0.08; })};
  c.error_rates = {series("WER", 15, 200, [](double x) { return std::exp(-x / 400); }),
                   series("CER", 15, 200, [](double x) { return 0.6 * std::exp(-x / 300); })};
  return c;
}

struct ExampleAlignment {
  std::vector<float> posteriors, waveform, spectrogram;
  AlignmentPicture picture;

  ExampleAlignment() {
    const int frames = 150, classes = 12;
    const int peaks[] = {20, 45, 60, 92, 120};
    const int labels[] = {3, 7, 7, 0, 9};
    posteriors.assign(static_cast<size_t>(frames * classes), 0);
    for (int t = 0; t < frames; ++t) {
      float blank = 1;
      for (int k = 0; k < 5; ++k) {
        const auto d = static_cast<float>(t - peaks[k]);
        const float p = 0.97f * std::exp(-d * d / 6);
        posteriors[static_cast<size_t>(t * classes + labels[k] + 1)] += p;
        blank -= p;
      }
      posteriors[static_cast<size_t>(t * classes)] = std::max(blank, 0.0f);
    }
    for (int i = 0; i < 24000; ++i) {
      const float t = static_cast<float>(i) / 160;
      float envelope = 0.02f;
      for (int peak : peaks)
        envelope +=
            0.7f * std::exp(-(t - static_cast<float>(peak)) * (t - static_cast<float>(peak)) / 60);
      waveform.push_back(envelope * std::sin(static_cast<float>(i) * 0.3f));
    }
    for (int t = 0; t < 150; ++t) {
      for (int b = 0; b < 40; ++b) {
        float v = -12;
        for (int peak : peaks) {
          v += 10 * std::exp(-static_cast<float>((t - peak) * (t - peak)) / 70) *
               std::abs(std::cos(static_cast<float>(b + peak) * 0.3f));
        }
        spectrogram.push_back(v);
      }
    }
    picture.title = "3 7 7 0 9";
    picture.posteriors = posteriors;
    picture.frames = frames;
    picture.classes = classes;
    picture.waveform = waveform;
    picture.spectrogram = spectrogram;
    picture.spectrogram_frames = 150;
    picture.bins = 40;
    for (int k = 0; k < 5; ++k) {
      picture.labels.push_back(
          {std::to_string(labels[k]), labels[k] + 1, peaks[k] - 2, peaks[k] + 3});
    }
  }
};

}  // namespace

TEST_CASE("numbers and text in SVG", "[charts]") {
  CHECK(svg::number(1.005) == "1");
  CHECK(svg::number(-0.001) == "0");
  CHECK(svg::number(12.5) == "12.5");
  CHECK(svg::number(1e9) == "1000000000");
  CHECK(svg::escape("<a & \"b\"\x01>") == "&lt;a &amp; &quot;b&quot; &gt;");
  CHECK(svg::ticks(0, 1) == std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1});
  CHECK(svg::ticks(3, 3) == std::vector<double>{3});
  CHECK(svg::log_ticks(0.05, 3).size() == 6);
  for (double v : svg::log_ticks(1e-9, 1e9)) {
    CHECK(std::log10(v) == Approx(std::round(std::log10(v))).margin(1e-9));
  }
  CHECK(svg::tick_text(25000, 5000) == "25k");
  CHECK(svg::tick_text(2500000, 500000) == "2.5M");
  CHECK(svg::tick_text(0.05, 0.05) == "0.05");
  CHECK(svg::tick_text(0.5, 0.1) == "0.5");
  CHECK(svg::tick_text(3, 1) == "3");
}

TEST_CASE("a learning curve has both panels, axes and a legend", "[charts]") {
  const std::string s = learning_curve_svg(example_curve());
  keep("curve.svg", s);
  check_xml(s);
  CHECK(s == learning_curve_svg(example_curve()));
  CHECK_THAT(s, !Contains("-0"));
  CHECK_THAT(s, Contains("&lt;fsdd&gt; &amp; more") && Contains(">loss (log)<") &&
                    Contains(">error rate (log)<") && Contains(">updates<") &&
                    Contains(">training<") && Contains(">WER<") && Contains(">0.1%<") &&
                    Contains(">3000<") && Contains("prefers-color-scheme"));
  CHECK(count(s, "<polyline") == 5);  // the long series as measured and as a running mean
  CHECK(s.size() < 100000);           // 3000 points are thinned
}

TEST_CASE("learning curves without points, with one, and with values that are not finite",
          "[charts]") {
  LearningCurve c;
  CHECK_THAT(learning_curve_svg(c), Contains("no measurements"));
  c.loss = {{"training", {5}, {2.0}}};
  const std::string one = learning_curve_svg(c);
  check_xml(one);
  CHECK(count(one, "<circle") == 1);
  CHECK_THAT(one, !Contains("error rate"));
  c.loss = {{"training",
             {1, 2, 3, 4, 5},
             {2.0, std::nan(""), 1.0, std::numeric_limits<double>::infinity(), 0.0}}};
  const std::string broken = learning_curve_svg(c);
  check_xml(broken);
  CHECK(count(broken, ">×<") == 2);
  c.loss[0].y.assign(5, std::nan(""));
  check_xml(learning_curve_svg(c));
}

TEST_CASE("the end of error rates is seen, and rates of zero are", "[charts]") {
  constexpr double top = 54, ground = 54 + 220;
  LearningCurve c;
  c.error_rates = {{"WER", {1, 2, 3}, {1.0, 0.02, 0.01}}};
  const std::string fallen = learning_curve_svg(c);
  check_xml(fallen);
  // From the tick below 1 % to 100 % and a tenth, in logarithms.
  const auto at = [&](double v) {
    return svg::number(ground + std::log(v / 0.007) / std::log(1.1 / 0.007) * (top - ground));
  };
  CHECK_THAT(fallen, Contains(">error rate (log)<") && Contains(">1%<") && Contains(">2%<") &&
                         !Contains(">0%<") && Contains("," + at(1) + " ") &&
                         Contains("," + at(0.02) + " ") && Contains("," + at(0.01) + "\""));
  c.error_rates[0].y.back() = 0;
  const std::string zero = learning_curve_svg(c);
  check_xml(zero);
  CHECK_THAT(zero, Contains(">0%<") && Contains("," + svg::number(ground) + "\""));
  // What has not fallen yet is as well seen from zero.
  c.error_rates[0].y = {0.5, 0.2, 0.11};
  CHECK_THAT(learning_curve_svg(c), Contains(">error rate<") && Contains(">0%<"));
  c.error_rates[0].y = {0, 0, 0};
  check_xml(learning_curve_svg(c));
}

TEST_CASE("a fall that ends below 20 % has ticks where it ends", "[charts]") {
  LearningCurve c;
  c.error_rates = {{"WER", {1, 2, 3}, {0.7, 0.3, 0.12}}};
  const std::string fallen = learning_curve_svg(c);
  CHECK_THAT(fallen, Contains(">10%<") && Contains(">15%<") && Contains(">20%<"));
  c.error_rates[0].y = {1, 0.5, 0.19};
  CHECK_THAT(learning_curve_svg(c), Contains(">15%<") && Contains(">70%<") && Contains(">100%<"));
  // A number between two powers of ten is not rounded.
  c.error_rates[0].y = {0.08, 0.05, 0.015};
  CHECK_THAT(learning_curve_svg(c), Contains(">1.5%<") && Contains(">7%<"));
  CHECK(svg::log_tick_below(0.12) == Approx(0.1));
  CHECK(svg::log_tick_below(0.1) == Approx(0.07));
  CHECK(svg::log_tick_below(1.6) == Approx(1.5));
}

TEST_CASE("curves say their last values, apart from each other", "[charts]") {
  LearningCurve c;
  c.loss = {{"training", {1, 2, 3}, {2.0, 1.0, 0.4321}},
            {"validation", {1, 2, 3}, {2.0, 1.1, std::nan("")}}};
  c.error_rates = {{"WER", {1, 3}, {1.0, 0.1234}}, {"CER", {1, 3}, {0.9, 0.1233}}};
  const std::string s = learning_curve_svg(c);
  keep("ends.svg", s);
  CHECK_THAT(s, Contains(">0.432<") && Contains(">1.100<") && Contains(">12.3%<"));
  std::vector<double> heights;
  const std::regex end("y=\"([0-9.]+)\"[^>]* class=\"end f[23]\"");
  for (std::sregex_iterator at(s.begin(), s.end(), end), none; at != none; ++at)
    heights.push_back(std::stod((*at)[1]));
  REQUIRE(heights.size() == 2);
  CHECK(std::abs(heights[0] - heights[1]) >= 14);
}

TEST_CASE("the kept model's name and those of the curves do not overlap, wherever it is",
          "[charts]") {
  LearningCurve curve;
  for (const char* name : {"training", "validation"})
    curve.loss.push_back({name, {0, 100}, {2, 1}});
  for (int kept = 0; kept <= 100; ++kept) {
    curve.kept = kept;
    const std::string svg = learning_curve_svg(curve);
    // Letters of 14 pixels, as narrow pages have them.
    std::vector<std::pair<double, double>> taken;
    const std::regex label(
        "<text x=\"([0-9.]+)\" y=\"[0-9.]+\" text-anchor=\"(\\w+)\" "
        "class=\"label\">(kept model|training|validation)<");
    for (std::sregex_iterator i(svg.begin(), svg.end(), label), end; i != end; ++i) {
      const double at = std::stod((*i)[1]), length = 14.0 * static_cast<double>((*i)[3].length());
      taken.emplace_back((*i)[2] == "end" ? at - length : at, (*i)[2] == "end" ? at : at + length);
    }
    CAPTURE(kept);
    REQUIRE(taken.size() == 3);
    std::sort(taken.begin(), taken.end());
    CHECK(taken[0].second <= taken[1].first);
    CHECK(taken[1].second <= taken[2].first);
  }
}

TEST_CASE("the kept model is marked in both panels", "[charts]") {
  TrainingLog log;
  const std::vector<double> steps = {10, 20, 30, 40};
  log.series["validation.loss"] = {"", steps, {4, 3, 2, 2.5}};
  log.series["validation.wer"] = {"", steps, {1, 0.5, 0.2, 0.3}};
  CHECK(!learning_curve_of(log, "run").kept);
  CHECK_THAT(learning_curve_svg(learning_curve_of(log, "run")), !Contains("kept model"));
  log.series["validation.best"] = {"", steps, {1, 0, 1, 0}};
  const LearningCurve c = learning_curve_of(log, "run");
  CHECK(c.kept == 30);
  const std::string s = learning_curve_svg(c);
  keep("kept.svg", s);
  check_xml(s);
  CHECK(count(s, ">kept model<") == 2);
  // Two thirds of the way from 84 to 680.
  CHECK(count(s, "<line x1=\"481.33\"") >= 2);
}

TEST_CASE("texts can be read on what they stand on, on light and dark pages", "[charts]") {
  const std::string s = svg::Picture(10, 10, "").finish();
  const size_t dark = s.find("@media(prefers-color-scheme:dark)");
  REQUIRE(dark != std::string::npos);
  // The relative luminance of what a class is filled with, after WCAG 2.
  const auto luminance = [](const std::string& style, const std::string& css) {
    std::smatch colour;
    const std::regex rule("\\." + css + "(?:,\\.[a-z]+)*\\{fill:#([0-9a-f]+)");
    if (!std::regex_search(style, colour, rule)) FAIL("no colour of " << css);
    std::string hex = colour[1];
    if (hex.size() == 3) hex = {hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]};
    double sum = 0;
    const double weights[] = {0.2126, 0.7152, 0.0722};
    for (size_t i = 0; i < 3; ++i) {
      const double c = std::stoi(hex.substr(2 * i, 2), nullptr, 16) / 255.0;
      sum += weights[i] * (c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
  };
  for (const std::string& style : {s.substr(0, dark), s.substr(dark)}) {
    const auto contrast = [&](const std::string& one, const std::string& other) {
      const double a = luminance(style, one), b = luminance(style, other);
      return (std::max(a, b) + 0.05) / (std::min(a, b) + 0.05);
    };
    for (const char* fill : {"f0", "f1", "f2", "f3"}) {
      CHECK(contrast("on", fill) > 3.5);
      CHECK(contrast("bg", fill) > 3.5);  // the values at the ends of curves
    }
    for (const char* text : {"label", "note"}) CHECK(contrast("bg", text) > 4.5);
  }
}

TEST_CASE("thinning keeps a spike", "[charts]") {
  LearningCurve c;
  c.loss = {series("training", 50000, 1, [](double x) { return x == 31234 ? 9.0 : 1.0; })};
  const std::string with = learning_curve_svg(c);
  CHECK(with.size() < 60000);
  // The axis ends 5 % above the spike, so the spike lies 1/21 of the panel below its top.
  CHECK_THAT(with, Contains("," + svg::number(54 + 220.0 * (1 - 1 / 1.05))));
}

TEST_CASE("a curve straight from a log", "[charts]") {
  TrainingLog log;
  log.series["step.loss"] = {"step.loss", {1, 2}, {2, 1}};
  log.series["validation.wer"] = {"validation.wer", {2}, {0.5}};
  const LearningCurve c = learning_curve_of(log, "run");
  REQUIRE(c.loss.size() == 1);
  CHECK(c.loss[0].name == "training");
  REQUIRE(c.error_rates.size() == 1);
  CHECK(c.error_rates[0].name == "WER");
  log.series = {{"validation.error", {"validation.error", {2}, {0.5}}}};
  CHECK(learning_curve_of(log, "run").error_rates.at(0).name == "error");
}

TEST_CASE("an alignment is drawn over the image of a line", "[charts]") {
  const ExampleAlignment e;
  // Its pixels are square, and its left edge is behind that of the first frame, which is padding.
  const std::vector<unsigned char> grey(100 * 20, 7);
  AlignmentPicture line = e.picture;
  line.line = grey;
  line.line_columns = 100;
  line.line_rows = 20;
  line.unit = "pixels";
  line.frame_length = 120.0 / line.frames;
  line.begin = -10;
  line.waveform = line.spectrogram = {};
  const std::string over_line = alignment_svg(line);
  check_xml(over_line);
  std::smatch drawn;
  REQUIRE(std::regex_search(
      over_line, drawn,
      std::regex("<image x=\"([0-9.]+)\" y=\"[0-9.]+\" width=\"([0-9.]+)\" height=\"([0-9.]+)\"")));
  CHECK(std::stod(drawn[2]) == Approx(5 * std::stod(drawn[3])).epsilon(1e-3));
  CHECK(std::stod(drawn[1]) == Approx(72 + std::stod(drawn[2]) / 10).epsilon(1e-3));
  CHECK(over_line.find(">pixels<") != std::string::npos);
  line.line_rows = 21;
  CHECK_THROWS_WITH(alignment_svg(line), Contains("a line of 100 x 21 has 2000 values"));
}

TEST_CASE("an alignment shows sound, spectrum, posteriors, labels and time", "[charts]") {
  ExampleAlignment e;
  const std::string s = alignment_svg(e.picture);
  keep("alignment.svg", s);
  check_xml(s);
  CHECK(count(s, "<polyline") == 5);  // blank and four different labels
  CHECK(count(s, "<image") == 1);
  CHECK(count(s, "<polygon") == 1);
  CHECK(count(s, "band\"/>") == 5);
  CHECK_THAT(s, Contains(">seconds<") && Contains(">0.8<") && Contains("iVBORw0KGgo"));

  e.picture.waveform = {};
  e.picture.spectrogram = {};
  e.picture.labels.clear();
  const std::string bare = alignment_svg(e.picture);
  check_xml(bare);
  CHECK(count(bare, "<image") == 0);
  CHECK(count(bare, "<polyline") == 1);

  e.posteriors[5] = std::nanf("");
  check_xml(alignment_svg(e.picture));
}

// The places of the texts of a class, by their height in the picture.
std::map<double, std::vector<std::pair<double, std::string>>> texts_of(const std::string& svg,
                                                                       const std::string& css) {
  std::map<double, std::vector<std::pair<double, std::string>>> rows;
  const std::regex text("<text x=\"([-0-9.]+)\" y=\"([0-9.]+)\"[^>]* class=\"" + css +
                        "\">([^<]*)<");
  for (std::sregex_iterator at(svg.begin(), svg.end(), text), none; at != none; ++at)
    rows[std::stod((*at)[2])].emplace_back(std::stod((*at)[1]), (*at)[3]);
  return rows;
}

TEST_CASE("an alignment of many letters is in rows, and its texts are apart", "[charts]") {
  // Words of four letters, 15 letters a second for 20 seconds in frames of 30 ms, those of each
  // word in four frames one after the other, as CTC models have them.
  ExampleAlignment e;
  AlignmentPicture& p = e.picture;
  p.frames = 667;
  p.frame_length = 0.03;
  e.posteriors.assign(static_cast<size_t>(p.frames * p.classes), 0);
  p.posteriors = e.posteriors;
  p.labels.clear();
  const double step = 2 / 0.9;  // frames between letters of equal distance
  std::string letters, words;
  for (int w = 0; w < 75; ++w) {
    const int first = static_cast<int>(w * 4 * step);
    std::string word;
    for (int k = 0; k < 4; ++k) {
      const int at = w % 2 ? first + k : first + static_cast<int>(k * step);
      word += static_cast<char>('a' + (w + k) % 11);
      p.labels.push_back({word.substr(word.size() - 1), 1 + (w + k) % 11, at, at + 1});
    }
    letters += word;
    words += word + " ";
    p.words.push_back({word, p.labels[p.labels.size() - 4].begin, p.labels.back().end});
  }
  const std::string s = alignment_svg(p);
  keep("dense.svg", s);
  check_xml(s);
  const auto letter_rows = texts_of(s, "strong letter"), word_rows = texts_of(s, "label word");
  REQUIRE(letter_rows.size() >= 3);
  REQUIRE(letter_rows.size() == word_rows.size());
  CHECK(count(s, ">spectrum<") == letter_rows.size());
  CHECK(count(s, "<image") == letter_rows.size());
  CHECK_THAT(s, Contains("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1"));
  std::string shown_letters, shown_words;
  const auto take = [](const auto& row, double letter_width, std::string& all, const char* after) {
    double end = 0;
    for (const auto& [x, text] : row) {
      const double half = letter_width * static_cast<double>(text.size()) / 2;
      CHECK(x - half >= end);
      CHECK(x + half < 1120);
      end = x + half;
      all += text + after;
    }
  };
  // Letters in bold are at most 10 pixels wide, those of words 8.
  for (const auto& [y, row] : letter_rows) take(row, 10, shown_letters, "");
  for (const auto& [y, row] : word_rows) {
    take(row, 8, shown_words, " ");
    // No word is cut by the end of a row: its letters are beneath it.
    const auto beneath = letter_rows.upper_bound(y);
    REQUIRE(beneath != letter_rows.end());
    CHECK(beneath->first - y < 30);
    CHECK(beneath->second.size() == 4 * row.size());
  }
  CHECK(shown_letters == letters);
  CHECK(shown_words == words);
}

TEST_CASE("one text far wider than its frames stands within the picture", "[charts]") {
  ExampleAlignment e;
  e.picture.words = {{"Donaudampfschifffahrt", 0, 3}, {"<b>&", 146, 150}};
  const std::string s = alignment_svg(e.picture);
  check_xml(s);
  const auto words = texts_of(s, "label word");
  REQUIRE(words.size() == 1);
  CHECK(words.begin()->second.at(0).first > 90);
  CHECK(words.begin()->second.at(1).second == "&lt;b&gt;&amp;");
}

TEST_CASE("alignments whose sizes disagree are refused", "[charts]") {
  ExampleAlignment e;
  AlignmentPicture p = e.picture;
  p.frames = 151;
  CHECK_THROWS_AS(alignment_svg(p), Error);
  p = e.picture;
  p.bins = 39;
  CHECK_THROWS_AS(alignment_svg(p), Error);
  p = e.picture;
  p.labels[0].end = 1000;
  CHECK_THROWS_AS(alignment_svg(p), Error);
  p = e.picture;
  p.words = {{"a", 7, 7}};
  CHECK_THROWS_AS(alignment_svg(p), Error);
  p = e.picture;
  p.blank = 12;
  CHECK_THROWS_AS(alignment_svg(p), Error);
}
