// The search of decoder.h, frame by frame. For decode/ alone.
//
// Probabilities are kept as they are, not as logarithms, each frame's divided by a power of two
// near the best one, so that a step is a few products and sums. Gains of a grammar are multiplied
// in when a prefix grows, which is why they must not depend on the alignment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decode/decoder.h"
#include "engine/decode/grammar.h"

namespace rondo::decode {

// A prefix: its labels, and the words that ended before each (no_word: none did).
struct PrefixPath {
  std::vector<int32_t> labels, words;
};

// What a search has found at the end of the outputs.
struct FoundPrefixes {
  struct Prefix {
    PrefixPath path;
    GrammarState state;
    double probability = 0;  // gains among it, and relative to 2^exponent
  };
  std::vector<Prefix> prefixes;
  int64_t exponent = 0;
  bool is_possible =
      true;  // false: nothing was in some frame, and the prefixes are those before it
};

class PrefixSearch {
 public:
  // Borrows all three.
  PrefixSearch(const Vocabulary& vocabulary, const Grammar& grammar, const DecoderOptions& options);

  void advance(const float* scores);  // of one frame
  int32_t frames() const { return frames_; }

  FoundPrefixes found() const;
  PrefixPath path(int32_t node) const;
  int32_t best_node() const;
  // The prefix that all of the beam have.
  int32_t common_node() const;
  // So many frames at the end have a blank with a probability above 0.99.
  int32_t blank_frames() const { return blank_frames_; }

 private:
  static constexpr int32_t none = -1;

  // All prefixes that were in the beam, as a tree. The first is the empty one.
  struct Node {
    int32_t parent = none, label = none, word = no_word, depth = 0;
    GrammarState state;
    double gain = 1;  // that it grew from its parent with
  };
  // A prefix of the beam, and the probabilities of its alignments that end in a blank and in its
  // last label.
  struct Active {
    int32_t node = 0;
    double blank = 1, label = 0;
  };
  // A prefix that is not in the beam: one of those there, and a label behind it.
  struct Extension {
    double probability;
    int32_t slot, label, word;
    GrammarState state;
    double gain;
  };

  void load(const float* scores);
  void stay();
  void merge();
  void choose_extending();
  void extend(int32_t slot);
  void extend(int32_t slot, int32_t label);
  bool is_active_child(int32_t slot, int32_t label, int32_t word) const;
  void raise_threshold();
  void select();
  void rescale(double best);
  void collect_garbage();
  void rehash(size_t size);
  int32_t node_of(int32_t parent, const Extension& e);
  size_t first_place(int32_t parent, int32_t label, int32_t word) const;
  const Node& node(int32_t n) const { return nodes_[static_cast<size_t>(n)]; }
  double join(double a, double b) const { return options_.sum ? a + b : std::max(a, b); }
  double total(const Active& a) const { return join(a.blank, a.label); }

  const Vocabulary& vocabulary_;
  const Grammar& grammar_;
  const DecoderOptions& options_;
  ModelMemo memo_;
  PhraseMemo phrases_;
  int32_t frames_ = 0, blank_frames_ = 0;
  bool possible_ = true;
  int64_t exponent_ = 0;  // of 2: what probabilities were divided by

  std::vector<int32_t> written_;    // the labels that may be written
  std::vector<double> frame_;       // probabilities of the classes
  double smallest_ = 0;             // that a class must have to extend prefixes
  double range_ = 0;                // share of the best that a prefix must have
  std::vector<int32_t> extending_;  // the classes that do, the most probable first
  // The same as bits, and the class of each bit; where the grammar tells what may follow.
  uint64_t extending_bits_ = 0;
  int32_t class_of_bit_[64] = {};

  std::vector<Node> nodes_;
  std::vector<int32_t> slot_of_;  // of a node in active_; none: it is not there
  std::vector<int32_t> table_;    // of nodes by parent, label and word; open addressing
  size_t live_nodes_ = 0;         // when the last were thrown away

  std::vector<Active> active_, next_;
  std::vector<int32_t> first_child_, next_sibling_;  // slots of active_
  std::vector<double> totals_;                       // of active_, before the frame
  // Of active_: what no extension reaches more than, without its label's probability and phrases.
  std::vector<double> reachable_;
  std::vector<Extension> extensions_;
  double threshold_ = 0;  // nothing below it, or at it, comes into the beam any more
  std::vector<double> ranked_;
};

}  // namespace rondo::decode
