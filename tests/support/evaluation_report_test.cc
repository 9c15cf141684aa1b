// The page of an evaluation: engine/report/evaluation_report.h and html.h.
#include "engine/report/evaluation_report.h"

#include <cmath>
#include <cstdlib>

#include "engine/report/html.h"
#include "tests/support/support.h"

using namespace rondo;
using namespace rondo::report;
using Catch::Contains;

namespace {

const std::string hostile = "<script>alert('x')</script> \"&amp; \x01\xff\x7f\xc2\x85";
const std::string harmless =
    "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &quot;&amp;amp; "
    "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd";

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Set RONDO_PICTURES to a directory to look at it.
void keep_page(const std::string& name, const std::string& page) {
  if (const char* dir = std::getenv("RONDO_PICTURES"))
    rondo::test::spit(std::filesystem::path(dir) / name, page);
}

// Each element is closed by its own name; nothing comes from outside or runs.
void check_page(const std::string& page) {
  std::vector<std::string> open;
  for (size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const size_t end = page.find('>', at);
    REQUIRE(end != std::string::npos);
    std::string name = page.substr(at + 1, page.find_first_of(" >/", at + 2) - at - 1);
    if (name == "!DOCTYPE" || name == "meta" || name == "img" || page[end - 1] == '/') continue;
    if (name[0] != '/') {
      open.push_back(name);
      continue;
    }
    REQUIRE(!open.empty());
    REQUIRE(open.back() == name.substr(1));
    open.pop_back();
  }
  CHECK(open.empty());
  // What is embedded is part of the page.
  CHECK(count(page, "src=") == count(page, "src=\"data:"));
  CHECK_THAT(page, !Contains("<script") && !Contains("href=") && !Contains("url(") &&
                       !Contains("@import") && !Contains("nan%"));
  for (const unsigned char c : page) {
    if (c < 0x20 && c != '\n') FAIL("control character " << int{c});
  }
}

EvaluationPage example() {
  EvaluationPage page;
  page.title = "Evaluation of " + hostile;
  page.facts = {{"model", hostile}};
  page.remarks = {hostile};
  page.loss = 0.5;
  page.curve = LearningCurve{hostile, "updates", {{"training", {1, 2}, {3, 1}}}, {}};
  Transcription t;
  t.all = {"all", 12, {100, 3, 2, 1}, {400, 6, 5, 4}};
  t.wrong_utterances = 4;
  t.wer_interval = Interval{0.021, 0.103};
  t.interval_method = hostile;
  t.tables = {{"Speakers",
               "speaker",
               {{hostile, 5, {50, 2, 0, 0}, {200, 3, 0, 0}}, {"b", 7, {0, 0, 1, 0}, {}}}},
              {"Nobody", "group", {}}};
  t.words = {
      {{"three", "tree", 2}, {hostile, "b", 1}}, {{"", "uh", 2}}, {{"one", "", 1}}, {0, 5, 2, 1}};
  t.characters = {{{"e", "a", 6}}, {}, {}, {0, 6, 0, 0}};
  t.worst = {
      {hostile,
       "ann, 1.20 s",
       {4, 1, 1, 1},
       {17, 1, 1, 3},
       {{'=', "se<ven", "se<ven"}, {'s', "three", "tree"}, {'i', "", hostile}, {'d', "one", ""}},
       {{'=', "t", "t"}, {'d', "h", ""}, {'s', "r", "b"}, {'d', " ", ""}, {'=', "e", "e"}}}};
  page.transcription = t;
  return page;
}

}  // namespace

TEST_CASE("text of HTML is data", "[report]") {
  CHECK(html_text(hostile) == harmless);
  CHECK(html_text("a\tb\r\nc") == "a b  c");
  CHECK(html_text("\xc3\xa9\xe4\xb8\xad\xf0\x90\x8d\x88 \xc2\xa0") ==
        "\xc3\xa9\xe4\xb8\xad\xf0\x90\x8d\x88 \xc2\xa0");
  // Each byte of what is no UTF-8: cut short, overlong, a surrogate, too large.
  const std::string bad = "\xef\xbf\xbd";
  CHECK(html_text("\xc3") == bad);
  CHECK(html_text("\xe4\xb8<") == bad + bad + "&lt;");
  CHECK(html_text("\xc0\xaf") == bad + bad);
  CHECK(html_text("\xe0\x80\xaf") == bad + bad + bad);
  CHECK(html_text("\xed\xa0\x80") == bad + bad + bad);
  CHECK(html_text("\xf4\x90\x80\x80") == bad + bad + bad + bad);
}

TEST_CASE("the page of a ctc model has figures, tables and alignments", "[report]") {
  const std::string s = evaluation_html(example());
  check_page(s);
  CHECK(s == evaluation_html(example()));
  CHECK_THAT(s, Contains("<title>Evaluation of " + harmless + "</title>"));
  CHECK_THAT(s, Contains("<b>6.00%</b><span>95% interval 2.10% to 10.30%</span>") &&
                    Contains("<span>6 errors in 100 words</span>") &&
                    Contains("<span>3 substituted, 2 inserted, 1 deleted</span>") &&
                    Contains("<b>3.75%</b><span>too little for an interval</span>") &&
                    Contains("<b>33.33%</b><span>4 of 12 utterances</span>"));
  CHECK_THAT(s,
             Contains("<h2>Speakers</h2>") && !Contains("Nobody") &&
                 Contains("<bdi>" + harmless + "</bdi></td><td>5</td><td>50</td><td>4.00%</td>") &&
                 Contains("<td>0</td><td>n/a</td>"));
  CHECK_THAT(s, Contains("<bdi>three</bdi> → <bdi>tree</bdi></td><td>2</td>") &&
                    Contains("<bdi>uh</bdi></td><td>2</td>") &&
                    Contains("others</td><td>2</td>"));  // of 5 substitutions
  CHECK(count(s, ">others<") == 1);
  CHECK_THAT(
      s, Contains("se&lt;ven <span class=\"swap\"><del>three</del> <ins>tree</ins></span> <ins>" +
                  harmless + "</ins> <del>one</del></p>"));
  CHECK_THAT(s, Contains("t<del>hr␣</del><ins>b</ins>e</p>"));
  CHECK_THAT(
      s, Contains("<svg") && Contains("prefers-color-scheme: dark") && Contains("@media print"));
}

TEST_CASE("of lines the characters come before the words", "[report]") {
  EvaluationPage page = example();
  const auto before = [&](const char* first, const char* second) {
    const std::string s = evaluation_html(page);
    check_page(s);
    REQUIRE_THAT(s, Contains(first) && Contains(second));
    return s.find(first) < s.find(second);
  };
  const std::vector<std::pair<const char*, const char*>> pairs = {
      {"Character error rate (CER)", "Word error rate (WER)"},
      {"<th>CER</th>", "<th>WER</th>"},
      {"<h2>Confused characters</h2>", "<h2>Confused words</h2>"}};
  for (const auto& [characters, words] : pairs) CHECK_FALSE(before(characters, words));
  CHECK_THAT(evaluation_html(page), Contains("By errors in words."));
  page.transcription->characters_first = true;
  for (const auto& [characters, words] : pairs) CHECK(before(characters, words));
  const std::string s = evaluation_html(page);
  // The bar and the counts beside it are of characters, too.
  CHECK_THAT(s, Contains("By errors in characters.") &&
                    Contains("<th>characters</th><th>CER</th><th class=\"bar\">") &&
                    Contains("</bdi></td><td>5</td><td>200</td><td>1.50%</td>") &&
                    Contains("5 errors in 17 characters, 3 in 4 words"));
}

TEST_CASE("words are counted without punctuation, too, where there is some", "[report]") {
  EvaluationPage page = example();
  CHECK_THAT(evaluation_html(page), !Contains("without punctuation"));
  page.transcription->bare_words = Counts{90, 1, 1, 1};
  page.transcription->bare_interval = Interval{0.01, 0.05};
  CHECK_THAT(evaluation_html(page),
             Contains("<span>WER without punctuation</span><b>3.33%</b><span>95% interval 1.00% to "
                      "5.00%</span><span>3 errors in 90 words</span>"));
}

TEST_CASE("sounds and images stand in the page, and so do the settings", "[report]") {
  EvaluationPage page = example();
  CHECK_THAT(evaluation_html(page),
             !Contains("<audio") && !Contains("<img") && !Contains("Settings of the run"));
  page.transcription->worst[0].wav = "RIFF?";
  page.settings = "[model]\nhidden = 96\ntrain = \"" + hostile + "\"\n";
  const std::string sound = evaluation_html(page);
  check_page(sound);
  CHECK_THAT(sound, Contains("<audio controls preload=\"metadata\" "
                             "src=\"data:audio/wav;base64,UklGRj8=\"></audio>") &&
                        Contains("media-src data:"));
  CHECK_THAT(sound,
             Contains("<pre>[model]\nhidden = 96\n") && Contains(harmless + "&quot;\n</pre>"));
  page.transcription->worst[0].wav.clear();
  page.transcription->worst[0].png = "PNG";
  const std::string image = evaluation_html(page);
  check_page(image);
  CHECK_THAT(image, Contains("src=\"data:image/png;base64,UE5H\">") && !Contains("<audio"));
}

TEST_CASE("the page of two runs has rates side by side and what changed", "[report]") {
  EvaluationPage page;
  page.title = hostile;
  page.facts = {{"first", hostile}};
  Comparison c;
  c.first = hostile;
  c.second = "run2";
  c.rates = {{"WER", {200, 10, 6, 4}, {200, 5, 3, 2}, Interval{-0.081, -0.02}},
             {"CER", {900, 9, 0, 0}, {900, 18, 0, 0}, Interval{-0.001, 0.021}},
             {"WER without punctuation", {200, 1, 0, 0}, {200, 2, 0, 0}, std::nullopt}};
  c.utterances = 20;
  c.wrong_first = 7;
  c.wrong_second = 5;
  c.settings = {"training.epochs: 50 -> 60", hostile};
  c.first_curve = LearningCurve{"one", "updates", {{"training", {1, 2}, {3, 1}}}, {}};
  c.second_curve = LearningCurve{"two", "updates", {{"training", {1, 2}, {3, 1}}}, {}};
  AlignedUtterance right{hostile, "1.20 s", {1, 0, 0, 0}, {5, 0, 0, 0}, {{'=', "three", "three"}},
                         {}};
  AlignedUtterance wrong = right;
  wrong.words.substitutions = 1;
  wrong.word_edits = {{'s', "three", "tree"}};
  right.wav = "RIFF?";
  c.worse = {{right, wrong}};
  page.comparison = c;
  const std::string s = evaluation_html(page);
  keep_page("comparison.html", s);
  check_page(s);
  CHECK_THAT(s, Contains("<th><bdi>" + harmless + "</bdi></th><th><bdi>run2</bdi></th>") &&
                    Contains("<td>10.00%</td><td>5.00%</td><td>-5.00</td><td>-8.10 to -2.00</td>"
                             "<td class=\"more\">better</td>") &&
                    Contains("<td>1.00%</td><td>2.00%</td><td>+1.00</td><td>-0.10 to +2.10</td>"
                             "<td class=\"more\">may be chance</td>") &&
                    Contains("<td>0.50%</td><td>1.00%</td><td>+0.50</td><td></td>") &&
                    Contains("<td>7</td><td>5</td>"));
  CHECK_THAT(s, Contains("<bdi>training.epochs: 50 -&gt; 60</bdi>") &&
                    Contains("Utterances that became worse") && !Contains("became better") &&
                    Contains("0 errors in 1 word") && Contains("1 error in 1 word") &&
                    Contains("<del>three</del> <ins>tree</ins>"));
  CHECK(count(s, "<svg") == 2);
  CHECK(count(s, "<audio") == 1);
  page.comparison->rates[0].difference = Interval{0.001, 0.02};
  page.comparison->settings.clear();
  page.noun = "line";
  const std::string lines = evaluation_html(page);
  CHECK_THAT(lines, Contains(">worse</td>") && Contains("<p>None.</p>") &&
                        Contains("Lines that became worse") && !Contains("tterance"));
}

TEST_CASE("a page without errors says so", "[report]") {
  EvaluationPage page;
  page.loss = std::nan("");
  page.transcription = Transcription{};
  page.transcription->all = {"all", 2, {5, 0, 0, 0}, {9, 0, 0, 0}};
  page.transcription->wer_interval = Interval{0, 0};
  const std::string s = evaluation_html(page);
  check_page(s);
  CHECK_THAT(s, Contains("<b>0.00%</b><span>no error seen") && !Contains("95% interval 0") &&
                    !Contains("Worst") && !Contains("Confused") && !Contains("<svg") &&
                    Contains("<b>n/a</b>"));
}

TEST_CASE("of very many rows the worst are shown", "[report]") {
  EvaluationPage page = example();
  std::vector<Rates>& rows = page.transcription->tables[0].rows;
  rows.assign(150, {"good", 1, {10, 1, 0, 0}, {}});
  rows[149] = {"bad", 1, {10, 2, 0, 0}, {}};
  const std::string s = evaluation_html(page);
  CHECK_THAT(s, Contains("<h2>Speakers: the worst 100 of 150</h2>"));
  CHECK(count(s, "<bdi>good</bdi>") == 99);
  CHECK(s.find("<bdi>bad</bdi>") < s.find("<bdi>good</bdi>"));
}

TEST_CASE("long alignments are cut, and letters left out where words say it all", "[report]") {
  EvaluationPage page = example();
  AlignedUtterance& worst = page.transcription->worst[0];
  worst.word_edits.assign(1500, {'d', "a", ""});
  const std::string s = evaluation_html(page);
  check_page(s);
  CHECK(count(s, "<del>a</del>") == 1000);
  CHECK_THAT(s, Contains("… and 500 more") && !Contains("class=\"aligned letters\""));
  worst.word_edits = {{'s', "a", "bc"}};
  CHECK_THAT(evaluation_html(page), Contains("class=\"aligned letters\""));
}

TEST_CASE("the page of a classify model has the matrix, or the pairs of many classes", "[report]") {
  EvaluationPage page;
  page.classification = Classification{9, 3, {{4, 1, 0}, {2, 2, 0}, {0, 0, 0}}};
  const std::string s = evaluation_html(page);
  check_page(s);
  CHECK_THAT(s, Contains("<b>33.33%</b><span>3 of 9 utterances</span>") &&
                    Contains("<tr><th scope=\"row\">0</th><td class=\"right\">4</td><td>1</td><td>"
                             "</td><td>5</td><td>20.00%</td></tr>") &&
                    Contains("<td>0</td><td></td></tr>"));
  page.classification->classes = {"yes", hostile, "no"};
  const std::string named = evaluation_html(page);
  check_page(named);
  CHECK_THAT(named, Contains("<th scope=\"row\"><bdi>yes</bdi></th><td class=\"right\">4</td>") &&
                        Contains("<th scope=\"col\"><bdi>no</bdi></th>") && Contains(harmless));
  page.classification->classes.clear();
  page.classification->matrix.assign(50, std::vector<int64_t>(50, 0));
  page.classification->matrix[7][49] = 2;
  page.classification->matrix[49][7] = 3;
  page.classification->matrix[3][3] = 4;
  const std::string many = evaluation_html(page);
  check_page(many);
  CHECK_THAT(many, !Contains("class=\"matrix\""));
  const size_t first = many.find("<bdi>49</bdi> → <bdi>7</bdi></td><td>3</td>");
  CHECK(first < many.find("<bdi>7</bdi> → <bdi>49</bdi></td><td>2</td>"));
  CHECK_THAT(many, !Contains("<bdi>3</bdi> →"));
  for (int i = 0; i < 50; ++i) page.classification->classes.push_back(str("c", i));
  CHECK_THAT(evaluation_html(page), Contains("<bdi>c49</bdi> → <bdi>c7</bdi></td><td>3</td>"));
}

TEST_CASE("the page of a regress model has loss and worst utterances", "[report]") {
  EvaluationPage page;
  page.loss = 0.25;
  page.regression = Regression{
      3, {{hostile, std::nan(""), {1, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9}}, {"b", 1.5, {}, {0.5f}}}};
  page.regression->mae = 0.12345;
  page.regression->rmse = 0.5;
  page.regression->r2 = std::nan("");
  const std::string s = evaluation_html(page);
  check_page(s);
  CHECK_THAT(s,
             Contains("<b>0.25</b>") && Contains("<b>0.1235</b>") && Contains("<b>0.5</b>") &&
                 Contains("<span>R²</span><b>n/a</b>") &&
                 Contains(harmless + "</bdi></td><td>n/a</td><td>1, 2</td><td>1, 2, 3, 4, 5, 6, 7, "
                                     "8, …</td>") &&
                 Contains("<td>1.5</td><td></td><td>0.5</td>"));
}
