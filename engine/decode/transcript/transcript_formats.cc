#include "engine/decode/transcript/transcript_formats.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

using Token = Transcript::Token;

const std::vector<Token>& words_of(const Transcript& t) {
  return t.words.empty() ? t.characters : t.words;
}

std::string without_spaces(std::string_view text) {
  std::string result;
  for (const char32_t c : code_points(text)) result += is_white_space(c) ? "_" : to_utf8(c);
  return result.empty() ? "_" : result;
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? "\"\"" : std::string(1, c);
  return result + "\"";
}

// An interval tier covers all of the time, so nothing stands between words.
void add_tier(std::string& out, int place, const char* name, const std::vector<Token>& tokens,
              double seconds) {
  std::string intervals;
  size_t count = 0;
  // In the ticks that are written: Praat takes no interval without length.
  const auto ticks = [](double s) { return std::llround(s * 1e4); };
  const auto time = [](int64_t at) { return fixed_text(static_cast<double>(at) / 1e4, 4); };
  int64_t at = 0;
  const auto add = [&](int64_t end, std::string_view text) {
    if (end <= at) return;
    intervals +=
        str("        intervals [", ++count, "]:\n            xmin = ", time(at),
            " \n            xmax = ", time(end), " \n            text = ", quoted(text), " \n");
    at = end;
  };
  for (const Token& t : tokens) {
    add(ticks(t.begin), "");
    add(ticks(t.end), t.text);
  }
  add(ticks(seconds), "");
  out += str("    item [", place, "]:\n        class = \"IntervalTier\" \n        name = \"", name,
             "\" \n        xmin = 0 \n        xmax = ", fixed_text(seconds, 4),
             " \n        intervals: size = ", count, " \n", intervals);
}

// 00:01:02,345
std::string clock_time(double seconds, char point) {
  const auto ms = static_cast<int64_t>(std::llround(std::max(seconds, 0.0) * 1000));
  char text[64];
  std::snprintf(text, sizeof text, "%02lld:%02lld:%02lld%c%03lld",
                static_cast<long long>(ms / 3600000), static_cast<long long>(ms / 60000 % 60),
                static_cast<long long>(ms / 1000 % 60), point, static_cast<long long>(ms % 1000));
  return text;
}

int length_of(const std::string& text) { return static_cast<int>(code_points(text).size()); }

// Whether a word may be the last of a sentence, also within quotation marks.
bool ends_sentence(const std::string& word) {
  const std::vector<char32_t> all = code_points(word);
  const std::u32string_view closing = U"\"')]\u00bb\u201d\u2019\u300d",
                            ends = U".!?\u2026\u3002\uff01\uff1f";
  for (size_t i = all.size(); i-- > 0;) {
    if (ends.find(all[i]) != std::u32string_view::npos) return true;
    if (closing.find(all[i]) == std::u32string_view::npos) return false;
  }
  return false;
}

// Puts words into lines.
class LineBreaker {
 public:
  LineBreaker(const SubtitleOptions& o, bool spaces) : o_(o), spaces_(spaces) {}

  // False: there is no place left. The first word always has one.
  bool add(const std::string& word) {
    const int more = length_of(word) + (spaces_ ? 1 : 0);
    if (lines.empty()) {
      lines.push_back(word);
      length_ = length_of(word);
    } else if (length_ + more <= o_.longest_line) {
      lines.back() += (spaces_ ? " " : "") + word;
      length_ += more;
    } else if (static_cast<int>(lines.size()) < o_.lines) {
      lines.push_back(word);
      length_ = length_of(word);
    } else {
      return false;
    }
    return true;
  }

  std::vector<std::string> lines;

 private:
  const SubtitleOptions& o_;
  const bool spaces_;
  int length_ = 0;
};

// When a subtitle whose words end at `end` goes, given when the next one comes.
double shown_until(double end, double next, double seconds, const SubtitleOptions& o) {
  return std::min(std::max(end, std::min(end + o.linger, next)), std::max(seconds, 0.0));
}

// <i>, {\an8}, &amp;
std::string without_markup(std::string_view line) {
  std::string plain;
  while (!line.empty()) {
    size_t markup = 0;
    if (line[0] == '<') markup = line.find('>') + 1;  // 0: there is no end
    if (line.starts_with("{\\")) markup = line.find('}') + 1;
    for (const auto& [entity, character] : {std::pair<std::string_view, char>{"&amp;", '&'},
                                            {"&lt;", '<'},
                                            {"&gt;", '>'},
                                            {"&nbsp;", ' '}}) {
      if (!line.starts_with(entity)) continue;
      plain += character;
      markup = entity.size();
    }
    if (markup == 0) plain += line[0];
    line.remove_prefix(std::max<size_t>(markup, 1));
  }
  return plain;
}

bool is_number(std::string_view line) {
  return !line.empty() && line.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string to_ctm(const Transcript& t, std::string_view utterance) {
  const std::string name = without_spaces(utterance);
  std::string out;
  for (const Token& w : words_of(t))
    out += str(name, " 1 ", fixed_text(w.begin, 3), " ", fixed_text(w.end - w.begin, 3), " ",
               without_spaces(w.text), " ", fixed_text(w.probability, 4), "\n");
  return out;
}

std::string to_text_grid(const Transcript& t, double seconds) {
  for (const auto* tokens : {&t.words, &t.characters})
    if (!tokens->empty()) seconds = std::max(seconds, tokens->back().end);
  const int tiers = t.words.empty() ? 1 : 2;
  std::string out =
      str("File type = \"ooTextFile\"\nObject class = \"TextGrid\"\n\nxmin = 0 \nxmax = ",
          fixed_text(seconds, 4), " \ntiers? <exists> \nsize = ", tiers, " \nitem []: \n");
  if (!t.words.empty()) add_tier(out, 1, "words", t.words, seconds);
  add_tier(out, tiers, "tokens", t.characters, seconds);
  return out;
}

std::vector<Subtitle> subtitles_of(const Transcript& t, double seconds, const SubtitleOptions& o) {
  const std::vector<Token>& words = words_of(t);
  std::vector<Subtitle> all;
  for (size_t i = 0; i < words.size();) {
    LineBreaker breaker(o, !t.words.empty());
    const double begin = words[i].begin;
    double end = begin;
    for (bool whole = false; i < words.size() && !whole; ++i) {
      const bool is_first = breaker.lines.empty();
      if (!is_first && words[i].begin - end > o.pause) break;
      if (!is_first && words[i].end - begin > o.longest) break;
      if (!breaker.add(words[i].text)) break;
      end = words[i].end;
      whole = ends_sentence(words[i].text);
    }
    const double next = i < words.size() ? words[i].begin : seconds;
    all.push_back({begin, shown_until(end, next, seconds, o), breaker.lines});
  }
  return all;
}

std::vector<Subtitle> subtitles_of_lines(std::span<const TimedText::Token> words,
                                         std::span<const int32_t> line_ends,
                                         std::span<const std::string> lines, double seconds,
                                         const SubtitleOptions& o) {
  RONDO_CHECK(lines.size() == line_ends.size(), lines.size(), " lines, ", line_ends.size(),
              " ends");
  std::vector<Subtitle> all;
  size_t first = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto end = static_cast<size_t>(line_ends[i]);
    RONDO_CHECK(first <= end && end <= words.size(), "line ", i, " ends with word ", end);
    Subtitle s;
    for (const std::string_view line : split_lines(lines[i]))
      if (!split_words(line).empty()) s.lines.emplace_back(line);
    const double before = first > 0 ? words[first - 1].end : 0;
    const double next = end < words.size() ? words[end].begin : seconds;
    s.begin = std::min(end > first ? words[first].begin : before, seconds);
    s.end = shown_until(end > first ? words[end - 1].end : next, next, seconds, o);
    first = end;
    if (!s.lines.empty()) all.push_back(std::move(s));
  }
  return all;
}

std::vector<std::string> texts_of_subtitles(std::string_view content, const std::string& name) {
  const std::vector<std::string_view> lines = split_lines(content);
  const auto is_time = [&](size_t i) { return lines[i].find("-->") != std::string::npos; };
  std::vector<std::string> texts;
  bool any = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!is_time(i)) continue;  // numbers, names, the heading, notes
    any = true;
    std::string text;
    for (++i; i < lines.size() && !lines[i].empty(); ++i) {
      // The next one's number, where no empty line is between.
      if (i + 1 < lines.size() && is_number(lines[i]) && is_time(i + 1)) break;
      if (is_time(i)) break;
      if (!text.empty()) text += '\n';
      text += without_markup(lines[i]);
    }
    if (i < lines.size() && is_time(i)) --i;
    if (!split_words(text).empty()) texts.push_back(std::move(text));
  }
  if (!any)
    fail_input(name, ": holds no subtitle: no line has a time, '00:00:01,000 --> 00:00:02,000'");
  return texts;
}

std::string to_srt(const std::vector<Subtitle>& subtitles) {
  std::string out;
  for (size_t i = 0; i < subtitles.size(); ++i) {
    const Subtitle& s = subtitles[i];
    out += str(i + 1, "\n", clock_time(s.begin, ','), " --> ", clock_time(s.end, ','), "\n");
    for (const std::string& line : s.lines) out += line + "\n";
    out += "\n";
  }
  return out;
}

std::string to_vtt(const std::vector<Subtitle>& subtitles) {
  std::string out = "WEBVTT\n\n";
  for (const Subtitle& s : subtitles) {
    out += clock_time(s.begin, '.') + " --> " + clock_time(s.end, '.') + "\n";
    for (const std::string& line : s.lines) {
      for (const char c : line)
        out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
      out += "\n";
    }
    out += "\n";
  }
  return out;
}

}  // namespace rondo
