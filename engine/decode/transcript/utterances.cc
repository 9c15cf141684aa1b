#include "engine/decode/transcript/utterances.h"

#include <algorithm>
#include <limits>

namespace rondo {
namespace {

// What stands before a word, or behind the last one.
struct Gap {
  double begin = 0, end = 0;
  // What an utterance that ends here may hold of it, and one that begins here.
  double left_end = 0, right_begin = 0;
  bool must_cut = false;
};

std::vector<Gap> gaps_of(const AlignedText& text, double seconds, double margin) {
  const auto& words = text.transcript.words;
  std::vector<Gap> gaps;
  auto unwritten = text.unwritten.begin();
  for (size_t i = 0; i <= words.size(); ++i) {
    Gap g;
    g.begin = i == 0 ? 0 : words[i - 1].end;
    g.end = i == words.size() ? std::max(seconds, g.begin) : std::max(words[i].begin, g.begin);
    const double middle = i == 0 ? g.begin : i == words.size() ? g.end : (g.begin + g.end) / 2;
    g.left_end = g.right_begin = middle;
    for (; unwritten != text.unwritten.end() && unwritten->begin < g.end; ++unwritten) {
      if (!g.must_cut) g.left_end = unwritten->begin;
      g.right_begin = unwritten->end;
      g.must_cut = true;
    }
    g.left_end = std::min(g.left_end, g.begin + margin);
    g.right_begin = std::max(g.right_begin, g.end - margin);
    gaps.push_back(g);
  }
  return gaps;
}

// Of a cut: one whole, and more the shorter the pause is.
double cost_of(const Gap& gap, double pause) {
  const double length = gap.end - gap.begin;
  if (gap.must_cut) return 1;
  const double missing = pause > 0 ? std::max(0.0, 1 - length / pause) : 0;
  return 1 + 4 * missing + 0.1 / (1 + length);
}

}  // namespace

std::vector<Utterance> split_into_utterances(const AlignedText& text, double seconds,
                                             const UtteranceOptions& o) {
  const auto& words = text.transcript.words;
  const std::vector<Gap> gaps = gaps_of(text, seconds, o.margin);
  const size_t n = words.size();
  // The least cost of utterances of the words before each, and where the last of them begins.
  std::vector<double> best(n + 1, std::numeric_limits<double>::infinity());
  std::vector<size_t> from(n + 1, 0);
  best[0] = 0;
  for (size_t end = 1; end <= n; ++end) {
    for (size_t first = end; first-- > 0;) {
      const bool fits = gaps[end].left_end - gaps[first].right_begin <= o.longest;
      if (!fits && first + 1 < end) break;
      const double cost = best[first] + cost_of(gaps[end], end == n ? 0 : o.pause);
      if (cost < best[end]) {
        best[end] = cost;
        from[end] = first;
      }
      if (gaps[first].must_cut) break;
    }
  }
  std::vector<Utterance> utterances;
  for (size_t end = n; end > 0; end = from[end]) {
    Utterance u;
    u.first_word = static_cast<int32_t>(from[end]);
    u.end_word = static_cast<int32_t>(end);
    u.begin = gaps[from[end]].right_begin;
    u.end = std::min(gaps[end].left_end, seconds);
    u.score = text.score(u.begin, u.end);
    for (size_t w = from[end]; w < end; ++w) u.probability += words[w].probability;
    u.probability /= static_cast<double>(end - from[end]);
    utterances.push_back(u);
  }
  std::reverse(utterances.begin(), utterances.end());
  return utterances;
}

}  // namespace rondo
