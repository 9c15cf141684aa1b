#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "kernels/beam_search/beam_search_impl.h"

namespace rondo {
namespace {

using Labels = std::vector<int32_t>;

struct Prefix {
  Labels labels;
  double blank = 0, label = 0;  // shares of the alignments
  double gain = 1;              // that it grew from its parent with
  int32_t state = 0;            // of the automaton

  int32_t last() const { return labels.empty() ? -1 : labels.back(); }
};

class Search {
 public:
  explicit Search(const BeamSearchArgs& args) : args_(args), classes_(args.scores.dim(1)) {
    Prefix empty;
    empty.blank = 1;
    empty.state = args.automaton.start;
    beam_.push_back(empty);
  }

  // Whether the search goes on.
  bool advance(const std::vector<double>& p) {
    std::vector<Prefix> all = staying(p);
    grow(p, all);
    // stable: equal ones keep the order in which they were found.
    std::stable_sort(all.begin(), all.end(),
                     [&](const Prefix& a, const Prefix& b) { return total(a) > total(b); });
    const double best = total(all.front());
    if (!(best > 0)) return false;
    std::erase_if(
        all, [&](const Prefix& x) { return !(total(x) > 0) || total(x) < best * args_.range; });
    if (all.size() > static_cast<size_t>(args_.beam)) all.resize(static_cast<size_t>(args_.beam));
    rescale(best, all);
    beam_ = std::move(all);
    return true;
  }

  const std::vector<Prefix>& beam() const { return beam_; }
  int32_t exponent() const { return exponent_; }
  double total(const Prefix& x) const { return join(x.blank, x.label); }

 private:
  double join(double a, double b) const { return args_.sum ? a + b : std::max(a, b); }

  std::vector<Prefix> staying(const std::vector<double>& p) const {
    std::vector<Prefix> all;
    for (const Prefix& x : beam_) {
      Prefix y = x;
      y.blank = total(x) * p[static_cast<size_t>(args_.blank)];
      y.label = x.last() < 0 ? 0 : x.label * p[static_cast<size_t>(x.last())];
      all.push_back(y);
    }
    return all;
  }

  void grow(const std::vector<double>& p, std::vector<Prefix>& all) const {
    std::map<Labels, size_t> place;
    for (size_t i = 0; i < all.size(); ++i) place[all[i].labels] = i;
    for (const Prefix& x : beam_) {
      for (int32_t c = 0; c < classes_; ++c) {
        const double probability = p[static_cast<size_t>(c)];
        if (c == args_.blank || probability < args_.floor) continue;
        if (args_.extends && !args_.extends[c]) continue;
        const BeamAutomaton& known = args_.automaton;
        const int64_t at = int64_t{x.state} * classes_ + c;
        const double gain = known.gains ? known.gains[at] : 1;
        const double before = c == x.last() ? x.blank : total(x);
        const double reached = before * probability * gain;
        Labels labels = x.labels;
        labels.push_back(c);
        if (const auto found = place.find(labels); found != place.end()) {
          Prefix& y = all[found->second];
          y.label = join(y.label, reached);
        } else if (reached > 0) {
          Prefix y;
          y.labels = std::move(labels);
          y.label = reached;
          y.gain = gain;
          y.state = known.next ? known.next[at] : 0;
          all.push_back(std::move(y));
        }
      }
    }
  }

  void rescale(double best, std::vector<Prefix>& all) {
    const int32_t exponent = scale_of(best);
    for (Prefix& x : all) {
      x.blank *= inverse_power(exponent);
      x.label *= inverse_power(exponent);
    }
    exponent_ += exponent;
  }

  const BeamSearchArgs& args_;
  const int64_t classes_;
  std::vector<Prefix> beam_;
  int32_t exponent_ = 0;
};

// Empty: the row has a NaN or no finite largest score.
template <class T>
std::vector<double> softmax(const T* row, int64_t classes) {
  std::vector<double> p;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t c = 0; c < classes; ++c) {
    p.push_back(static_cast<double>(row[c]));
    if (std::isnan(p.back())) return {};
    largest = std::max(largest, p.back());
  }
  if (!std::isfinite(largest)) return {};
  for (double& x : p) sum += x = std::exp(x - largest);
  for (double& x : p) x /= sum;
  return p;
}

// How a search of one sequence ended.
struct Outcome {
  int32_t stopped = -1;
  bool has_prefixes = true;
};

template <class T>
Outcome run(const BeamSearchArgs& a, int64_t n, Search& search) {
  const int32_t length = n < a.layout.extent->sequences ? a.layout.lengths[n] : 0;
  for (int32_t t = 0; t < length; ++t) {
    const int64_t row = a.layout.row_offsets[t] + n;
    const auto p = softmax(a.scores.as<T>() + row * a.scores.dim(1), a.scores.dim(1));
    if (p.empty()) return {t, false};
    if (!search.advance(p)) return {t, true};
  }
  return {};
}

void write(const BeamSearchArgs& a, int64_t n, const Search& search, Outcome outcome) {
  const auto count = outcome.has_prefixes ? static_cast<int32_t>(search.beam().size()) : 0;
  a.counts.as<int32_t>()[n] = count;
  a.stopped.as<int32_t>()[n] = outcome.stopped;
  a.exponents.as<int32_t>()[n] = search.exponent();
  for (int32_t w = 0; w < a.beam; ++w) {
    const Prefix empty;
    const Prefix& x = w < count ? search.beam()[static_cast<size_t>(w)] : empty;
    a.probabilities.as<double>()[n * a.beam + w] = search.total(x);
    a.lengths.as<int32_t>()[n * a.beam + w] = static_cast<int32_t>(x.labels.size());
    a.states.as<int32_t>()[n * a.beam + w] = x.state;
    for (size_t i = 0; i < x.labels.size(); ++i)
      a.labels.as<int32_t>()[(a.layout.row_offsets[i] + n) * a.beam + w] = x.labels[i];
  }
}

}  // namespace

void beam_search_ref(const Context&, const BeamSearchArgs& a) {
  check_beam_search(a);
  std::fill_n(a.labels.as<int32_t>(), a.labels.numel(), -1);
  for (int64_t n = 0; n < a.layout.capacity.sequences; ++n) {
    Search search(a);
    Outcome outcome;
    visit_floating(a.scores.dtype, [&]<class T>(T) { outcome = run<T>(a, n, search); });
    write(a, n, search, outcome);
  }
}

}  // namespace rondo
