#include "tools/prepare/list_summary.h"

#include <algorithm>
#include <cstdio>

#include "engine/text/unicode.h"
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
    all += " " + (character == " " ? std::string("space") : character);
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
      "  %zu too rare to be learnt, fewer than %lld times (%lld of them once): %s%s\n", few.size(),
      static_cast<long long>(rare), static_cast<long long>(once), named.c_str(),
      few.size() > most_named ? str(" and ", few.size() - most_named, " more").c_str() : "");
}

void print_never_found(const DataSummary& s) {
  std::string all;
  for (const TextReplacement& r : s.never_found) all += str(all.empty() ? "" : ", ", r.text());
  if (!all.empty()) std::printf("never found: %s\n", all.c_str());
}

void print_problems(const std::string& title, const std::vector<DataSummary::Problem>& problems,
                    int64_t listed) {
  std::printf("%s: %zu of %lld\n", title.c_str(), problems.size(), static_cast<long long>(listed));
  for (size_t i = 0; i < std::min<size_t>(problems.size(), 10); ++i) {
    std::printf("  %s%s%s\n", problems[i].where.c_str(), problems[i].where.empty() ? "" : ": ",
                problems[i].what.c_str());
  }
  if (problems.size() > 10) std::printf("  and %zu more\n", problems.size() - 10);
}

}  // namespace

void print_summary(const DataSummary& s, InputKind kind) {
  kind == InputKind::image ? print_lines(s) : print_recordings(s);
  std::printf("divided %s\n", s.division.c_str());
  print_characters(s);
  print_never_found(s);
  for (const auto& [cause, problems] : s.left_out)
    print_problems("left out, " + cause, problems, s.listed);
  if (!s.pages.empty()) print_problems("warning, pages given as lines", s.pages, s.listed);
}

}  // namespace rondo
