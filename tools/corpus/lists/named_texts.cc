#include "tools/corpus/lists/named_texts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <utility>

#include "engine/data/features/endings.h"
#include "engine/decode/transcript/transcript_formats.h"
#include "engine/io/json.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"
#include "tools/corpus/lists/list_files.h"
#include "tools/corpus/read_text.h"

namespace rondo {
namespace {

constexpr size_t quoted = 80;  // of what is outside, in messages

// One line of a file, for those who take it apart.
struct Line {
  const std::string& file;
  size_t number;  // from 1
  std::string_view text;

  template <class... What>
  [[noreturn]] void fail(const What&... what) const {
    fail_input(file, ":", number, ": ", what...);
  }
};

std::string_view trimmed(std::string_view text) {
  constexpr const char* space = " \t\r";
  const size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(space) - begin + 1);
}

// What stands before the first space, which with those behind it is taken away.
std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text = trimmed(text.substr(end));
  return word;
}

NamedText of_id_line(const Line& line) {
  std::string_view rest = trimmed(line.text);
  NamedText t;
  t.name = take_word(rest);
  t.text = rest;
  return t;
}

NamedText of_tab_line(const Line& line) {
  const size_t tab = line.text.find('\t');
  return {std::string(line.text.substr(0, tab)),
          std::string(trimmed(line.text.substr(tab + 1))),
          0,
          {}};
}

// Whether each line has a name of its own, and a tab behind it.
bool names_before_tabs(const std::vector<std::string_view>& lines) {
  std::set<std::string_view> names;
  for (const std::string_view line : lines) {
    if (trimmed(line).empty()) continue;
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos || tab == 0 || !names.insert(line.substr(0, tab)).second)
      return false;
  }
  return !names.empty();
}

NamedText of_trn_line(const Line& line) {
  const std::string_view text = trimmed(line.text);
  const size_t open = text.rfind('(');
  if (!text.ends_with(')') || open == std::string_view::npos || open + 2 == text.size()) {
    line.fail("'", printable_start(text, quoted), "', expected a text and its name in parentheses");
  }
  NamedText t;
  t.name = text.substr(open + 1, text.size() - open - 2);
  t.text = trimmed(text.substr(0, open));
  return t;
}

std::string field_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The first of these fields that the line has, as text.
template <size_t n>
std::optional<std::string> first_of(const Json& json, const char* const (&names)[n]) {
  for (const char* name : names) {
    if (json.contains(name) && !json.at(name).is_null()) return field_text(json.at(name));
  }
  return std::nullopt;
}

// "id", else the path as written, with the part of the file.
std::string name_of_json(const Line& line, const Json& json) {
  if (const auto id = first_of(json, {"id"})) return *id;
  auto name = first_of(json, {"audio_filepath", "image_filepath", "features_filepath", "name"});
  if (!name) line.fail("neither \"id\" nor \"audio_filepath\", expected a name");
  for (const char* part : {"offset", "channel", "features_key", "region", "bytes"}) {
    if (const auto value = first_of(json, {part})) *name += str(" ", part, " ", *value);
  }
  return *name;
}

Json parse_line(const Line& line) {
  try {
    Json json = Json::parse(line.text);
    if (json.is_object()) return json;
  } catch (const JsonError& e) {
    line.fail("the line ", e.what());
  }
  line.fail("'", printable_start(line.text, quoted), "', expected an object");
}

NamedText of_json_line(const Line& line, TextRole role) {
  const Json json = parse_line(line);
  const auto text = role == TextRole::reference
                        ? first_of(json, {"reference", "text"})
                        : first_of(json, {"hypothesis", "pred_text", "text"});
  if (!text) line.fail("no \"text\"");
  NamedText t;
  t.name = name_of_json(line, json);
  t.text = *text;
  for (const auto& [name, value] : json.members()) {
    if (!value.is_object() && !value.is_array()) t.fields[name] = field_text(value);
  }
  return t;
}

double number_of(const Line& line, std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size())
    line.fail("'", printable_start(word, quoted), "', expected a time in seconds");
  return value;
}

// What is said in a recording's channel, in the order of the times.
class TimedTexts {
 public:
  // NIST's CTM: name, channel, begin, duration, word. NIST's STM: name, channel, speaker, begin,
  // end, perhaps <labels>, text.
  void add(const Line& line, bool is_stm) {
    std::string_view rest = trimmed(line.text);
    if (rest.empty() || rest.starts_with(";;")) return;
    std::string name(take_word(rest));
    const std::string_view channel = take_word(rest);
    if (channel != "1" && channel != "A") name += " " + std::string(channel);
    if (is_stm) take_word(rest);
    const double begin = number_of(line, take_word(rest));
    number_of(line, take_word(rest));
    if (is_stm && rest.starts_with('<') && rest.find('>') != std::string_view::npos &&
        rest.find('>') < rest.find(' '))
      take_word(rest);
    const std::string_view text = is_stm ? rest : take_word(rest);
    if (text.empty() && !is_stm) line.fail("expected a name, a channel, two times and a word");
    // A part that the evaluation leaves out.
    if (is_stm && text == "ignore_time_segment_in_scoring") return;
    const auto [found, is_new] = recordings_.try_emplace(name, line.number, std::vector<Part>());
    if (is_new) order_.push_back(name);
    found->second.second.push_back({begin, text});
  }

  std::vector<NamedText> take() {
    std::vector<NamedText> texts;
    for (const std::string& name : order_) {
      auto& [first_line, parts] = recordings_[name];
      std::stable_sort(parts.begin(), parts.end(),
                       [](const Part& a, const Part& b) { return a.begin < b.begin; });
      NamedText t{name, {}, first_line, {}};
      for (const Part& p : parts) t.text += (t.text.empty() ? "" : " ") + std::string(p.text);
      texts.push_back(std::move(t));
    }
    return texts;
  }

 private:
  struct Part {
    double begin;
    std::string_view text;
  };
  std::map<std::string, std::pair<size_t, std::vector<Part>>> recordings_;  // with their first line
  std::vector<std::string> order_;
};

// Utterances that were found in one recording have the time at which they begin.
void join_parts(NamedText& whole, const NamedText& part) {
  whole.text += " " + part.text;
  whole.fields["begin"] = part.fields.at("begin");
}

bool goes_on(const NamedText& whole, const NamedText& part) {
  const auto begin = [](const NamedText& t) -> std::optional<double> {
    const auto found = t.fields.find("begin");
    if (found == t.fields.end()) return std::nullopt;
    double value = 0;
    const std::string& s = found->second;
    const auto result = std::from_chars(s.data(), s.data() + s.size(), value);
    return result.ec == std::errc() ? std::optional(value) : std::nullopt;
  };
  const auto first = begin(whole), second = begin(part);
  return first && second && *first < *second;
}

// Each name once.
std::vector<NamedText> joined(const std::string& file, std::vector<NamedText> texts) {
  std::map<std::string, size_t> places;
  std::vector<NamedText> all;
  for (NamedText& t : texts) {
    const auto [found, is_new] = places.try_emplace(t.name, all.size());
    if (is_new) {
      all.push_back(std::move(t));
      continue;
    }
    NamedText& before = all[found->second];
    if (!goes_on(before, t)) {
      fail_input(file, ":", t.line, ": '", printable_start(t.name, quoted), "' has a text in line ",
                 before.line, " already");
    }
    join_parts(before, t);
  }
  return all;
}

std::string joined_lines(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : " ") + text;
  std::replace(all.begin(), all.end(), '\n', ' ');
  return all;
}

std::string stem_of(const std::string& name) { return std::filesystem::path(name).stem(); }

using Places = std::map<std::string, const NamedText*>;

template <class NameOf>
Places places_of(const std::vector<NamedText>& texts, NameOf name_of) {
  Places places;
  for (const NamedText& t : texts) places.emplace(name_of(t.name), &t);
  return places;
}

template <class NameOf>
TextPairs pairs_by(const NamedTexts& references, const NamedTexts& hypotheses, NameOf name_of) {
  TextPairs pairs;
  const Places there = places_of(hypotheses.texts, name_of);
  const Places wanted = places_of(references.texts, name_of);
  for (const NamedText& r : references.texts) {
    const auto found = there.find(name_of(r.name));
    pairs.hypotheses.push_back(found == there.end() ? nullptr : found->second);
  }
  for (const NamedText& h : hypotheses.texts) {
    if (!wanted.contains(name_of(h.name))) pairs.left_over.push_back(&h);
  }
  return pairs;
}

bool finds_none(const TextPairs& pairs) {
  return std::all_of(pairs.hypotheses.begin(), pairs.hypotheses.end(),
                     [](const NamedText* h) { return h == nullptr; });
}

}  // namespace

NamedTexts parse_named_texts(std::string_view content, const std::string& file, bool ids,
                             TextRole role) {
  const std::vector<std::string_view> lines = split_lines(content);
  const std::string ending = ending_of(file);
  const bool is_json = ending == ".jsonl" || ending == ".json", is_trn = ending == ".trn";
  const bool is_stm = ending == ".stm", is_timed = is_stm || ending == ".ctm";
  const bool is_of_subtitles = ending == ".srt" || ending == ".vtt";
  if (ending == ".csv")
    fail_input(file, ": is a table, expected .jsonl ('rondo prepare csv' makes it), .trn, .ctm, ",
               ".stm, .srt, .vtt, or a text in each line");
  const bool told = is_json || is_trn || ids || is_timed;
  const bool by_tabs = !told && !is_of_subtitles && names_before_tabs(lines);
  NamedTexts all{file, told || by_tabs, by_tabs, {}};
  TimedTexts timed;
  for (size_t i = 0; i < lines.size() && !is_of_subtitles; ++i) {
    const Line line{file, i + 1, lines[i]};
    if (is_timed) timed.add(line, is_stm);
    if (is_timed || (all.named && trimmed(line.text).empty())) continue;
    if (is_trn && line.text.starts_with(";;")) continue;
    NamedText t = is_json   ? of_json_line(line, role)
                  : is_trn  ? of_trn_line(line)
                  : ids     ? of_id_line(line)
                  : by_tabs ? of_tab_line(line)
                            : NamedText{{}, std::string(line.text), 0, {}};
    t.line = i + 1;
    all.texts.push_back(std::move(t));
  }
  if (is_timed) all.texts = timed.take();
  if (is_of_subtitles) all.texts = {{{}, joined_lines(texts_of_subtitles(content, file)), 1, {}}};
  // An end of the last line is no line of its own.
  if (!all.named && !all.texts.empty() && content.ends_with('\n') && all.texts.back().text.empty())
    all.texts.pop_back();
  for (const NamedText& t : all.texts) {
    if (!is_utf8(t.text)) Line{file, t.line, {}}.fail("is not UTF-8");
  }
  if (all.named) all.texts = joined(file, std::move(all.texts));
  if (all.texts.empty()) fail_input(file, ": has no text");
  return all;
}

NamedTexts read_named_texts(const std::string& file, bool ids, TextRole role) {
  return parse_named_texts(corpus::read_text(file), file, ids, role);
}

TextPairs pair_texts(const NamedTexts& references, const NamedTexts& hypotheses) {
  const bool one_by_tabs = references.named != hypotheses.named &&
                           (references.named_by_tabs || hypotheses.named_by_tabs);
  if (references.named != hypotheses.named && !one_by_tabs) {
    const NamedTexts& without = references.named ? hypotheses : references;
    const NamedTexts& with = references.named ? references : hypotheses;
    fail_input(without.file, ": has lines without names, and ", with.file,
               " has names; --ids is for lines that begin with them");
  }
  if (!references.named || !hypotheses.named) {
    if (references.texts.size() != hypotheses.texts.size()) {
      fail_input(hypotheses.file, ": has ", hypotheses.texts.size(), " lines, expected ",
                 references.texts.size(), ", those of ", references.file);
    }
    TextPairs pairs;
    pairs.names_left_out = one_by_tabs;
    for (const NamedText& h : hypotheses.texts) pairs.hypotheses.push_back(&h);
    return pairs;
  }
  TextPairs pairs = pairs_by(references, hypotheses, [](const std::string& n) { return n; });
  if (!finds_none(pairs)) return pairs;
  // Two files of one name in different folders could not be told apart.
  const auto stem = [](const std::string& n) { return stem_of(n); };
  const bool are_different = places_of(references.texts, stem).size() == references.texts.size() &&
                             places_of(hypotheses.texts, stem).size() == hypotheses.texts.size();
  if (are_different) pairs = pairs_by(references, hypotheses, stem);
  if (finds_none(pairs)) {
    fail_input(hypotheses.file, ": has none of the names of ", references.file, ": '",
               printable_start(hypotheses.texts.front().name, quoted), "' here, '",
               printable_start(references.texts.front().name, quoted), "' there");
  }
  pairs.by_file_names = true;
  return pairs;
}

std::map<std::string, std::string> read_speakers(const std::string& file) {
  std::map<std::string, std::string> speakers;
  for (corpus::KeyedLine& line : corpus::keyed_lines(file)) {
    if (line.value.empty())
      fail_input(file, ":", line.number, ": expected an utterance and its speaker");
    speakers[line.key] = std::move(line.value);
  }
  return speakers;
}

}  // namespace rondo
