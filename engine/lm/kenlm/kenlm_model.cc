#include "engine/lm/kenlm/kenlm_model.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "kernels/base/error.h"

namespace rondo::lm {
namespace {

constexpr uint64_t hash_factor = 8978948897894561157u, word_factor = 17894857484156487943u;

// x with x * odd = 1, modulo 2^64, by Newton's iteration.
constexpr uint64_t inverse(uint64_t odd) {
  uint64_t x = odd;
  for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
  return x;
}
static_assert(inverse(word_factor) * word_factor == 1);

// Of an n-gram with one word more before it.
uint64_t extended(uint64_t hash, Word word) {
  return hash * hash_factor ^ (uint64_t{word} + 1) * word_factor;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Bits [at, at + width) from `bytes`, width at most 57. Eight bytes from at / 8 on are read.
uint64_t bits_at(const std::byte* bytes, uint64_t at, uint32_t width) {
  return (load<uint64_t>(bytes + at / 8) >> (at % 8)) & ((uint64_t{1} << width) - 1);
}
uint32_t number_at(const std::byte* bytes, uint64_t at, uint32_t width) {
  return static_cast<uint32_t>(bits_at(bytes, at, width));
}

// MurmurHash64A of Austin Appleby, which is in the public domain, with the seed 0.
uint64_t murmur_hash(std::string_view text) {
  constexpr uint64_t factor = 0xc6a4a7935bd1e995u;
  const auto mixed = [](uint64_t v) { return v ^ (v >> 47); };
  uint64_t hash = text.size() * factor;
  for (; text.size() >= 8; text.remove_prefix(8)) {
    uint64_t piece;
    std::memcpy(&piece, text.data(), 8);
    hash = (hash ^ mixed(piece * factor) * factor) * factor;
  }
  if (!text.empty()) {
    uint64_t rest = 0;
    std::memcpy(&rest, text.data(), text.size());
    hash = (hash ^ rest) * factor;
  }
  return mixed(mixed(hash) * factor);
}

// A back-off weight of -0 says that no n-gram goes on from this one.
bool goes_on(float backoff) { return std::bit_cast<uint32_t>(backoff) != 0x80000000u; }

float negative(uint32_t bits) { return std::bit_cast<float>(bits | 0x80000000u); }

// The first of `count` ascending numbers that is larger than `value`.
uint64_t first_above(const std::byte* numbers, uint64_t count, uint64_t value) {
  uint64_t low = 0, high = count;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (load<uint64_t>(numbers + 8 * middle) <= value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

enum Kind : uint32_t { probing, rest_probing, trie, quantized_trie, array_trie, quantized_array };

constexpr uint64_t middle_bytes = 16, longest_bytes = 12;  // of entries of the hash tables
constexpr uint64_t unigram_bytes = 8, trie_unigram_bytes = 16;

}  // namespace

// Finds where everything is. All that is read without a check afterwards lies within the file.
class KenlmModel::Reader {
 public:
  explicit Reader(KenlmModel& model) : m_(model), size_(model.bytes_.size()) {}

  void read() {
    read_header();
    if (m_.is_trie_) {
      lay_out_trie();
    } else {
      lay_out_hash_tables();
    }
    if (at_ > size_) fail_short(str("at least ", at_));
    read_vocabulary();
    number_states();
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    fail_input(m_.name_, ": ", args...);
  }
  [[noreturn]] void fail_short(const std::string& expected) const {
    fail("is damaged: it has ", size_, " bytes, expected ", expected);
  }
  static constexpr const char* remedy = ": make it anew from its ARPA file by KenLM's build_binary";

  const std::byte* place(uint64_t at, uint64_t bytes) const {
    if (bytes > size_ || at > size_ - bytes) fail_short(str("at least ", at + bytes));
    return m_.bytes_.data() + at;
  }
  template <class T>
  T value(uint64_t at) const {
    return load<T>(place(at, sizeof(T)));
  }
  // The next part of the file; whether it has that much is checked at the end.
  const std::byte* take(uint64_t bytes) {
    const std::byte* start = m_.bytes_.data() + std::min(at_, size_);
    at_ += bytes;
    return start;
  }

  void check_magic() const {
    const std::string_view start(reinterpret_cast<const char*>(m_.bytes_.data()),
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
    m_.is_trie_ = kind != probing;
    quantized_ = kind == quantized_trie || kind == quantized_array;
    array_ = kind == array_trie || kind == quantized_array;
    const uint32_t known = m_.is_trie_ ? 1 : 0;
    if (version != known) {
      fail("is a binary of KenLM whose kind ", m_.is_trie_ ? "trie" : "probing", " is of version ",
           version, ", expected ", known, remedy);
    }
    if (!has_texts) {
      fail("is a binary of KenLM without the texts of its words", remedy, " without -v");
    }
    if (order < 2 || order > most_words + 1) fail("is damaged: its order is ", uint32_t{order});
    m_.levels_.resize(order);
    for (uint32_t k = 0; k < order; ++k) {
      const auto count = value<uint64_t>(108 + 8 * k);
      if (count > most_ngrams) fail("is damaged: it has ", count, " n-grams of order ", k + 1);
      m_.levels_[k].ngrams = count;
    }
    if (m_.levels_[0].ngrams == 0 || m_.levels_[0].ngrams >= UINT32_MAX) {
      fail("is damaged: it has ", m_.levels_[0].ngrams, " words");
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
    m_.buckets_ = buckets(m_.levels_[0].ngrams);
    vocabulary_ = at_;
    take(8);
    m_.hashes_ = take(m_.buckets_ * 12);
    m_.levels_[0].at = take((m_.levels_[0].ngrams + 1) * unigram_bytes);
    for (size_t k = 1; k < m_.levels_.size(); ++k) {
      Level& l = m_.levels_[k];
      l.entries = buckets(l.ngrams);
      l.at = take(l.entries * (k + 1 < m_.levels_.size() ? middle_bytes : longest_bytes));
    }
  }

  void lay_out_trie() {
    vocabulary_ = at_;
    take(8);
    m_.hashes_ = take(8 * m_.levels_[0].ngrams);
    if (quantized_) lay_out_tables();
    m_.levels_[0].at = take((m_.levels_[0].ngrams + 2) * trie_unigram_bytes);
    if (array_ && m_.levels_.size() > 2) {
      if (value<uint8_t>(at_) != 0) {
        fail("is a binary of KenLM whose arrays are of version ", uint32_t{value<uint8_t>(at_)},
             ", expected 0", remedy);
      }
      most_chopped_ = value<uint8_t>(at_ + 1);
    }
    for (size_t k = 1; k < m_.levels_.size(); ++k) lay_out_records(k);
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
    m_.quantized_bits_ = probability_bits;
    take(8);
    for (size_t k = 1; k < m_.levels_.size(); ++k) {
      Level& l = m_.levels_[k];
      l.probability_bits = probability_bits;
      l.probabilities = take(sizeof(float) << probability_bits);
      if (k + 1 == m_.levels_.size()) break;
      l.backoff_bits = backoff_bits;
      l.backoffs = take(sizeof(float) << backoff_bits);
    }
  }

  void lay_out_records(size_t k) {
    Level& l = m_.levels_[k];
    const bool is_longest = k + 1 == m_.levels_.size();
    l.entries = l.ngrams;
    l.word_bits = static_cast<uint32_t>(std::bit_width(m_.levels_[0].ngrams));
    if (!quantized_) {
      l.probability_bits = 31;  // without the sign
      l.backoff_bits = is_longest ? 0 : 32;
    }
    if (!is_longest) {
      const uint64_t most = m_.levels_[k + 1].ngrams;
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
    if (m_.is_trie_) {
      words = value<uint64_t>(vocabulary_) + 1;
    } else {
      const auto version = value<uint32_t>(vocabulary_);
      if (version != 0) {
        fail("is a binary of KenLM whose vocabulary is of version ", version, ", expected 0",
             remedy);
      }
      words = value<uint32_t>(vocabulary_ + 4);
    }
    const uint64_t most = m_.levels_[0].ngrams + (m_.is_trie_ ? 0 : 1);
    if (words == 0 || words > most || words >= UINT32_MAX) {
      fail("is damaged: it has ", words, " words in room for ", most);
    }
    m_.words_ = static_cast<Word>(words);
    read_texts();
  }

  void read_texts() {
    m_.texts_ = reinterpret_cast<const char*>(m_.bytes_.data() + at_);
    const std::string_view texts(m_.texts_, size_ - at_);
    for (size_t end = 0; end < texts.size();) {
      end = texts.find('\0', end);
      if (end == texts.npos) break;
      m_.ends_.push_back(++end);
      if (m_.ends_.size() > m_.words_) break;
    }
    const uint64_t used = m_.ends_.empty() ? 0 : m_.ends_.back();
    if (m_.ends_.size() != m_.words_ || used != texts.size()) {
      fail("is damaged: behind byte ", at_, " there are not the texts of its ", m_.words_,
           " words alone");
    }
    if (m_.text(0) != "<unk>") fail("is damaged: its first word is not <unk>");
  }

  void number_states() {
    uint64_t states = 1;
    m_.levels_[0].first_state = states;
    states += m_.words_;
    for (size_t k = 1; k + 1 < m_.levels_.size(); ++k) {
      m_.levels_[k].first_state = states;
      states += m_.levels_[k].entries;
    }
    if (states >= UINT32_MAX) {
      fail("has room for ", states, " contexts, expected fewer than ", UINT32_MAX,
           ": states are numbers of 32 bits");
    }
    m_.states_ = static_cast<uint32_t>(states);
    const size_t longer = m_.states_ - 1 - m_.words_;
    // Pages of zeros, which take memory when they are written.
    m_.shorter_.reset(static_cast<uint32_t*>(std::calloc(longer + 1, sizeof(uint32_t))));
    if (!m_.shorter_) throw std::bad_alloc();
  }

  static constexpr uint64_t most_ngrams = uint64_t{1} << 44;

  KenlmModel& m_;
  const uint64_t size_;
  uint64_t at_ = 0, vocabulary_ = 0;
  float multiplier_ = 0;
  bool quantized_ = false, array_ = false;
  uint32_t most_chopped_ = 0;
};

void KenlmModel::Free::operator()(uint32_t* p) const { std::free(p); }

KenlmModel::KenlmModel(std::span<const std::byte> bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)) {
  Reader(*this).read();
}

void KenlmModel::fail_damaged(const char* what) const { fail_input(name_, ": is damaged: ", what); }

std::string_view KenlmModel::text(Word word) const {
  const uint64_t begin = word == 0 ? 0 : ends_[word - 1];
  return {texts_ + begin, ends_[word] - 1 - begin};
}

Word KenlmModel::word(std::string_view text) const {
  const uint64_t hash = murmur_hash(text);
  if (is_trie_) {
    const uint64_t above = first_above(hashes_, words_ - 1, hash);
    const bool known = above > 0 && load<uint64_t>(hashes_ + 8 * (above - 1)) == hash;
    return known ? static_cast<Word>(above) : 0;
  }
  uint64_t bucket = hash % buckets_;
  for (uint64_t tried = 0; tried < buckets_; ++tried) {
    const std::byte* entry = hashes_ + 12 * bucket;
    const auto key = load<uint64_t>(entry);
    if (key == 0) break;
    if (key == hash) {
      const auto found = load<Word>(entry + 8);
      if (found >= words_) fail_damaged("a word of its vocabulary has no number");
      return found;
    }
    if (++bucket == buckets_) bucket = 0;
  }
  return 0;
}

uint32_t KenlmModel::begin_sentence() const {
  const Word start = word("<s>");
  return goes_on(unigram(start).backoff) ? 1 + start : 0;
}

KenlmModel::Entry KenlmModel::unigram(Word word) const {
  Entry e;
  e.index = word;
  const std::byte* at = levels_[0].at + word * (is_trie_ ? trie_unigram_bytes : unigram_bytes);
  e.backoff = load<float>(at + 4);
  if (!is_trie_) {
    const auto bits = load<uint32_t>(at);
    e.probability = negative(bits);
    e.is_longest = (bits >> 31) != 0;
    e.hash = word;
    return e;
  }
  e.probability = load<float>(at);
  e.begin = load<uint64_t>(at + 8);
  e.end = load<uint64_t>(at + trie_unigram_bytes + 8);
  e.is_longest = e.begin == e.end;
  return e;
}

bool KenlmModel::find_hash(const Level& l, uint64_t entry_bytes, uint64_t hash,
                           uint64_t& index) const {
  index = hash % l.entries;
  for (uint64_t tried = 0; tried < l.entries; ++tried) {
    const auto key = load<uint64_t>(l.at + index * entry_bytes);
    if (key == hash) return true;
    if (key == 0) return false;
    if (++index == l.entries) index = 0;
  }
  return false;
}

bool KenlmModel::find_record(const Level& l, Word word, Entry& e) const {
  if (e.begin > e.end || e.end > l.entries) fail_damaged("its n-grams lead nowhere");
  const uint64_t bits = l.record_bits();
  uint64_t low = e.begin, high = e.end;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (number_at(l.at, middle * bits, l.word_bits) < word) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  e.index = low;
  return low < e.end && number_at(l.at, low * bits, l.word_bits) == word;
}

// Where the n-grams begin that go on from a record.
uint64_t KenlmModel::next_of(const Level& l, uint64_t index) const {
  const uint64_t bits = l.record_bits();
  const uint64_t low = bits_at(l.at, (index + 1) * bits - l.next_bits, l.next_bits);
  if (!l.changes) return low;
  const uint64_t above = first_above(l.changes, l.number_of_changes, index);
  if (above == 0) fail_damaged("its n-grams lead nowhere");
  return (above - 1) << l.next_bits | low;
}

float KenlmModel::backoff_of(const Level& l, uint64_t index) const {
  if (!is_trie_) return load<float>(l.at + index * middle_bytes + 12);
  uint64_t at = index * l.record_bits() + l.word_bits;
  if (!l.backoffs) {
    at += l.probability_bits;
    return std::bit_cast<float>(number_at(l.at, at, l.backoff_bits));
  }
  return load<float>(l.backoffs + sizeof(float) * number_at(l.at, at, l.backoff_bits));
}

void KenlmModel::read_record(const Level& l, Entry& e) const {
  // Numbers into tables stand the other way round.
  uint64_t at = e.index * l.record_bits() + l.word_bits;
  if (l.probabilities) at += l.backoff_bits;
  const uint32_t code = number_at(l.at, at, l.probability_bits);
  e.probability =
      l.probabilities ? load<float>(l.probabilities + sizeof(float) * code) : negative(code);
}

bool KenlmModel::extend(int32_t order, Word word, Entry& e) const {
  const Level& l = level(order);
  const bool is_last = order == this->order();
  if (is_trie_) {
    if (!find_record(l, word, e)) return false;
    read_record(l, e);
    if (is_last) return true;
    e.backoff = backoff_of(l, e.index);
    e.begin = next_of(l, e.index);
    e.end = next_of(l, e.index + 1);
    e.is_longest = e.begin == e.end;
    return true;
  }
  e.hash = extended(e.hash, word);
  const uint64_t entry_bytes = is_last ? longest_bytes : middle_bytes;
  if (!find_hash(l, entry_bytes, e.hash, e.index)) return false;
  const std::byte* at = l.at + e.index * entry_bytes;
  const auto bits = load<uint32_t>(at + 8);
  e.probability = negative(bits);
  if (is_last) return true;
  e.backoff = load<float>(at + 12);
  e.is_longest = (bits >> 31) != 0;
  return true;
}

// The first word of an entry's n-gram. `hash`: of the n-gram without it before, of all after.
Word KenlmModel::first_word(int32_t order, uint64_t index, uint64_t& hash) const {
  const Level& l = level(order);
  Word word;
  if (is_trie_) {
    word = number_at(l.at, index * l.record_bits(), l.word_bits);
  } else {
    const auto longer = load<uint64_t>(l.at + index * middle_bytes);
    constexpr uint64_t undo = inverse(word_factor);
    word = static_cast<Word>((longer ^ hash * hash_factor) * undo - 1);
    hash = longer;
  }
  if (word >= words_) fail_damaged("its n-grams have words that there are not");
  return word;
}

void KenlmModel::read_context(uint32_t state, Context& c) const {
  while (c.length + 1 < order() && state >= level(c.length + 1).first_state) ++c.length;
  if (c.length == 0) return;
  uint32_t places[most_words + 1];
  places[c.length] = state;
  const uint64_t first_longer = uint64_t{1} + words_;
  for (int32_t k = c.length; k > 1; --k) {
    uint32_t& slot = shorter_[places[k] - first_longer];
    const uint32_t shorter = std::atomic_ref(slot).load(std::memory_order_relaxed);
    if (shorter < level(k - 1).first_state || shorter >= level(k).first_state) {
      fail_damaged("a state that was never reached");
    }
    places[k - 1] = shorter;
  }
  c.words[0] = places[1] - 1;
  c.backoffs[0] = unigram(c.words[0]).backoff;
  uint64_t hash = c.words[0];
  for (int32_t k = 2; k <= c.length; ++k) {
    const uint64_t index = places[k] - level(k).first_state;
    c.words[k - 1] = first_word(k, index, hash);
    c.backoffs[k - 1] = backoff_of(level(k), index);
  }
}

float KenlmModel::score(uint32_t state, Word word, uint32_t& next, int32_t& length) const {
  Context context;
  read_context(state, context);
  Entry e = unigram(word);
  uint32_t place = 1 + word;
  next = goes_on(e.backoff) ? place : 0;
  length = 1;
  float probability = e.probability;
  for (int32_t k = 2; k <= context.length + 1 && !e.is_longest; ++k) {
    if (!extend(k, context.words[k - 2], e)) break;
    probability = e.probability;
    length = k;
    if (k == order()) break;
    const uint32_t shorter =
        std::exchange(place, static_cast<uint32_t>(level(k).first_state + e.index));
    const uint64_t first_longer = uint64_t{1} + words_;
    std::atomic_ref(shorter_[place - first_longer]).store(shorter, std::memory_order_relaxed);
    if (goes_on(e.backoff)) next = place;
  }
  float total = probability;
  for (int32_t k = length; k <= context.length; ++k) total += context.backoffs[k - 1];
  return std::isfinite(total) ? total : finite_sum(probability, context, length);
}

// A model may have infinite weights, where its ARPA file has -inf.
float KenlmModel::finite_sum(float probability, const Context& context, int32_t length) const {
  const auto finite = [](float weight) { return weight == -INFINITY ? zero_probability : weight; };
  float total = finite(probability);
  for (int32_t k = length; k <= context.length; ++k) total += finite(context.backoffs[k - 1]);
  if (!std::isfinite(total)) fail_damaged("a weight of it is no number");
  return total;
}

}  // namespace rondo::lm
