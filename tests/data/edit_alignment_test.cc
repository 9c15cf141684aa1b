// engine/text: which word stands for which, and how far error rates may be off.
#include "engine/text/edit_alignment.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "engine/text/bootstrap.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

std::vector<Edit> edits_of(std::u32string_view reference, std::u32string_view hypothesis) {
  return align_edits(std::span<const char32_t>(reference), std::span<const char32_t>(hypothesis));
}

std::string letters_of(std::span<const Edit> edits) {
  std::string s;
  for (const Edit e : edits) s += static_cast<char>(e);
  return s;
}

std::u32string random_text(std::mt19937& random, size_t most, unsigned letters) {
  std::u32string s;
  for (size_t i = random() % (most + 1); i > 0; --i) s += U'a' + random() % letters;
  return s;
}

// All alignments by recursion from the ends, where a pair goes before a deletion and a deletion
// before an insertion; the first of the best. For short texts.
struct Best {
  int64_t errors = 0, substitutions = 0;
  std::string path;
};
Best best_of(std::u32string_view a, std::u32string_view b) {
  if (a.empty() && b.empty()) return {};
  std::vector<Best> ways;
  if (!a.empty() && !b.empty()) {
    const bool equal = a.back() == b.back();
    Best way = best_of(a.substr(0, a.size() - 1), b.substr(0, b.size() - 1));
    way.errors += !equal;
    way.substitutions += !equal;
    way.path += equal ? '=' : 's';
    ways.push_back(way);
  }
  if (!a.empty()) {
    Best way = best_of(a.substr(0, a.size() - 1), b);
    ++way.errors;
    way.path += 'd';
    ways.push_back(way);
  }
  if (!b.empty()) {
    Best way = best_of(a, b.substr(0, b.size() - 1));
    ++way.errors;
    way.path += 'i';
    ways.push_back(way);
  }
  return *std::min_element(ways.begin(), ways.end(), [](const Best& x, const Best& y) {
    return x.errors != y.errors ? x.errors < y.errors : x.substitutions > y.substitutions;
  });
}

// Whether the edits turn one text into the other.
void check_replay(std::span<const Edit> edits, std::u32string_view a, std::u32string_view b) {
  size_t i = 0, j = 0;
  bool right = true;
  for (const Edit e : edits) {
    if (e == Edit::equal || e == Edit::substitution) {
      right = right && i < a.size() && j < b.size() && (a[i] == b[j]) == (e == Edit::equal);
    }
    i += e != Edit::insertion;
    j += e != Edit::deletion;
  }
  CHECK((right && i == a.size() && j == b.size()));
}

}  // namespace

TEST_CASE("an alignment is the first of the best of all", "[text]") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const std::u32string a = random_text(random, 6, 3), b = random_text(random, 6, 3);
    CHECK(letters_of(edits_of(a, b)) == best_of(a, b).path);
  }
}

TEST_CASE("counts of an alignment are those of the error rate", "[text]") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 600; ++trial) {
    // Some are wider apart than the first band, some have blocks of several rows.
    const size_t most = trial % 3 == 0 ? 200 : 40;
    const std::u32string a = random_text(random, most, 2 + trial % 7);
    std::u32string b = random_text(random, most, 2 + trial % 7);
    if (trial % 2) {  // alike
      b = a;
      for (unsigned k = random() % 9; k > 0 && !b.empty(); --k) b[random() % b.size()] = U'z';
      for (unsigned k = random() % 9; k > 0 && !b.empty(); --k) b.erase(random() % b.size(), 1);
      for (unsigned k = random() % 9; k > 0; --k) b.insert(random() % (b.size() + 1), 1, U'y');
    }
    const std::vector<Edit> edits = edits_of(a, b);
    CHECK(counts_of(edits) ==
          edit_counts(std::span<const char32_t>(a), std::span<const char32_t>(b)));
    check_replay(edits, a, b);
  }
}

TEST_CASE("texts that are shifted are aligned, however far", "[text]") {
  // Different characters in a row, which the other text has so many places earlier or later.
  std::u32string row;
  for (char32_t c = 0; c < 400; ++c) row += 0x4e00 + c;
  for (size_t shift = 0; shift <= 40; ++shift) {
    const std::u32string junk(shift, U'x');
    for (const size_t more : {size_t{0}, size_t{1}, size_t{17}}) {
      const std::u32string longer = junk + row + std::u32string(more, U'z');
      const std::u32string later = row + std::u32string(shift, U'y');
      const auto n = static_cast<int64_t>(shift), m = static_cast<int64_t>(more);
      const int64_t changed = std::min(n, m);  // of what stands behind the row in both
      const EditCounts there = counts_of(edits_of(later, longer));
      CHECK(there == EditCounts{changed, n + m - changed, n - changed, 400 + n});
      const EditCounts back = counts_of(edits_of(longer, later));
      CHECK(back == EditCounts{changed, n - changed, n + m - changed, 400 + n + m});
    }
  }
}

TEST_CASE("of equal paths substitutions are taken", "[text]") {
  CHECK(letters_of(edits_of(U"ab", U"ba")) == "ss");  // not "d=i" or "i=d"
  CHECK(letters_of(edits_of(U"aa", U"a")) == "d=");
  CHECK(letters_of(edits_of(U"a", U"aa")) == "i=");
  CHECK(letters_of(edits_of(U"", U"")) == "");
  CHECK(letters_of(edits_of(U"", U"xy")) == "ii");
  CHECK(letters_of(edits_of(U"xy", U"")) == "dd");
}

TEST_CASE("transcripts are aligned as error rates compare them", "[text]") {
  const AlignedTranscripts t = align_transcripts("seven six  three\tone", "uh seven six tree");
  CHECK(t.word_counts == EditCounts{1, 1, 1, 4});
  std::string said;
  for (const TextEdit& e : t.words) {
    said += str(static_cast<char>(e.edit), "[", e.reference, "|", e.hypothesis, "]");
  }
  CHECK(said == "i[|uh]=[seven|seven]=[six|six]d[three|]s[one|tree]");
  // One code point in both normal forms, and one of four bytes.
  const AlignedTranscripts c = align_transcripts("caf\xc3\xa9", "cafe\xcc\x81\xf0\x90\x8d\x88");
  CHECK(c.character_counts == EditCounts{0, 1, 0, 4});
  CHECK(c.characters[3].reference == "\xc3\xa9");
  CHECK(c.characters[4].hypothesis == "\xf0\x90\x8d\x88");
  CHECK_THROWS_AS(align_transcripts("\xff", ""), InputError);
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    std::string a, b;
    for (unsigned i = random() % 20; i > 0; --i) a += "ab \t"[random() % 4];
    for (unsigned i = random() % 20; i > 0; --i) b += "ab \t"[random() % 4];
    ErrorRate rate;
    rate.add(a, b);
    const AlignedTranscripts aligned = align_transcripts(a, b);
    CHECK(aligned.word_counts == rate.words());
    CHECK(aligned.character_counts == rate.characters());
  }
}

TEST_CASE("a text of 100,000 words is aligned in a band", "[slow][text]") {
  std::mt19937 random(9);
  std::vector<std::string> reference, hypothesis;
  EditCounts made;
  for (int i = 0; i < 100000; ++i) {
    const std::string word = std::to_string(random() % 5000);
    reference.push_back(word);
    // Errors stand far apart, with words of their own, so that nothing is cheaper than these.
    if (i % 1000 == 100) {
      ++made.deletions;
      continue;
    }
    if (i % 1000 == 400) {
      ++made.insertions;
      hypothesis.push_back("uh");
    }
    if (i % 1000 == 700) ++made.substitutions;
    hypothesis.push_back(i % 1000 == 700 ? "?" : word);
  }
  made.reference = 100000;
  // A whole table would take most of a minute, and 10 GB.
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Edit> edits = align_edits(reference, hypothesis);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(counts_of(edits) == made);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(took.count() < 15);
#endif
}

TEST_CASE("the interval of a rate is that of its distribution", "[text]") {
  CHECK_FALSE(bootstrap_interval({}));
  const std::vector<EditCounts> one = {{1, 0, 0, 4}};
  CHECK_FALSE(bootstrap_interval(one));
  const std::vector<EditCounts> nothing = {{0, 1, 0, 0}, {0, 0, 0, 0}};
  CHECK_FALSE(bootstrap_interval(nothing));
  // 2,000 utterances of one word, a tenth of them wrong: a binomial distribution.
  std::vector<EditCounts> many(2000, {0, 0, 0, 1});
  for (size_t i = 0; i < many.size(); i += 10) many[i].substitutions = 1;
  const auto interval = bootstrap_interval(many);
  REQUIRE(interval);
  const double half = 1.96 * std::sqrt(0.1 * 0.9 / 2000);
  CHECK(interval->low == Approx(0.1 - half).margin(0.15 * half));
  CHECK(interval->high == Approx(0.1 + half).margin(0.15 * half));
  const auto again = bootstrap_interval(many);
  CHECK(again->low == interval->low);
  CHECK(again->high == interval->high);
  // Two utterances are drawn twice each or once both: rates 0, 1/4 and 1/2 with 1/4, 1/2, 1/4.
  const std::vector<EditCounts> two = {{0, 0, 0, 2}, {1, 0, 0, 2}};
  CHECK(bootstrap_interval(two)->low == 0);
  CHECK(bootstrap_interval(two)->high == 0.5);
  const std::vector<EditCounts> right(50, {0, 0, 0, 3});
  CHECK(bootstrap_interval(right)->high == 0);
  CHECK(bootstrap_difference(right, right)->low == 0);
}

TEST_CASE("an interval ends between the two nearest of the thousand rates", "[slow][text]") {
  // Rates are multiples of 1/n. Of 1000 in order the 2.5 percentile lies at 0.025 * 999 = 24.975,
  // counted from 0, the 97.5 percentile at 974.025.
  int between_low = 0, between_high = 0;
  for (size_t n = 20; n < 400; ++n) {
    std::vector<EditCounts> utterances(n, {0, 0, 0, 1});
    for (size_t i = 0; i < n; i += 3) utterances[i].substitutions = 1;
    const auto interval = bootstrap_interval(utterances);
    const double low = interval->low * static_cast<double>(n),
                 high = interval->high * static_cast<double>(n);
    INFO(n << " utterances: " << low << " to " << high);
    const bool whole_low = std::abs(low - std::round(low)) < 1e-9,
               whole_high = std::abs(high - std::round(high)) < 1e-9;
    if (!whole_low) CHECK(low - std::floor(low) == Approx(0.975));
    if (!whole_high) CHECK(high - std::floor(high) == Approx(0.025));
    between_low += !whole_low;
    between_high += !whole_high;
  }
  CHECK(between_low > 0);
  CHECK(between_high > 0);
}

TEST_CASE("the interval holds the true rate about as often as it says", "[slow][text]") {
  // Words of an utterance are wrong together: each utterance of 1 to 8 words has its own rate.
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform;
  int held = 0;
  constexpr int worlds = 200;
  for (int w = 0; w < worlds; ++w) {
    std::vector<EditCounts> utterances(200);
    for (EditCounts& u : utterances) {
      u.reference = 1 + static_cast<int64_t>(random() % 8);
      const double rate = uniform(random) < 0.2 ? 0.5 : 0.0;
      for (int64_t k = 0; k < u.reference; ++k) u.substitutions += uniform(random) < rate;
    }
    const auto interval = bootstrap_interval(utterances);
    held += interval->low <= 0.1 && 0.1 <= interval->high;
  }
  CHECK(held >= worlds * 0.90);
  CHECK(held <= worlds * 0.99);
}

TEST_CASE("the difference of two systems is resampled in pairs", "[bootstrap]") {
  // The second has one error more in each tenth utterance; the first's own errors vary far more.
  std::vector<EditCounts> first, second;
  for (int i = 0; i < 200; ++i) {
    first.push_back({i % 7, 0, 0, 10});
    second.push_back({i % 7 + (i % 10 == 0), 0, 0, 10});
  }
  const auto difference = bootstrap_difference(first, second);
  REQUIRE(difference);
  // The mean is 0.01, of 200 draws with a share of 0.1: 0.01 -+ 1.96 * 0.1 sqrt(0.09 / 200).
  CHECK(difference->low == Approx(0.01 - 0.00416).margin(0.0008));
  CHECK(difference->high == Approx(0.01 + 0.00416).margin(0.0008));
  const auto back = bootstrap_difference(second, first);
  CHECK(back->low == Approx(-difference->high));
  CHECK(back->high == Approx(-difference->low));
  // As between any system and one that is always right.
  const std::vector<EditCounts> right(200, EditCounts{0, 0, 0, 10});
  CHECK(bootstrap_difference(right, first)->high == Approx(bootstrap_interval(first)->high));
  CHECK_FALSE(bootstrap_difference({}, {}));
  CHECK_THROWS_AS(bootstrap_difference(first, std::span(second).first(9)), Error);
}
