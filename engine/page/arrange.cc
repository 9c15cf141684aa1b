#include <algorithm>
#include <numeric>

#include "engine/page/page_writers.h"
#include "engine/text/characters.h"
#include "engine/text/unicode.h"

namespace rondo {
namespace {

bool is_blank(const std::string& text) {
  const std::vector<char32_t> characters = code_points(text);
  return std::all_of(characters.begin(), characters.end(), is_white_space);
}

// The labels of one character as readers see it, a letter and its combining marks, in one. A mark
// behind a space stands alone.
std::vector<SeenLabel> whole_characters(std::span<const SeenLabel> labels) {
  std::vector<SeenLabel> whole;
  for (const SeenLabel& l : labels) {
    const bool joins =
        !whole.empty() && !is_blank(whole.back().text) && !is_blank(l.text) &&
        continues_character(code_points(whole.back().text).back(), code_points(l.text).front());
    if (!joins) {
      whole.push_back(l);
      continue;
    }
    SeenLabel& all = whole.back();
    all.text += l.text;
    all.begin = std::min(all.begin, l.begin);
    all.end = std::max(all.end, l.end);
    all.probability = std::min(all.probability, l.probability);
  }
  return whole;
}

struct Reach {
  double first = 0, last = 0;
};

// Of each label, in their order.
std::vector<Reach> reaches_of(std::span<const SeenLabel> labels, double first, double last) {
  std::vector<size_t> seen(labels.size());
  std::iota(seen.begin(), seen.end(), size_t{0});
  std::stable_sort(seen.begin(), seen.end(),
                   [&](size_t a, size_t b) { return labels[a].begin < labels[b].begin; });
  std::vector<Reach> reaches(labels.size(), Reach{first, last});
  for (size_t i = 0; i + 1 < seen.size(); ++i) {
    const double cut = (labels[seen[i]].end + labels[seen[i + 1]].begin) / 2;
    reaches[seen[i]].last = reaches[seen[i + 1]].first = std::clamp(cut, first, last);
  }
  if (seen.size() > 1) {
    const size_t a = seen.front(), z = seen.back();
    reaches[a].first = std::max(labels[a].begin - (reaches[a].last - labels[a].end), first);
    reaches[z].last = std::min(labels[z].end + (labels[z].begin - reaches[z].first), last);
  }
  return reaches;
}

}  // namespace

ReadLine arrange(std::span<const SeenLabel> seen, double first, double last) {
  const std::vector<SeenLabel> labels = whole_characters(seen);
  const std::vector<Reach> reaches = reaches_of(labels, first, last);
  ReadLine line;
  bool begins = true;
  for (size_t i = 0; i < labels.size(); ++i) {
    const SeenLabel& l = labels[i];
    line.confidence += l.probability / static_cast<double>(labels.size());
    if (is_blank(l.text)) {
      begins = true;
      continue;
    }
    if (begins) {
      if (!line.words.empty()) line.text += ' ';
      line.words.emplace_back();
    }
    begins = false;
    line.text += l.text;
    line.words.back().push_back({l.text, reaches[i].first, reaches[i].last, l.probability});
  }
  return line;
}

}  // namespace rondo
