#include "engine/lm/kenlm/kenlm_layout.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

#include "kernels/base/error.h"

namespace rondo::lm {
namespace {

enum Kind : uint32_t { probing, rest_probing, trie, quantized_trie, array_trie, quantized_array };

// Finds where everything is. All that is read without a check afterwards lies within the file.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name)
      : name_(name), size_(bytes.size()) {
    m_.bytes = bytes;
  }

  KenlmLayout read() {
    read_header();
    if (m_.is_trie) {
      lay_out_trie();
    } else {
      lay_out_hash_tables();
    }
    if (at_ > size_) fail_short(str("at least ", at_));
    read_vocabulary();
    number_states();
    return std::move(m_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    fail_input(name_, ": ", args...);
  }
  [[noreturn]] void fail_short(const std::string& expected) const {
    fail("is damaged: it has ", size_, " bytes, expected ", expected);
  }
  static constexpr const char* remedy = ": make it anew from its ARPA file by KenLM's build_binary";

  const std::byte* place(uint64_t at, uint64_t bytes) const {
    if (bytes > size_ || at > size_ - bytes) fail_short(str("at least ", at + bytes));
    return m_.bytes.data() + at;
  }
  template <class T>
  T value(uint64_t at) const {
    T value;
    std::memcpy(&value, place(at, sizeof value), sizeof value);
    return value;
  }
  // The next part of the file; whether it has that much is checked at the end.
  const std::byte* take(uint64_t bytes) {
    const std::byte* start = m_.bytes.data() + std::min(at_, size_);
    at_ += bytes;
    return start;
  }

  void check_magic() const {
    const std::string_view start(reinterpret_cast<const char*>(m_.bytes.data()),
                                 std::min<uint64_t>(size_, 88));
    std::string_view rest = start.substr(kenlm_magic.size());
    if (rest.starts_with("incomplete")) {
      fail("is a binary of KenLM that was not made to its end: run build_binary again");
    }
    constexpr std::string_view words = "format version ";
    uint32_t version = 0;
    if (rest.starts_with(words)) {
      rest.remove_prefix(words.size());
      std::from_chars(rest.data(), rest.data() + rest.size(), version);
    }
    if (version != 5) {
      fail("is a binary of KenLM of version ", version, ", expected 5", remedy);
    }
    place(0, 88);
    // What stands there where numbers are as here: 0.0f, 1.0f, -0.5f, 1, 2^32 - 1, padding, 1.
    constexpr uint32_t numbers[8] = {0, 0x3f800000, 0xbf000000, 1, UINT32_MAX, 0, 1, 0};
    if (std::memcmp(start.data() + 56, numbers, sizeof numbers) != 0) {
      fail("is a binary of KenLM of a machine with another byte order or word size", remedy);
    }
  }

  void read_header() {
    check_magic();
    const auto order = value<uint8_t>(88);
    multiplier_ = value<float>(92);
    const auto kind = value<uint32_t>(96);
    const bool has_texts = value<uint8_t>(100) != 0;
    const auto version = value<uint32_t>(104);
    if (kind == rest_probing) {
      fail("is a binary of KenLM with rest costs, expected the kind probing or trie", remedy,
           " without -r");
    }
    if (kind > quantized_array) {
      fail("is a binary of KenLM of kind ", kind, ", expected probing or trie", remedy);
    }
    m_.is_trie = kind != probing;
    quantized_ = kind == quantized_trie || kind == quantized_array;
    array_ = kind == array_trie || kind == quantized_array;
    const uint32_t known = m_.is_trie ? 1 : 0;
    if (version != known) {
      fail("is a binary of KenLM whose kind ", m_.is_trie ? "trie" : "probing", " is of version ",
           version, ", expected ", known, remedy);
    }
    if (!has_texts) {
      fail("is a binary of KenLM without the texts of its words", remedy, " without -v");
    }
    if (order < 2 || order > kenlm_most_orders) fail("is damaged: its order is ", uint32_t{order});
    m_.levels.resize(order);
    for (uint32_t k = 0; k < order; ++k) {
      const auto count = value<uint64_t>(108 + 8 * k);
      if (count > most_ngrams) fail("is damaged: it has ", count, " n-grams of order ", k + 1);
      m_.levels[k].ngrams = count;
    }
    if (m_.levels[0].ngrams == 0 || m_.levels[0].ngrams >= UINT32_MAX) {
      fail("is damaged: it has ", m_.levels[0].ngrams, " words");
    }
    at_ = (108 + 8 * order + 7) / 8 * 8;
  }

  // As many as KenLM makes it, which reckons in floats.
  uint64_t buckets(uint64_t entries) const {
    const float wanted = multiplier_ * static_cast<float>(entries);
    return std::max(entries + 1, static_cast<uint64_t>(wanted));
  }

  void lay_out_hash_tables() {
    if (!(multiplier_ >= 1 && multiplier_ <= 1000)) {
      fail("is damaged: its hash tables are ", multiplier_, " times as large as what they hold");
    }
    m_.buckets = buckets(m_.levels[0].ngrams);
    vocabulary_ = at_;
    take(8);
    m_.hashes = take(m_.buckets * 12);
    m_.levels[0].at = take((m_.levels[0].ngrams + 1) * kenlm_unigram_bytes);
    for (size_t k = 1; k < m_.levels.size(); ++k) {
      KenlmLayout::Level& l = m_.levels[k];
      l.entries = buckets(l.ngrams);
      l.at =
          take(l.entries * (k + 1 < m_.levels.size() ? kenlm_middle_bytes : kenlm_longest_bytes));
    }
  }

  void lay_out_trie() {
    vocabulary_ = at_;
    take(8);
    m_.hashes = take(8 * m_.levels[0].ngrams);
    if (quantized_) lay_out_tables();
    m_.levels[0].at = take((m_.levels[0].ngrams + 2) * kenlm_trie_unigram_bytes);
    if (array_ && m_.levels.size() > 2) {
      if (value<uint8_t>(at_) != 0) {
        fail("is a binary of KenLM whose arrays are of version ", uint32_t{value<uint8_t>(at_)},
             ", expected 0", remedy);
      }
      most_chopped_ = value<uint8_t>(at_ + 1);
    }
    for (size_t k = 1; k < m_.levels.size(); ++k) lay_out_records(k);
  }

  void lay_out_tables() {
    const auto version = value<uint8_t>(at_);
    const auto probability_bits = value<uint8_t>(at_ + 1), backoff_bits = value<uint8_t>(at_ + 2);
    if (version != 2) {
      fail("is a binary of KenLM whose weights are quantised in version ", uint32_t{version},
           ", expected 2", remedy);
    }
    for (const uint32_t bits : {probability_bits, backoff_bits}) {
      if (bits < 1 || bits > 25) fail("is damaged: its weights have ", bits, " bits");
    }
    m_.quantized_bits = probability_bits;
    take(8);
    for (size_t k = 1; k < m_.levels.size(); ++k) {
      KenlmLayout::Level& l = m_.levels[k];
      l.probability_bits = probability_bits;
      l.probabilities = take(sizeof(float) << probability_bits);
      if (k + 1 == m_.levels.size()) break;
      l.backoff_bits = backoff_bits;
      l.backoffs = take(sizeof(float) << backoff_bits);
    }
  }

  void lay_out_records(size_t k) {
    KenlmLayout::Level& l = m_.levels[k];
    const bool is_longest = k + 1 == m_.levels.size();
    l.entries = l.ngrams;
    l.word_bits = static_cast<uint32_t>(std::bit_width(m_.levels[0].ngrams));
    if (!quantized_) {
      l.probability_bits = 31;  // without the sign
      l.backoff_bits = is_longest ? 0 : 32;
    }
    if (!is_longest) {
      const uint64_t most = m_.levels[k + 1].ngrams;
      l.next_bits = static_cast<uint32_t>(std::bit_width(most));
      if (array_) {
        l.next_bits -= chopped_bits(l.ngrams + 1, most);
        l.number_of_changes = (most >> l.next_bits) + 1;
        const uint64_t padding = (8 - at_ % 8) % 8;
        take(padding + 8);
        l.changes = take(8 * l.number_of_changes);
        take(7 - padding);
      }
    }
    l.at = take(((l.ngrams + 1) * l.record_bits() + 7) / 8 + 8);
  }

  // How many high bits of numbers up to `most` KenLM puts into a list: with them, list and
  // `records` records are the smallest.
  uint32_t chopped_bits(uint64_t records, uint64_t most) const {
    const auto all = static_cast<uint32_t>(std::bit_width(most));
    uint32_t best = 0;
    int64_t least = INT64_MAX;
    for (uint32_t chopped = 0; chopped <= std::min(all, most_chopped_); ++chopped) {
      const auto list = static_cast<int64_t>((most >> (all - chopped)) * 64);
      const int64_t change = list - static_cast<int64_t>(records * chopped);
      if (change >= least) continue;
      least = change;
      best = chopped;
    }
    return best;
  }

  void read_vocabulary() {
    uint64_t words = 0;
    if (m_.is_trie) {
      words = value<uint64_t>(vocabulary_) + 1;
    } else {
      const auto version = value<uint32_t>(vocabulary_);
      if (version != 0) {
        fail("is a binary of KenLM whose vocabulary is of version ", version, ", expected 0",
             remedy);
      }
      words = value<uint32_t>(vocabulary_ + 4);
    }
    const uint64_t most = m_.levels[0].ngrams + (m_.is_trie ? 0 : 1);
    if (words == 0 || words > most || words >= UINT32_MAX) {
      fail("is damaged: it has ", words, " words in room for ", most);
    }
    m_.words = static_cast<uint32_t>(words);
    read_texts();
  }

  void read_texts() {
    const std::string_view texts(reinterpret_cast<const char*>(m_.bytes.data() + at_), size_ - at_);
    m_.texts = texts;
    for (size_t end = 0; end < texts.size();) {
      end = texts.find('\0', end);
      if (end == texts.npos) break;
      m_.ends.push_back(++end);
      if (m_.ends.size() > m_.words) break;
    }
    const uint64_t used = m_.ends.empty() ? 0 : m_.ends.back();
    if (m_.ends.size() != m_.words || used != texts.size()) {
      fail("is damaged: behind byte ", at_, " there are not the texts of its ", m_.words,
           " words alone");
    }
    if (texts.substr(0, m_.ends[0] - 1) != "<unk>") fail("is damaged: its first word is not <unk>");
  }

  void number_states() {
    uint64_t states = 1;
    m_.levels[0].first_state = states;
    states += m_.words;
    for (size_t k = 1; k + 1 < m_.levels.size(); ++k) {
      m_.levels[k].first_state = states;
      states += m_.levels[k].entries;
    }
    if (states >= UINT32_MAX) {
      fail("has room for ", states, " contexts, expected fewer than ", UINT32_MAX,
           ": states are numbers of 32 bits");
    }
    m_.states = static_cast<uint32_t>(states);
  }

  static constexpr uint64_t most_ngrams = uint64_t{1} << 44;

  KenlmLayout m_;
  const std::string& name_;
  const uint64_t size_;
  uint64_t at_ = 0, vocabulary_ = 0;
  float multiplier_ = 0;
  bool quantized_ = false, array_ = false;
  uint32_t most_chopped_ = 0;
};

}  // namespace

KenlmLayout read_kenlm_layout(std::span<const std::byte> bytes, const std::string& name) {
  return Reader(bytes, name).read();
}

}  // namespace rondo::lm
