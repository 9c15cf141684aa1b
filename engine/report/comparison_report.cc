#include <cmath>

#include "engine/report/html.h"
#include "engine/report/progress.h"
#include "engine/report/report_parts.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo::report {
namespace {

// In percentage points, with its sign.
std::string points(double difference) {
  const std::string text = fixed_text(100 * difference, 2);
  return text.starts_with('-') ? text : "+" + text;
}

std::string verdict(const Interval& difference) {
  return difference.low > 0 ? "worse" : difference.high < 0 ? "better" : "may be chance";
}

std::string difference_cells(const Comparison::Rate& r) {
  const bool has_rates = r.first.reference > 0 && r.second.reference > 0;
  std::string s = tag("td", !has_rates ? ""
                                       : points(share(r.second.errors(), r.second.reference) -
                                                share(r.first.errors(), r.first.reference)));
  if (!has_rates || !r.difference) return s + "<td></td><td class=\"more\"></td>";
  return s + tag("td", points(r.difference->low) + " to " + points(r.difference->high)) +
         tag("td", verdict(*r.difference), "more");
}

std::string rates_table(const Comparison& c, const std::string& noun) {
  std::string s =
      "<div class=\"wide\"><table class=\"compare\">\n<thead><tr><th class=\"name\"></th><th>" +
      isolated(c.first) + "</th><th>" + isolated(c.second) +
      "</th><th>points</th><th>95% interval</th><th class=\"more\"></th></tr></thead>\n<tbody>\n";
  for (const Comparison::Rate& r : c.rates) {
    s += "<tr>" + tag("td", r.name, "name") + tag("td", rate(r.first)) + tag("td", rate(r.second)) +
         difference_cells(r) + "</tr>\n";
  }
  return s +
         str("<tr>", tag("td", "wrong " + noun + "s", "name"), "<td>", c.wrong_first, "</td><td>",
             c.wrong_second,
             "</td><td></td><td></td><td class=\"more\"></td></tr>\n</tbody></table></div>\n") +
         tag("p", c.interval_method, "soft") + "\n";
}

std::string settings_section(const std::vector<std::string>& settings) {
  std::string s = tag("h2", "Settings that differ") + "\n";
  if (settings.empty()) return s + "<p>None.</p>\n";
  s += "<ul>\n";
  for (const std::string& line : settings) s += "<li>" + isolated(line) + "</li>\n";
  return s + "</ul>\n";
}

std::string curves_section(const Comparison& c) {
  if (!c.first_curve && !c.second_curve) return {};
  std::string s = tag("h2", "Training") + "\n";
  for (const auto* curve : {&c.first_curve, &c.second_curve}) {
    if (*curve) s += "<div class=\"wide curve\">" + learning_curve_svg(**curve) + "</div>\n";
  }
  return s;
}

std::string changes_section(const std::string& title,
                            const std::vector<Comparison::Change>& changes, const Comparison& c) {
  if (changes.empty()) return {};
  std::string s = tag("h2", title) + "\n<p class=\"soft\">By the change of errors in " +
                  (c.characters_first ? "characters. " : "words. ") + how_errors_are_marked +
                  "</p>\n";
  for (const Comparison::Change& change : changes) {
    s += str("<article><h3>", isolated(change.first.name), "</h3>\n<p class=\"soft\">",
             isolated(change.first.note), "</p>\n", media(change.first));
    for (const auto& [name, u] :
         {std::pair(&c.first, &change.first), {&c.second, &change.second}}) {
      s += str("<p class=\"soft\"><b>", isolated(*name),
               "</b>: ", errors_text(*u, c.characters_first), "</p>\n", marked_errors(*u));
    }
    s += "</article>\n";
  }
  return s;
}

}  // namespace

std::string comparison_sections(const Comparison& c, const std::string& noun) {
  return rates_table(c, noun) + settings_section(c.settings) + curves_section(c) +
         changes_section(
             noun == "line" ? "Lines that became worse" : "Utterances that became worse", c.worse,
             c) +
         changes_section(
             noun == "line" ? "Lines that became better" : "Utterances that became better",
             c.better, c);
}

}  // namespace rondo::report
