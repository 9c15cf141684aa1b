#include "tools/prepare/list_summary.h"

#include <algorithm>
#include <cstdio>

#include "engine/report/progress.h"
#include "engine/text/characters.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

std::string length_text(double seconds) {
  char text[32];
  const bool hours = seconds >= 3600;
  std::snprintf(text, sizeof text, hours ? "%.1f h" : "%.1f min", seconds / (hours ? 3600 : 60));
  return text;
}

void print_lines(const DataSummary& s) {
  std::printf("%-8s %8s %10s %8s %9s %9s %8s %8s\n", "", "lines", "characters", "words", "folders",
              "narrowest", "median", "widest");
  for (const DataSummary::Part& p : s.parts) {
    std::printf("%-8s %8lld %10lld %8lld %9s %9.0f %8.0f %8.0f\n", p.name.c_str(),
                static_cast<long long>(p.utterances), static_cast<long long>(p.characters),
                static_cast<long long>(p.words),
                p.groups > 0 ? std::to_string(p.groups).c_str() : "-", p.shortest, p.median,
                p.longest);
  }
  std::printf("widths: pixels once a line is scaled to a height of %d\n", LineConfig().height);
}

void print_recordings(const DataSummary& s) {
  std::printf("%-8s %10s %9s %9s %9s %9s %9s %9s\n", "", "utterances", "length", "speakers",
              "words", "shortest", "median", "longest");
  for (const DataSummary::Part& p : s.parts) {
    std::printf("%-8s %10lld %9s %9s %9lld %8.1fs %8.1fs %8.1fs\n", p.name.c_str(),
                static_cast<long long>(p.utterances), length_text(p.length).c_str(),
                p.groups > 0 ? std::to_string(p.groups).c_str() : "-",
                static_cast<long long>(p.words), p.shortest, p.median, p.longest);
  }
}

// All by how they look; the rare ones by name, of these the most frequent first: a few more texts
// make those learnt, and what is there once is often a slip of whoever typed.
void print_characters(const DataSummary& s) {
  constexpr int64_t rare = 5;
  constexpr size_t most_named = 10;
  std::string all;
  std::vector<std::pair<std::string, int64_t>> few;
  int64_t once = 0;
  for (const auto& [character, count] : s.characters) {
    const char32_t c = code_points(character).front();
    // What has no picture is called by its number.
    all += " " + (c == U' ' ? "space" : is_invisible(c) ? describe(c) : printable(character));
    if (count < rare) few.emplace_back(character, count);
    once += count == 1;
  }
  std::printf("%zu characters:%s\n", s.characters.size(), all.c_str());
  if (few.empty()) return;
  std::stable_sort(few.begin(), few.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string named;
  for (size_t i = 0; i < std::min(few.size(), most_named); ++i) {
    const auto& [character, count] = few[i];
    named += str(i ? ", " : "", describe(code_points(character).front()), " ",
                 count == 1 ? "once" : str(count, " times"));
  }
  std::printf(
      "  %zu too rare to be learnt, fewer than %lld times%s: %s%s\n", few.size(),
      static_cast<long long>(rare), once > 0 ? str(" (", once, " of them once)").c_str() : "",
      named.c_str(),
      few.size() > most_named ? str(" and ", few.size() - most_named, " more").c_str() : "");
}

void print_texts(const TextFindings& texts) {
  for (const TextFinding& f : texts.findings) {
    std::printf("texts, %s\n", f.sentence(texts.texts).c_str());
    if (!f.advice.empty()) std::printf("  %s\n", f.advice.c_str());
  }
  if (texts.replacements.empty()) return;
  std::printf("in a file for --replace, these lines make one of what looks alike:\n");
  for (const std::string& line : texts.replacements) std::printf("%s\n", line.c_str());
}

void print_classes(const DataSummary& s) {
  std::string all;
  for (const auto& [name, count] : s.classes)
    all += str(all.empty() ? " " : ", ", name, " ", count);
  std::printf("%zu classes:%s\n", s.classes.size(), all.c_str());
}

void print_never_found(const DataSummary& s) {
  std::string all;
  for (const TextReplacement& r : s.never_found) all += str(all.empty() ? "" : ", ", r.text());
  if (!all.empty()) std::printf("never found: %s\n", printable(all).c_str());
}

// What was found, first by numbers and then each kind with its first examples.
void print_findings(const DataSummary& s, const char* noun) {
  const int64_t left_out = s.findings.left_out();
  std::printf("%s found, %lld used%s\n", counted(s.listed, noun).c_str(),
              static_cast<long long>(s.listed - left_out),
              left_out > 0 ? str(", ", left_out, " left out").c_str() : "");
  for (const auto& [finding, found] : s.findings.all()) {
    const corpus::FindingKind& kind = corpus::kind_of(finding);
    const bool are_files =
        finding == corpus::Finding::passed_over || finding == corpus::Finding::unread_list;
    std::printf("%s, %s: %lld%s\n", kind.leaves_out ? "left out" : "warning", kind.title,
                static_cast<long long>(found.count),
                are_files ? "" : str(" of ", s.listed).c_str());
    for (const corpus::Findings::Example& e : found.examples)
      std::printf("  %s%s%s\n", e.where.c_str(), e.where.empty() ? "" : ": ", e.what.c_str());
    const auto more = found.count - static_cast<int64_t>(found.examples.size());
    if (more > 0) std::printf("  and %lld more\n", static_cast<long long>(more));
    if (*kind.hint != '\0') std::printf("  (%s)\n", kind.hint);
  }
}

// Which rates there are, and what was looked into.
void print_examination(const DataSummary& s) {
  std::string rates;
  for (const auto& [rate, count] : s.rates)
    rates += str(rates.empty() ? "" : ", ", count, " of ", rate, " Hz");
  if (!rates.empty()) std::printf("sample rates: %s\n", rates.c_str());
  if (s.decoded < s.listed)
    std::printf("decoded: %lld of %lld; of the others the headers were read\n",
                static_cast<long long>(s.decoded), static_cast<long long>(s.listed));
}

}  // namespace

void print_summary(const DataSummary& s, InputKind kind) {
  kind == InputKind::image ? print_lines(s) : print_recordings(s);
  std::printf("divided %s\n", s.division.c_str());
  s.classes.empty() ? print_characters(s) : print_classes(s);
  print_never_found(s);
  print_texts(s.texts);
  if (kind == InputKind::recording) print_examination(s);
  print_findings(s, noun_of(kind));
}

}  // namespace rondo
