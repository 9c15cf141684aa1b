#include "engine/report/report_parts.h"

#include <algorithm>

#include "engine/report/html.h"
#include "engine/report/progress.h"
#include "engine/report/svg.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo::report {

std::string percent(double share) { return fixed_text(100 * share, 2) + "%"; }

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string rate(const Counts& c) {
  if (c.reference == 0 && c.errors() > 0) return "n/a";
  return percent(share(c.errors(), c.reference));
}

std::string tag(const char* name, std::string_view text, std::string_view css) {
  const std::string attribute = css.empty() ? "" : str(" class=\"", css, "\"");
  return str("<", name, attribute, ">", html_text(text), "</", name, ">");
}

// Text from data, in its own direction of writing.
std::string isolated(std::string_view text) { return str("<bdi>", html_text(text), "</bdi>"); }

namespace {

constexpr size_t most_edits = 1000;  // a page is read by people: what is longer is cut

std::string cut_note(size_t all) {
  if (all <= most_edits) return {};
  return " " + tag("span", str("… and ", all - most_edits, " more"), "soft");
}

std::string lost(std::string_view text) { return "<del>" + html_text(text) + "</del>"; }
std::string added(std::string_view text) { return "<ins>" + html_text(text) + "</ins>"; }

std::string aligned_words(const std::vector<EditMark>& edits) {
  std::string s = "<p class=\"aligned\" dir=\"auto\">";
  for (size_t i = 0; i < std::min(edits.size(), most_edits); ++i) {
    const EditMark& e = edits[i];
    if (i) s += " ";
    if (e.edit == 's') {
      s += "<span class=\"swap\">" + lost(e.reference) + " " + added(e.hypothesis) + "</span>";
    } else {
      s += e.edit == 'd'   ? lost(e.reference)
           : e.edit == 'i' ? added(e.hypothesis)
                           : html_text(e.reference);
    }
  }
  return s + cut_note(edits.size()) + "</p>\n";
}

// Letters are shown in runs: what is lost of one, then what is there instead.
std::string aligned_characters(const std::vector<EditMark>& edits) {
  std::string s = "<p class=\"aligned letters\" dir=\"auto\">", gone, instead;
  const auto visible = [](const std::string& text) { return text == " " ? "␣" : text; };
  const auto flush = [&] {
    if (!gone.empty()) s += lost(gone);
    if (!instead.empty()) s += added(instead);
    gone.clear();
    instead.clear();
  };
  for (size_t i = 0; i < std::min(edits.size(), most_edits); ++i) {
    const EditMark& e = edits[i];
    if (e.edit == '=') {
      flush();
      s += html_text(e.reference);
    } else {
      gone += visible(e.reference);
      instead += visible(e.hypothesis);
    }
  }
  flush();
  return s + cut_note(edits.size()) + "</p>\n";
}

bool is_longer_than_a_character(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }) > 1;
}

// Whether characters tell more than words: a word was written that is a little wrong.
bool characters_help(const std::vector<EditMark>& words) {
  return std::any_of(words.begin(), words.end(), [](const EditMark& e) {
    return e.edit == 's' &&
           (is_longer_than_a_character(e.reference) || is_longer_than_a_character(e.hypothesis));
  });
}

}  // namespace

std::string errors_text(const AlignedUtterance& u, bool characters_first) {
  const Counts &first = characters_first ? u.characters : u.words,
               &other = characters_first ? u.words : u.characters;
  return str(counted(first.errors(), "error"), " in ",
             counted(first.reference, characters_first ? "character" : "word"), ", ",
             other.errors(), " in ",
             counted(other.reference, characters_first ? "word" : "character"));
}

// The image or the sound that was read.
std::string media(const AlignedUtterance& u) {
  if (!u.png.empty())
    return "<img class=\"line\" alt=\"\" src=\"data:image/png;base64," + svg::base64(u.png) +
           "\">\n";
  if (!u.wav.empty())
    return "<audio controls preload=\"metadata\" src=\"data:audio/wav;base64," +
           svg::base64(u.wav) + "\"></audio>\n";
  return {};
}

std::string marked_errors(const AlignedUtterance& u) {
  return aligned_words(u.word_edits) +
         (characters_help(u.word_edits) ? aligned_characters(u.character_edits) : "");
}

}  // namespace rondo::report
