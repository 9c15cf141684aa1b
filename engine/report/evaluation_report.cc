#include "engine/report/evaluation_report.h"

#include <algorithm>
#include <cmath>

#include "engine/report/html.h"
#include "engine/report/progress.h"
#include "engine/report/report_parts.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo::report {
namespace {

// A page is read by people: what is longer is cut.
constexpr size_t most_classes = 40;
constexpr size_t most_numbers = 8;
constexpr size_t most_rows = 100;

// Text whose line breaks stay.
std::string preformatted(std::string_view text) {
  std::string s;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    s += html_text(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return s;
}

std::string figure(std::string_view name, std::string_view value,
                   const std::vector<std::string>& lines) {
  std::string s = "<div class=\"figure\">" + tag("span", name) + tag("b", value);
  for (const std::string& line : lines) s += tag("span", line);
  return s + "</div>\n";
}

std::string edits_text(const Counts& c) {
  return str(c.substitutions, " substituted, ", c.insertions, " inserted, ", c.deletions,
             " deleted");
}

std::string of(int64_t part, int64_t whole, std::string_view noun) {
  return str(part, " of ", counted(whole, noun));
}

std::string rate_figure(std::string_view name, std::string_view noun, const Counts& c,
                        const std::optional<Interval>& interval) {
  std::vector<std::string> lines;
  if (c.errors() == 0) {
    lines.emplace_back("no error seen, so nothing to resample");
  } else if (interval) {
    lines.push_back(str("95% interval ", percent(interval->low), " to ", percent(interval->high)));
  } else {
    lines.emplace_back("too little for an interval");
  }
  lines.push_back(str(counted(c.errors(), "error"), " in ", counted(c.reference, noun)));
  lines.push_back(edits_text(c));
  return figure(name, rate(c), lines);
}

std::string bar_cell(double value, double greatest) {
  const double width = greatest > 0 ? 100 * std::clamp(value / greatest, 0.0, 1.0) : 0;
  return str("<td class=\"bar\"><i style=\"width:", fixed_text(width, 1), "%\"></i></td>");
}

// Which of the two rates a table is about.
const Counts& first_of(const Rates& r, bool characters_first) {
  return characters_first ? r.characters : r.words;
}

double first_rate(const Rates& r, bool characters_first) {
  const Counts& c = first_of(r, characters_first);
  return share(c.errors(), c.reference);
}

std::string rate_row(const Rates& r, double greatest, bool characters_first) {
  const Counts& c = first_of(r, characters_first);
  return str("<tr><td class=\"name\">", isolated(r.name), "</td><td>", r.utterances, "</td><td>",
             c.reference, "</td><td>", rate(c), "</td>",
             bar_cell(first_rate(r, characters_first), greatest), "<td class=\"more\">",
             c.substitutions, "</td><td class=\"more\">", c.insertions, "</td><td class=\"more\">",
             c.deletions, "</td><td>", rate(first_of(r, !characters_first)), "</td></tr>\n");
}

std::string rate_table(const RateTable& table, const std::string& noun, bool characters_first) {
  std::vector<Rates> rows = table.rows;
  const auto wer = [&](const Rates& r) { return first_rate(r, characters_first); };
  std::string title = table.title;
  if (rows.size() > most_rows) {
    title += str(": the worst ", most_rows, " of ", rows.size());
    std::stable_sort(rows.begin(), rows.end(),
                     [&](const Rates& a, const Rates& b) { return wer(a) > wer(b); });
    rows.resize(most_rows);
  }
  double greatest = 0;
  for (const Rates& r : rows) greatest = std::max(greatest, wer(r));
  std::string s =
      tag("h2", title) + "\n<div class=\"wide\"><table>\n<thead><tr>" +
      tag("th", table.column, "name") + tag("th", noun + "s") +
      (characters_first ? "<th>characters</th><th>CER</th>" : "<th>words</th><th>WER</th>") +
      "<th class=\"bar\"></th><th class=\"more\">substituted</th><th class=\"more\">inserted</th>"
      "<th class=\"more\">deleted</th><th>" +
      (characters_first ? "WER" : "CER") + "</th></tr></thead>\n<tbody>\n";
  for (const Rates& r : rows) s += rate_row(r, greatest, characters_first);
  return s + "</tbody></table></div>\n";
}

std::string confused_texts(const Confusion& c) {
  if (c.reference.empty()) return isolated(c.hypothesis);
  if (c.hypothesis.empty()) return isolated(c.reference);
  return isolated(c.reference) + " → " + isolated(c.hypothesis);
}

std::string confusion_table(std::string_view title, const std::vector<Confusion>& rows,
                            int64_t all) {
  if (rows.empty()) return {};
  int64_t shown = 0;
  std::string s = "<table>" + tag("caption", title) + "\n<tbody>\n";
  for (const Confusion& c : rows) {
    s += str("<tr><td class=\"name\">", confused_texts(c), "</td><td>", c.count, "</td></tr>\n");
    shown += c.count;
  }
  if (shown < all) {
    s += str("<tr><td class=\"name soft\">others</td><td>", all - shown, "</td></tr>\n");
  }
  return s + "</tbody></table>\n";
}

std::string confusion_section(std::string_view title, const Confusions& c) {
  if (c.all.errors() == 0) return {};
  return tag("h2", title) + "\n<div class=\"lists\">\n" +
         confusion_table("Substituted: reference → written", c.substitutions, c.all.substitutions) +
         confusion_table("Inserted", c.insertions, c.all.insertions) +
         confusion_table("Deleted", c.deletions, c.all.deletions) + "</div>\n";
}

std::string worst_section(const std::vector<AlignedUtterance>& worst, const std::string& noun,
                          bool characters_first) {
  if (worst.empty()) return {};
  std::string s = tag("h2", str("Worst ", noun, "s")) + "\n<p class=\"soft\">By errors in " +
                  (characters_first ? "characters. " : "words. ") + how_errors_are_marked +
                  "</p>\n";
  for (const AlignedUtterance& u : worst) {
    s += str("<article><h3>", isolated(u.name), "</h3>\n<p class=\"soft\">");
    if (!u.note.empty()) s += isolated(u.note) + ": ";
    s += errors_text(u, characters_first) + "</p>\n" + media(u) + marked_errors(u);
    s += "</article>\n";
  }
  return s;
}

std::string transcription_sections(const Transcription& t, const std::string& noun) {
  std::string s;
  for (const RateTable& table : t.tables) {
    if (!table.rows.empty()) s += rate_table(table, noun, t.characters_first);
  }
  const std::string words = confusion_section("Confused words", t.words),
                    characters = confusion_section("Confused characters", t.characters);
  return s + (t.characters_first ? characters + words : words + characters) +
         worst_section(t.worst, noun, t.characters_first);
}

std::string transcription_figures(const Transcription& t, const std::string& noun) {
  std::string words = rate_figure("Word error rate (WER)", "word", t.all.words, t.wer_interval);
  if (t.bare_words)
    words += rate_figure("WER without punctuation", "word", *t.bare_words, t.bare_interval);
  const std::string characters =
      rate_figure("Character error rate (CER)", "character", t.all.characters, t.cer_interval);
  return (t.characters_first ? characters + words : words + characters) +
         figure("Wrong " + noun + "s", percent(share(t.wrong_utterances, t.all.utterances)),
                {of(t.wrong_utterances, t.all.utterances, noun)});
}

std::string class_of(const Classification& c, size_t number) {
  return c.classes.empty() ? std::to_string(number) : c.classes.at(number);
}

std::string heading_of(const Classification& c, size_t number) {
  return c.classes.empty() ? std::to_string(number) : isolated(class_of(c, number));
}

std::string matrix_row(const Classification& c, size_t reference) {
  const std::vector<int64_t>& row = c.matrix[reference];
  int64_t all = 0;
  for (const int64_t n : row) all += n;
  std::string s = str("<tr><th scope=\"row\">", heading_of(c, reference), "</th>");
  for (size_t answer = 0; answer < row.size(); ++answer) {
    s += str(answer == reference ? "<td class=\"right\">" : "<td>",
             row[answer] > 0 ? std::to_string(row[answer]) : "", "</td>");
  }
  return str(s, "<td>", all, "</td><td>", all > 0 ? percent(share(all - row[reference], all)) : "",
             "</td></tr>\n");
}

std::string matrix_table(const Classification& c) {
  std::string s =
      "<p class=\"soft\">A row is a class of the reference, a column what the model "
      "said; right answers are framed.</p>\n<div class=\"wide\"><table class=\"matrix\">\n"
      "<thead><tr><th></th>";
  for (size_t answer = 0; answer < c.matrix.size(); ++answer) {
    s += str("<th scope=\"col\">", heading_of(c, answer), "</th>");
  }
  s += "<th>all</th><th>error</th></tr></thead>\n<tbody>\n";
  for (size_t i = 0; i < c.matrix.size(); ++i) s += matrix_row(c, i);
  return s + "</tbody></table></div>\n";
}

// Of many classes the pairs that are confused most.
std::string matrix_list(const Classification& c) {
  const std::vector<std::vector<int64_t>>& matrix = c.matrix;
  std::vector<Confusion> all;
  int64_t wrong = 0;
  for (size_t i = 0; i < matrix.size(); ++i) {
    for (size_t j = 0; j < matrix[i].size(); ++j) {
      if (i == j || matrix[i][j] == 0) continue;
      all.push_back({class_of(c, i), class_of(c, j), matrix[i][j]});
      wrong += matrix[i][j];
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Confusion& a, const Confusion& b) { return a.count > b.count; });
  all.resize(std::min(all.size(), most_classes));
  return "<div class=\"lists\">" + confusion_table("Reference → answer", all, wrong) + "</div>\n";
}

std::string classification_sections(const Classification& c) {
  return tag("h2", "Confused classes") + "\n" +
         (c.matrix.size() <= most_classes ? matrix_table(c) : matrix_list(c));
}

std::string numbers_text(const std::vector<float>& values) {
  std::string s;
  for (size_t i = 0; i < std::min(values.size(), most_numbers); ++i) {
    s += str(i ? ", " : "", short_text(static_cast<double>(values[i]), 4));
  }
  return values.size() > most_numbers ? s + ", …" : s;
}

std::string loss_text(double loss) {
  if (std::isnan(loss)) return "n/a";
  return short_text(loss, 4);
}

std::string regression_sections(const Regression& r, const std::string& noun) {
  std::string s = tag("h2", str("Worst ", noun, "s")) +
                  "\n<div class=\"wide\"><table>\n<thead><tr><th class=\"name\">" + noun +
                  "</th><th>loss</th>"
                  "<th>reference</th><th>answer</th></tr></thead>\n<tbody>\n";
  for (const Regression::Utterance& u : r.worst) {
    s += str("<tr><td class=\"name\">", isolated(u.name), "</td>", tag("td", loss_text(u.loss)),
             tag("td", numbers_text(u.target)), tag("td", numbers_text(u.answer)), "</tr>\n");
  }
  return s + "</tbody></table></div>\n";
}

std::string heading(const EvaluationPage& page) {
  std::string s = str("<h1>", isolated(page.title), "</h1>\n<dl>\n");
  for (const auto& [name, value] : page.facts) {
    s += str(tag("dt", name), "<dd>", isolated(value), "</dd>\n");
  }
  return s + "</dl>\n";
}

std::string figures(const EvaluationPage& page) {
  std::string s = "<div class=\"figures\">\n";
  if (page.transcription) s += transcription_figures(*page.transcription, page.noun);
  if (page.classification) {
    const Classification& c = *page.classification;
    s += figure("Error", percent(share(c.wrong, c.utterances)),
                {of(c.wrong, c.utterances, page.noun)});
  }
  if (page.regression) {
    const Regression& r = *page.regression;
    s += figure("Mean error", loss_text(r.mae), {"MAE: of |answer - reference|"}) +
         figure("Root mean square error", loss_text(r.rmse), {"RMSE"}) +
         figure("R²", loss_text(r.r2), {"1: perfect; 0: as the mean of the references"});
  }
  s += figure("Loss", loss_text(page.loss), {"mean per " + page.noun}) + "</div>\n";
  if (page.transcription) s += tag("p", page.transcription->interval_method, "soft") + "\n";
  for (const std::string& remark : page.remarks) s += tag("p", remark) + "\n";
  return s;
}

}  // namespace

std::string evaluation_html(const EvaluationPage& page) {
  std::string s = heading(page) + (page.comparison ? "" : figures(page));
  if (page.curve) {
    s += tag("h2", "Training") + "\n<div class=\"wide curve\">" + learning_curve_svg(*page.curve) +
         "</div>\n";
  }
  if (page.transcription) s += transcription_sections(*page.transcription, page.noun);
  if (page.classification) s += classification_sections(*page.classification);
  if (page.regression) s += regression_sections(*page.regression, page.noun);
  if (page.comparison) s += comparison_sections(*page.comparison, page.noun);
  if (!page.settings.empty()) {
    s += tag("h2", "Settings of the run") +
         "\n<details><summary>All, as in config.toml</summary>\n<pre>" +
         preformatted(page.settings) + "</pre></details>\n";
  }
  return html_page(page.title, s);
}

}  // namespace rondo::report
