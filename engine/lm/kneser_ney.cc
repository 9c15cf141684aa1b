#include "engine/lm/kneser_ney.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/error.h"

namespace rondo::lm {
namespace {

constexpr Word before_begin = unknown;  // fills windows at a sentence's beginning
constexpr uint64_t pruned_bit = uint64_t{1} << 63;

uint64_t load64(const uint32_t* words) {
  uint64_t value;
  std::memcpy(&value, words, 8);
  return value;
}
void store64(uint32_t* words, uint64_t value) { std::memcpy(words, &value, 8); }

double discount_of(const OrderEstimate& e, uint64_t count) {
  return count == 0 ? 0 : e.discounts[std::min<uint64_t>(count, 3) - 1];
}

}  // namespace

KneserNey::KneserNey(EstimationOptions options, Word begin, Word end)
    : options_(std::move(options)),
      begin_(begin),
      end_(end),
      orders_(static_cast<size_t>(options_.order)),
      counts_of_counts_(orders_.size()) {
  RONDO_CHECK(options_.order >= 1 && options_.order <= most_orders, "order ", options_.order);
  windows_ = std::make_unique<RecordSorter>(sorter(options_.order, 2, 0.5, true));
}

RecordSorter KneserNey::sorter(int32_t keys, int32_t values, double share, bool add_up) const {
  return RecordSorter({.key_words = keys,
                       .value_words = values,
                       .memory = static_cast<uint64_t>(double(options_.memory) * share),
                       .folder = options_.folder,
                       .add_up = add_up});
}

int64_t KneserNey::pruned_at(int32_t order) const {
  if (options_.prune.empty()) return 0;
  return options_.prune[std::min(options_.prune.size(), static_cast<size_t>(order)) - 1];
}

// Every word, and </s>, with as many before it as the order has: the last one first.
void KneserNey::add_sentence(std::span<const Word> words) {
  const auto order = static_cast<size_t>(options_.order);
  padded_.assign(order, before_begin);
  if (order > 1) padded_.back() = begin_;
  padded_.insert(padded_.end(), words.begin(), words.end());
  padded_.push_back(end_);
  for (size_t i = order; i < padded_.size(); ++i) {
    uint32_t* window = windows_->add();
    for (size_t k = 0; k < order; ++k) window[k] = padded_[i - k];
    store64(window + order, 1);
  }
}

// Goes through the windows by suffix. What ends so far in the same n words is one n-gram; it is
// over when they change, and then it is known how often it occurs and after how many words.
struct KneserNey::Adjuster {
  struct Open {
    uint64_t occurrences = 0, lefts = 0;
  };

  KneserNey& to;
  int32_t order = to.options_.order;
  std::vector<Word> key = std::vector<Word>(static_cast<size_t>(order), 0);
  int32_t length = 0;  // of the last window, without what fills it
  std::vector<Open> open = std::vector<Open>(static_cast<size_t>(order) + 1);

  void close(int32_t n) {
    const Open& o = open[static_cast<size_t>(n)];
    const auto words = static_cast<size_t>(n);
    const bool counted = n == order || (n > 1 && key[words - 1] == to.begin_);
    const uint64_t adjusted = counted ? o.occurrences : o.lefts;
    auto& found = to.counts_of_counts_[words - 1];
    if (adjusted <= 4) ++found[adjusted];
    OrderEstimate& estimate = to.estimate_of(n);
    ++estimate.found;
    const bool pruned = o.occurrences <= static_cast<uint64_t>(to.pruned_at(n));
    estimate.kept += !pruned;
    uint32_t* record = to.by_context_[words - 1].add();
    std::copy(key.begin() + 1, key.begin() + n, record);
    record[n - 1] = key[0];
    store64(record + n, adjusted | (pruned ? pruned_bit : 0));
  }

  void take(const uint32_t* window) {
    int32_t new_length = order;
    while (new_length > 1 && window[new_length - 1] == before_begin) --new_length;
    int32_t same = 0;
    while (same < std::min(length, new_length) && key[static_cast<size_t>(same)] == window[same]) {
      ++same;
    }
    for (int32_t n = length; n > same; --n) close(n);
    std::copy(window, window + order, key.begin());
    length = new_length;
    const uint64_t count = load64(window + order);
    for (int32_t n = 1; n <= length; ++n) {
      Open& o = open[static_cast<size_t>(n)];
      if (n > same) {
        o = {};
        ++open[static_cast<size_t>(n - 1)].lefts;
      }
      o.occurrences += count;
    }
  }

  void end() {
    for (int32_t n = length; n > 0; --n) close(n);
  }
};

void KneserNey::adjust_counts() {
  windows_->sort();
  const double all = options_.order * (options_.order + 1) / 2.0;
  for (int32_t n = 1; n <= options_.order; ++n) by_context_.push_back(sorter(n, 2, 0.45 * n / all));
  Adjuster adjuster{*this};
  while (const uint32_t* window = windows_->next()) adjuster.take(window);
  adjuster.end();
  spilled_ += windows_->spilled_bytes();
  windows_.reset();
}

void KneserNey::find_discounts() {
  for (int32_t n = 1; n <= options_.order; ++n) {
    OrderEstimate& e = estimate_of(n);
    const auto& t = counts_of_counts_[static_cast<size_t>(n - 1)];
    std::string wrong;
    for (size_t k = 1; k <= 3 && wrong.empty(); ++k) {
      if (t[k] == 0) wrong = str("no ", n, "-gram has a count of ", k);
    }
    const double y = wrong.empty() ? double(t[1]) / (double(t[1]) + 2.0 * double(t[2])) : 0;
    for (size_t k = 1; k <= 3 && wrong.empty(); ++k) {
      const auto least = static_cast<double>(k);
      const double d = least - (least + 1) * y * double(t[k + 1]) / double(t[k]);
      e.discounts[k - 1] = d;
      if (!(d >= 0 && d <= least)) {
        wrong = str("the discount of ", n, "-grams with a count of ", k, " would be ", d);
      }
    }
    if (wrong.empty()) continue;
    if (!options_.fallback) {
      fail_input("the discounts of order ", n, " cannot be estimated: ", wrong,
                 "; the text may be too small, or not a natural one: --discount-fallback takes "
                 "fixed ones then");
    }
    e.discounts = *options_.fallback;
    e.fell_back = true;
  }
}

// From counts by context to discounted probabilities by suffix.
void KneserNey::discount(int32_t order) {
  RecordSorter& counts = by_context_[static_cast<size_t>(order - 1)];
  const auto context = static_cast<size_t>(order - 1);
  counts.sort();
  const OrderEstimate& e = estimate_of(order);
  std::vector<Word> key;
  struct Follower {
    Word word;
    uint64_t count;
  };
  std::vector<Follower> followers;
  const auto finish = [&] {
    if (followers.empty()) return;
    double sum = 0, left_over = 0;
    for (const Follower& f : followers) {
      const uint64_t count = f.count & ~pruned_bit;
      sum += double(count);
      left_over += f.count & pruned_bit ? double(count) : discount_of(e, count);
    }
    const auto gamma = static_cast<float>(left_over / sum);
    for (const Follower& f : followers) {
      if (f.count & pruned_bit) continue;
      uint32_t* record = by_suffix_[context].add();
      record[0] = f.word;
      std::copy(key.begin(), key.end(), record + 1);
      const auto p = static_cast<float>((double(f.count) - discount_of(e, f.count)) / sum);
      record[order] = std::bit_cast<uint32_t>(p);
      record[order + 1] = std::bit_cast<uint32_t>(gamma);
    }
    uint32_t* record = gammas_[context].add();
    record[0] = 0;  // the empty context has no words
    std::copy(key.begin(), key.end(), record);
    record[std::max<size_t>(context, 1)] = std::bit_cast<uint32_t>(gamma);
  };
  while (const uint32_t* record = counts.next()) {
    if (!std::equal(key.begin(), key.end(), record) || key.size() != context) {
      finish();
      followers.clear();
      key.assign(record, record + context);
    }
    followers.push_back({record[context], load64(record + order)});
  }
  finish();
  spilled_ += counts.spilled_bytes();
  counts = sorter(1, 0, 0);  // gives its memory back
}

namespace {

// Of 0, which a weight may be where a discount is 0: what stands for no probability in ARPA files.
float log10_of(double value) { return value > 0 ? static_cast<float>(std::log10(value)) : -99; }

// The value that `values` has for the key, whose words come in its order; nothing where it has
// none.
class Joined {
 public:
  Joined(RecordSorter* values, size_t key_words) : values_(values), key_words_(key_words) {
    record_ = values_ ? values_->next() : nullptr;
  }
  std::optional<float> find(const uint32_t* key) {
    while (record_ &&
           std::lexicographical_compare(record_, record_ + key_words_, key, key + key_words_)) {
      record_ = values_->next();
    }
    if (!record_ || !std::equal(record_, record_ + key_words_, key)) return std::nullopt;
    return std::bit_cast<float>(record_[key_words_]);
  }

 private:
  RecordSorter* values_;
  size_t key_words_;
  const uint32_t* record_ = nullptr;
};

}  // namespace

void KneserNey::interpolate(int32_t order, Word words, NgramSink& sink) {
  const auto n = static_cast<size_t>(order);
  const bool last = order == options_.order;
  RecordSorter& discounted = by_suffix_[n - 1];
  discounted.sort();
  RecordSorter* gammas = last ? nullptr : &gammas_[n];
  if (gammas) gammas->sort();
  Joined backoff(gammas, n), lower(order > 1 ? lower_.get() : nullptr, n - 1);
  std::unique_ptr<RecordSorter> probabilities;
  if (!last) probabilities = std::make_unique<RecordSorter>(sorter(order, 1, 0.1));
  std::vector<Word> ngram(n);
  std::vector<bool> given(order == 1 ? words : 0);
  const auto give = [&](const uint32_t* key, double p) {
    std::reverse_copy(key, key + n, ngram.begin());
    const float gamma = backoff.find(key).value_or(1);
    // <s> is never predicted. Rounding could make a logarithm more than 0.
    const float log_p = order == 1 && key[0] == begin_ ? -99 : std::min(0.0f, log10_of(p));
    RONDO_CHECK(sink.add(ngram, log_p, log10_of(gamma)), "a pruned context");
    if (!probabilities) return;
    uint32_t* record = probabilities->add();
    std::copy(key, key + n, record);
    record[n] = std::bit_cast<uint32_t>(static_cast<float>(p));
  };
  const double uniform = 1.0 / (words - 1);  // over all but <s>
  // Of unigrams, those that never occur come as well: <unk> and <s>.
  Word next_unigram = 0;
  const float empty_gamma = [&] {
    if (order > 1) return 1.0f;
    gammas_[0].sort();
    const uint32_t* record = gammas_[0].next();
    return record ? std::bit_cast<float>(record[1]) : 1.0f;
  }();
  const auto give_missing = [&](Word before) {
    for (; order == 1 && next_unigram < before; ++next_unigram) {
      give(&next_unigram, empty_gamma * uniform);
    }
  };
  while (const uint32_t* r = discounted.next()) {
    const double below = order == 1 ? uniform : lower.find(r).value_or(0);
    const double p = std::bit_cast<float>(r[n]) + double(std::bit_cast<float>(r[n + 1])) * below;
    give_missing(r[0]);
    give(r, p);
    next_unigram = r[0] + 1;
  }
  give_missing(words);
  spilled_ += discounted.spilled_bytes();
  discounted = sorter(1, 0, 0);
  if (probabilities) probabilities->sort();
  lower_ = std::move(probabilities);
}

void KneserNey::estimate(Word words, NgramSink& sink) {
  adjust_counts();
  find_discounts();
  const double all = options_.order * (options_.order + 1) / 2.0;
  for (int32_t n = 1; n <= options_.order; ++n) {
    by_suffix_.push_back(sorter(n, 2, 0.4 * n / all));
    gammas_.push_back(sorter(std::max(n - 1, 1), 1, 0.1 * n / all));
    discount(n);
  }
  std::vector<uint64_t> counts;
  for (const OrderEstimate& e : orders_) counts.push_back(e.kept);
  counts[0] = words;
  sink.begin(counts);
  for (int32_t n = 1; n <= options_.order; ++n) interpolate(n, words, sink);
}

}  // namespace rondo::lm
