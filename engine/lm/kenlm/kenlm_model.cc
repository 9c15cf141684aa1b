#include "engine/lm/kenlm/kenlm_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "kernels/base/check.h"

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

}  // namespace

void KenlmModel::Free::operator()(uint32_t* p) const { std::free(p); }

KenlmModel::KenlmModel(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)), at_(read_kenlm_layout(bytes, name_)) {
  const size_t longer = at_.states - 1 - at_.words;
  // Pages of zeros, which take memory when they are written.
  shorter_.reset(static_cast<uint32_t*>(std::calloc(longer + 1, sizeof(uint32_t))));
  if (!shorter_) throw std::bad_alloc();
}

void KenlmModel::fail_damaged(const char* what) const { fail_input(name_, ": is damaged: ", what); }

std::string_view KenlmModel::text(Word word) const {
  const uint64_t begin = word == 0 ? 0 : at_.ends[word - 1];
  return at_.texts.substr(begin, at_.ends[word] - 1 - begin);
}

Word KenlmModel::word(std::string_view text) const {
  const uint64_t hash = murmur_hash(text);
  if (at_.is_trie) {
    const uint64_t above = first_above(at_.hashes, at_.words - 1, hash);
    const bool known = above > 0 && load<uint64_t>(at_.hashes + 8 * (above - 1)) == hash;
    return known ? static_cast<Word>(above) : 0;
  }
  uint64_t bucket = hash % at_.buckets;
  for (uint64_t tried = 0; tried < at_.buckets; ++tried) {
    const std::byte* entry = at_.hashes + 12 * bucket;
    const auto key = load<uint64_t>(entry);
    if (key == 0) break;
    if (key == hash) {
      const auto found = load<Word>(entry + 8);
      if (found >= at_.words) fail_damaged("a word of its vocabulary has no number");
      return found;
    }
    if (++bucket == at_.buckets) bucket = 0;
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
  const std::byte* at =
      at_.levels[0].at + word * (at_.is_trie ? kenlm_trie_unigram_bytes : kenlm_unigram_bytes);
  e.backoff = load<float>(at + 4);
  if (!at_.is_trie) {
    const auto bits = load<uint32_t>(at);
    e.probability = negative(bits);
    e.is_longest = (bits >> 31) != 0;
    e.hash = word;
    return e;
  }
  e.probability = load<float>(at);
  e.begin = load<uint64_t>(at + 8);
  e.end = load<uint64_t>(at + kenlm_trie_unigram_bytes + 8);
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
  if (!at_.is_trie) return load<float>(l.at + index * kenlm_middle_bytes + 12);
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
  if (at_.is_trie) {
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
  const uint64_t entry_bytes = is_last ? kenlm_longest_bytes : kenlm_middle_bytes;
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
  if (at_.is_trie) {
    word = number_at(l.at, index * l.record_bits(), l.word_bits);
  } else {
    const auto longer = load<uint64_t>(l.at + index * kenlm_middle_bytes);
    constexpr uint64_t undo = inverse(word_factor);
    word = static_cast<Word>((longer ^ hash * hash_factor) * undo - 1);
    hash = longer;
  }
  if (word >= at_.words) fail_damaged("its n-grams have words that there are not");
  return word;
}

void KenlmModel::read_context(uint32_t state, Context& c) const {
  while (c.length + 1 < order() && state >= level(c.length + 1).first_state) ++c.length;
  if (c.length == 0) return;
  uint32_t places[kenlm_most_orders];
  places[c.length] = state;
  for (int32_t k = c.length; k > 1; --k) {
    places[k - 1] = __atomic_load_n(&shorter_[places[k] - 1 - at_.words], __ATOMIC_RELAXED);
    RONDO_CHECK(places[k - 1] >= level(k - 1).first_state && places[k - 1] < level(k).first_state,
                "no score led to state ", state);
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
    // Written once: what several threads read stays in all their caches.
    uint32_t* remembered = &shorter_[place - 1 - at_.words];
    if (__atomic_load_n(remembered, __ATOMIC_RELAXED) != shorter) {
      __atomic_store_n(remembered, shorter, __ATOMIC_RELAXED);
    }
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
