#include "engine/decode/prefix_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>

#include "kernels/base/error.h"

namespace rondo::decode {
namespace {

constexpr double sure_blank = 0.99;
// Nodes that nothing leads to are thrown away when there are so many more: few enough for a cache.
constexpr size_t garbage_nodes = 4096;

}  // namespace

PrefixSearch::PrefixSearch(const Vocabulary& vocabulary, const Grammar& grammar,
                           const DecoderOptions& options)
    : vocabulary_(vocabulary),
      grammar_(grammar),
      options_(options),
      frame_(static_cast<size_t>(vocabulary.classes())),
      smallest_(std::exp(options.token_floor)),
      range_(std::exp(-options.score_range)) {
  for (int32_t label = 0; label < vocabulary.classes(); ++label)
    if (vocabulary.token(label).is_written) written_.push_back(label);
  nodes_.emplace_back();
  nodes_.back().state = grammar.start();
  active_.emplace_back();
  slot_of_.push_back(0);
  rehash(4 * garbage_nodes);
}

void PrefixSearch::advance(const float* scores) {
  load(scores);
  ++frames_;
  if (!possible_) return;
  stay();
  merge();
  choose_extending();
  for (int32_t slot = 0; slot < static_cast<int32_t>(active_.size()); ++slot) extend(slot);
  select();
  if (nodes_.size() > 2 * live_nodes_ + garbage_nodes) collect_garbage();
}

// The softmax of a row.
void PrefixSearch::load(const float* scores) {
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t c = 0; c < frame_.size(); ++c) {
    RONDO_CHECK(!std::isnan(scores[c]), "frame ", frames_, " holds a NaN score");
    largest = std::max(largest, scores[c]);
  }
  RONDO_CHECK(std::isfinite(largest), "frame ", frames_, " holds no finite largest score");
  double sum = 0;
  for (size_t c = 0; c < frame_.size(); ++c)
    sum += frame_[c] = std::exp(static_cast<double>(scores[c]) - static_cast<double>(largest));
  for (double& p : frame_) p /= sum;
  const bool is_blank = frame_[static_cast<size_t>(vocabulary_.blank())] > sure_blank;
  blank_frames_ = is_blank ? blank_frames_ + 1 : 0;
}

// Prefixes that stay what they are: by a blank, or by their last label once more.
void PrefixSearch::stay() {
  next_.clear();
  totals_.clear();
  const double blank = frame_[static_cast<size_t>(vocabulary_.blank())];
  for (const Active& a : active_) {
    totals_.push_back(total(a));
    const int32_t last = node(a.node).label;
    const double again = last == none ? 0 : a.label * frame_[static_cast<size_t>(last)];
    next_.push_back({a.node, totals_.back() * blank, again});
  }
}

// Prefixes of the beam that grow into another one of it.
void PrefixSearch::merge() {
  first_child_.assign(active_.size(), none);
  next_sibling_.assign(active_.size(), none);
  for (size_t i = 0; i < active_.size(); ++i) {
    const Node& n = node(active_[i].node);
    if (n.parent == none) continue;
    const int32_t parent = slot_of_[static_cast<size_t>(n.parent)];
    if (parent == none) continue;
    const auto p = static_cast<size_t>(parent);
    next_sibling_[i] = first_child_[p];
    first_child_[p] = static_cast<int32_t>(i);
    const double probability = frame_[static_cast<size_t>(n.label)];
    if (probability < smallest_) continue;
    // The same label again needs a blank in between.
    const double from = n.label == node(n.parent).label ? active_[p].blank : totals_[p];
    next_[i].label = join(next_[i].label, from * probability * n.gain);
  }
}

// Prefixes that stay set a threshold for those that are new; classes that cannot reach it are out.
void PrefixSearch::choose_extending() {
  extensions_.clear();
  double best = 0, worst = std::numeric_limits<double>::infinity();
  for (const Active& a : next_) {
    best = std::max(best, total(a));
    worst = std::min(worst, total(a));
  }
  threshold_ = range_ > 0 ? std::nextafter(best * range_, 0.0) : 0;
  const bool is_full = next_.size() == static_cast<size_t>(options_.beam);
  if (is_full) threshold_ = std::max(threshold_, worst);
  double most = 0;
  reachable_.clear();
  for (size_t i = 0; i < active_.size(); ++i) {
    const GrammarState& state = node(active_[i].node).state;
    reachable_.push_back(totals_[i] * grammar_.most_gain(state, memo_));
    most = std::max(most, reachable_.back() * grammar_.phrase_labels(state, phrases_).most);
  }
  extending_.clear();
  for (const int32_t label : written_) {
    const double p = frame_[static_cast<size_t>(label)];
    if (p >= smallest_ && p * most > threshold_) extending_.push_back(label);
  }
  if (grammar_.lists_followers()) {
    extending_bits_ = 0;
    for (const int32_t label : extending_) {
      const uint64_t bit = grammar_.follower_bit(label);
      extending_bits_ |= bit;
      if (bit != 0) class_of_bit_[std::countr_zero(bit)] = label;
    }
    return;
  }
  std::sort(extending_.begin(), extending_.end(), [&](int32_t a, int32_t b) {
    const double p = frame_[static_cast<size_t>(a)], q = frame_[static_cast<size_t>(b)];
    return p != q ? p > q : a < b;
  });
}

// A prefix that grows by a label into one that is not in the beam.
inline void PrefixSearch::extend(int32_t slot, int32_t label) {
  const auto at = static_cast<size_t>(slot);
  const Node& from = node(active_[at].node);
  const double before = label == from.label ? active_[at].blank : totals_[at];
  if (before == 0) return;
  const double reached = before * frame_[static_cast<size_t>(label)];
  grammar_.extend(from.state, label, memo_,
                  [&](const GrammarState& state, int32_t word, double gain) {
                    const double probability = reached * gain;
                    if (!(probability > threshold_) || is_active_child(slot, label, word)) return;
                    extensions_.push_back({probability, slot, label, word, state, gain});
                  });
}

void PrefixSearch::extend(int32_t slot) {
  const auto at = static_cast<size_t>(slot);
  const GrammarState& state = node(active_[at].node).state;
  const double most = reachable_[at];
  const auto reaches = [&](int32_t label, double phrase_gain) {
    return most * phrase_gain * frame_[static_cast<size_t>(label)] > threshold_;
  };
  const PhraseLabels& phrases = grammar_.phrase_labels(state, phrases_);
  if (grammar_.lists_followers()) {
    for (uint64_t bits = grammar_.followers(state) & extending_bits_; bits != 0; bits &= bits - 1) {
      const int32_t label = class_of_bit_[std::countr_zero(bits)];
      if (reaches(label, phrases.most)) extend(slot, label);
    }
  } else {
    size_t tried = 0;
    while (tried < extending_.size() && reaches(extending_[tried], phrases.idle))
      extend(slot, extending_[tried++]);
    const auto others = std::span(extending_).subspan(tried);
    // What phrases alone bring in: found from the side where there is less to look at.
    if (phrases.labels.size() < others.size()) {
      for (const auto& [label, gain] : phrases.labels) {
        const bool may = frame_[static_cast<size_t>(label)] >= smallest_;
        if (may && reaches(label, gain) && !reaches(label, phrases.idle)) extend(slot, label);
      }
    } else if (!phrases.labels.empty()) {
      for (const int32_t label : others) {
        if (!reaches(label, phrases.most)) break;
        if (reaches(label, phrases.gain(label))) extend(slot, label);
      }
    }
  }
  const size_t many = 4 * static_cast<size_t>(options_.beam) + 64;
  if (extensions_.size() > many) raise_threshold();
}

bool PrefixSearch::is_active_child(int32_t slot, int32_t label, int32_t word) const {
  for (int32_t c = first_child_[static_cast<size_t>(slot)]; c != none;
       c = next_sibling_[static_cast<size_t>(c)]) {
    const Node& n = node(active_[static_cast<size_t>(c)].node);
    if (n.label == label && n.word == word) return true;
  }
  return false;
}

// To that of the last that would be in the beam if there were no others to come.
void PrefixSearch::raise_threshold() {
  ranked_.clear();
  for (const Active& a : next_) ranked_.push_back(total(a));
  for (const Extension& e : extensions_) ranked_.push_back(e.probability);
  const auto last = ranked_.begin() + (options_.beam - 1);
  std::nth_element(ranked_.begin(), last, ranked_.end(), std::greater<>());
  threshold_ = std::max(threshold_, *last);
  std::erase_if(extensions_, [&](const Extension& e) { return e.probability < threshold_; });
}

// The best of all. Of equal ones those that were in the beam come first, then those that were found
// first.
void PrefixSearch::select() {
  ranked_.clear();
  for (const Active& a : next_) ranked_.push_back(total(a));
  for (const Extension& e : extensions_) ranked_.push_back(e.probability);
  const double best = *std::max_element(ranked_.begin(), ranked_.end());
  if (!(best > 0)) {
    possible_ = false;
    return;
  }
  const auto beam = static_cast<size_t>(options_.beam);
  double least = best * range_;
  size_t equal = beam;  // how many of probability `least` there is room for
  if (ranked_.size() > beam) {
    const auto last = ranked_.begin() + (options_.beam - 1);
    std::nth_element(ranked_.begin(), last, ranked_.end(), std::greater<>());
    if (*last >= least) {
      least = *last;
      equal = static_cast<size_t>(std::count(ranked_.begin(), last + 1, least));
    }
  }
  const auto stays = [&](double p) {
    if (p == 0 || p < least || (p == least && equal == 0)) return false;
    equal -= p == least;
    return true;
  };
  for (const Active& a : active_) slot_of_[static_cast<size_t>(a.node)] = none;
  std::swap(active_, next_);  // next_: for the nodes that extensions grew from
  std::erase_if(active_, [&](const Active& a) { return !stays(total(a)); });
  for (const Extension& e : extensions_) {
    if (!stays(e.probability)) continue;
    const int32_t parent = next_[static_cast<size_t>(e.slot)].node;
    active_.push_back({node_of(parent, e), 0, e.probability});
  }
  for (size_t i = 0; i < active_.size(); ++i)
    slot_of_[static_cast<size_t>(active_[i].node)] = static_cast<int32_t>(i);
  rescale(best);
}

// By a power of two, which changes no digit.
void PrefixSearch::rescale(double best) {
  int exponent;
  std::frexp(best, &exponent);
  if (std::abs(exponent) < 32) return;
  const double factor = std::ldexp(1.0, -exponent);
  for (Active& a : active_) {
    a.blank *= factor;
    a.label *= factor;
  }
  exponent_ += exponent;
}

size_t PrefixSearch::first_place(int32_t parent, int32_t label, int32_t word) const {
  uint64_t key = static_cast<uint64_t>(parent) << 32 | static_cast<uint32_t>(label);
  key = (key ^ (static_cast<uint64_t>(static_cast<uint32_t>(word)) << 17)) * 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(key >> (64 - std::countr_zero(table_.size())));
}

int32_t PrefixSearch::node_of(int32_t parent, const Extension& e) {
  size_t at = first_place(parent, e.label, e.word);
  for (; table_[at] != none; at = (at + 1) & (table_.size() - 1)) {
    const Node& n = node(table_[at]);
    if (n.parent == parent && n.label == e.label && n.word == e.word) return table_[at];
  }
  const auto made = static_cast<int32_t>(nodes_.size());
  RONDO_CHECK(nodes_.size() < INT32_MAX, "more prefixes than can be counted");
  nodes_.push_back({parent, e.label, e.word, node(parent).depth + 1, e.state, e.gain});
  slot_of_.push_back(none);
  table_[at] = made;
  if (2 * nodes_.size() > table_.size()) rehash(2 * table_.size());
  return made;
}

void PrefixSearch::rehash(size_t size) {
  table_.assign(size, none);
  for (size_t i = 1; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    size_t at = first_place(n.parent, n.label, n.word);
    while (table_[at] != none) at = (at + 1) & (size - 1);
    table_[at] = static_cast<int32_t>(i);
  }
}

// A prefix that none of the beam begins with has no descendants there either, so nobody notices
// when it is found anew later.
void PrefixSearch::collect_garbage() {
  std::vector<int32_t> moved(nodes_.size(), none);
  moved[0] = 0;
  for (const Active& a : active_)
    for (int32_t n = a.node; moved[static_cast<size_t>(n)] == none; n = node(n).parent)
      moved[static_cast<size_t>(n)] = 0;
  size_t kept = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (moved[i] == none) continue;
    moved[i] = static_cast<int32_t>(kept);
    nodes_[kept] = nodes_[i];  // a parent is before its children
    if (i > 0) nodes_[kept].parent = moved[static_cast<size_t>(nodes_[i].parent)];
    ++kept;
  }
  nodes_.resize(kept);
  slot_of_.assign(kept, none);
  for (size_t i = 0; i < active_.size(); ++i) {
    active_[i].node = moved[static_cast<size_t>(active_[i].node)];
    slot_of_[static_cast<size_t>(active_[i].node)] = static_cast<int32_t>(i);
  }
  live_nodes_ = kept;
  rehash(table_.size());
}

FoundPrefixes PrefixSearch::found() const {
  FoundPrefixes f;
  f.exponent = exponent_;
  f.is_possible = possible_;
  for (const Active& a : active_)
    f.prefixes.push_back({path(a.node), node(a.node).state, total(a)});
  return f;
}

PrefixPath PrefixSearch::path(int32_t n) const {
  PrefixPath p;
  for (; n != 0; n = node(n).parent) {
    p.labels.push_back(node(n).label);
    p.words.push_back(node(n).word);
  }
  std::reverse(p.labels.begin(), p.labels.end());
  std::reverse(p.words.begin(), p.words.end());
  return p;
}

int32_t PrefixSearch::best_node() const {
  const auto best =
      std::max_element(active_.begin(), active_.end(),
                       [&](const Active& a, const Active& b) { return total(a) < total(b); });
  return best->node;
}

int32_t PrefixSearch::common_node() const {
  int32_t common = active_.front().node;
  for (const Active& a : active_) {
    int32_t other = a.node;
    while (common != other) {
      int32_t& deeper = node(common).depth > node(other).depth ? common : other;
      deeper = node(deeper).parent;
    }
  }
  return common;
}

}  // namespace rondo::decode
