#include "engine/decode/beam_search.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();
constexpr int32_t none = -1;

double log_add(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == nothing ? a : a + std::log1p(std::exp(b - a));
}

// Log-probabilities of one frame.
void log_softmax(const float* scores, int32_t frame, std::vector<double>& out) {
  double largest = nothing;
  for (size_t c = 0; c < out.size(); ++c) {
    RONDO_CHECK(!std::isnan(scores[c]), "frame ", frame, " holds a NaN score");
    largest = std::max(largest, static_cast<double>(scores[c]));
  }
  RONDO_CHECK(std::isfinite(largest), "frame ", frame, " holds no finite largest score");
  double sum = 0;
  for (size_t c = 0; c < out.size(); ++c) sum += std::exp(scores[c] - largest);
  const double shift = largest + std::log(sum);
  for (size_t c = 0; c < out.size(); ++c) out[c] = scores[c] - shift;
}

class Search {
 public:
  Search(int32_t classes, const BeamOptions& options)
      : options_(options), frame_(static_cast<size_t>(classes)) {
    nodes_.push_back({none, none});
    active_.push_back({0, 0, nothing});
    slot_of_.push_back(0);
  }

  void advance(const float* scores, int32_t frame) {
    log_softmax(scores, frame, frame_);
    extending_.clear();
    for (int32_t c = 0; c < static_cast<int32_t>(frame_.size()); ++c) {
      const double p = frame_[static_cast<size_t>(c)];
      if (c != options_.blank && p >= options_.token_floor && p != nothing) extending_.push_back(c);
    }
    stay();
    extend();
    select();
  }

  std::vector<BeamHypothesis> best() const {
    std::vector<BeamHypothesis> all;
    for (const Prefix& p : active_) {
      if (all.size() == static_cast<size_t>(options_.nbest)) break;
      BeamHypothesis h;
      h.log_probability = total(p);
      for (int32_t n = p.node; n != 0; n = node(n).parent) h.labels.push_back(node(n).label);
      std::reverse(h.labels.begin(), h.labels.end());
      all.push_back(std::move(h));
    }
    return all;
  }

 private:
  struct Node {
    int32_t parent, label;
  };
  // A prefix, and the log-probability of its alignments that end in a blank or in its last label.
  struct Prefix {
    int32_t node;
    double blank, label;
  };
  // A prefix that is not in the beam: one of those there, and a label behind it.
  struct Extension {
    int32_t parent, label;
    double probability;
  };

  const Node& node(int32_t n) const { return nodes_[static_cast<size_t>(n)]; }
  double both(double a, double b) const { return options_.sum ? log_add(a, b) : std::max(a, b); }
  double total(const Prefix& p) const { return both(p.blank, p.label); }

  static uint64_t key(int32_t parent, int32_t label) {
    return static_cast<uint64_t>(parent) << 32 | static_cast<uint32_t>(label);
  }

  // Prefixes that stay what they are: by a blank, or by their last label once more.
  void stay() {
    next_ = active_;
    for (Prefix& p : next_) {
      const double before = total(p);
      const int32_t last = node(p.node).label;
      p.label = last == none ? nothing : p.label + frame_[static_cast<size_t>(last)];
      p.blank = before + frame_[static_cast<size_t>(options_.blank)];
    }
  }

  // Prefixes that grow by a label: into another one of the beam, or into a new one.
  void extend() {
    extensions_.clear();
    for (const Prefix& p : active_) {
      const double before = total(p);
      const int32_t last = node(p.node).label;
      for (const int32_t c : extending_) {
        // The same label again needs a blank in between.
        const double from = c == last ? p.blank : before;
        if (from == nothing) continue;
        extensions_.push_back({p.node, c, from + frame_[static_cast<size_t>(c)]});
      }
    }
    // Those that are in the beam already are met there.
    for (Prefix& p : next_) {
      const Node& n = node(p.node);
      if (n.parent == none || slot_of_[static_cast<size_t>(n.parent)] == none) continue;
      const auto label = std::lower_bound(extending_.begin(), extending_.end(), n.label);
      if (label == extending_.end() || *label != n.label) continue;
      Extension* found = extension_of(n.parent, n.label);
      if (!found) continue;
      p.label = both(p.label, found->probability);
      found->probability = nothing;
    }
  }

  Extension* extension_of(int32_t parent, int32_t label) {
    const auto at = std::lower_bound(
        extensions_.begin(), extensions_.end(),
        std::pair(slot_of_[static_cast<size_t>(parent)], label),
        [&](const Extension& e, const std::pair<int32_t, int32_t>& wanted) {
          return std::pair(slot_of_[static_cast<size_t>(e.parent)], e.label) < wanted;
        });
    const bool is_it = at != extensions_.end() && at->parent == parent && at->label == label;
    return is_it ? &*at : nullptr;
  }

  // The best of all; of equal ones those that were in the beam come first, in its order.
  void select() {
    struct Candidate {
      double probability;
      int32_t index;  // in next_, or behind it in extensions_
    };
    std::vector<Candidate> all;
    const auto kept = static_cast<int32_t>(next_.size());
    for (int32_t i = 0; i < kept; ++i) all.push_back({total(next_[static_cast<size_t>(i)]), i});
    for (size_t i = 0; i < extensions_.size(); ++i) {
      if (extensions_[i].probability == nothing) continue;
      all.push_back({extensions_[i].probability, kept + static_cast<int32_t>(i)});
    }
    const auto better = [](const Candidate& a, const Candidate& b) {
      return a.probability != b.probability ? a.probability > b.probability : a.index < b.index;
    };
    const size_t beam = std::min(all.size(), static_cast<size_t>(options_.beam));
    const auto end = all.begin() + static_cast<ptrdiff_t>(beam);
    std::nth_element(all.begin(), end - 1, all.end(), better);
    std::sort(all.begin(), end, better);
    for (const Prefix& p : active_) slot_of_[static_cast<size_t>(p.node)] = none;
    active_.clear();
    for (auto c = all.begin(); c != end; ++c) {
      active_.push_back(c->index < kept ? next_[static_cast<size_t>(c->index)]
                                        : grown(extensions_[static_cast<size_t>(c->index - kept)]));
      slot_of_[static_cast<size_t>(active_.back().node)] = static_cast<int32_t>(active_.size()) - 1;
    }
  }

  Prefix grown(const Extension& e) {
    const auto [at, is_new] =
        children_.try_emplace(key(e.parent, e.label), static_cast<int32_t>(nodes_.size()));
    if (is_new) {
      nodes_.push_back({e.parent, e.label});
      slot_of_.push_back(none);
    }
    return {at->second, nothing, e.probability};
  }

  const BeamOptions options_;
  std::vector<double> frame_;       // log-probabilities of the frame
  std::vector<int32_t> extending_;  // classes that may extend prefixes in it, ascending
  // All prefixes that were ever in the beam, as a tree; the first is the empty one.
  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, int32_t> children_;
  std::vector<int32_t> slot_of_;  // of a node in active_; none: it is not there
  std::vector<Prefix> active_, next_;
  std::vector<Extension> extensions_;  // by slot and label
};

}  // namespace

std::vector<BeamHypothesis> beam_search(const float* scores, int32_t frames, int32_t classes,
                                        const BeamOptions& options) {
  RONDO_CHECK(frames >= 0 && classes >= 1, frames, " frames of ", classes, " classes");
  RONDO_CHECK(options.beam >= 1 && options.nbest >= 1, "beam is ", options.beam, ", nbest ",
              options.nbest);
  RONDO_CHECK(options.blank >= 0 && options.blank < classes, "blank is ", options.blank, " of ",
              classes, " classes");
  Search search(classes, options);
  for (int32_t t = 0; t < frames; ++t) {
    search.advance(scores + static_cast<int64_t>(t) * classes, t);
  }
  return search.best();
}

}  // namespace rondo
