#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/cases/check/check.h"
#include "kernels/ctc/ctc.h"
#include "kernels/ctc/ctc_chunk.h"

namespace rondo::check {
namespace {

enum class Gradient : uint8_t { none, separate, in_place };
enum class LabelKind : uint8_t { random, repeats, one_class };
enum class LogitKind : uint8_t {
  uniform,  // in [-range, range]
  peaked,   // one random class per row leads the others by `range`
  aligned,  // as a trained model: an alignment of the labels leads by `range`
  holed,    // uniform, some classes -inf
};

struct Setup {
  DType dtype = DType::f32;
  int32_t classes = 5;
  std::vector<int32_t> lengths = {7};        // in packed order, that is longest sequence first
  std::vector<int32_t> label_lengths = {3};  // in the same
  // Row t * N + n has frame t of sequence n, in any order of lengths: the C interface's batches.
  // Rows past a length hold NaN, and no gradient.
  bool padded = false;
  int32_t blank = 0;
  CtcInput input = CtcInput::logits;
  Gradient gradient = Gradient::separate;
  LabelKind labels = LabelKind::random;
  LogitKind logits = LogitKind::uniform;
  double range = 3;
  bool zero_infinity = false;
  bool scaled = false;
  int32_t spare_rows = 3, spare_sequences = 0;
  size_t lattice_limit = ctc_lattice_limit;
  int32_t poisoned = -1;  // this sequence gets `poison` in one logit
  double poison = nan;
};

struct Batch {
  std::vector<int32_t> labels, offsets = {0};
  std::vector<double> logits;
};

int32_t longest(const Setup& s) {
  return s.lengths.empty() ? 0 : *std::max_element(s.lengths.begin(), s.lengths.end());
}

int32_t random_label(Case& c, const Setup& s) {
  const auto v = static_cast<int32_t>(c.random(s.classes - 1));
  return v + (v >= s.blank);
}

void make_labels(Case& c, const Setup& s, int32_t capacity, Batch& b) {
  for (size_t n = 0; n < static_cast<size_t>(capacity); ++n) {
    const int32_t length = n < s.label_lengths.size() ? s.label_lengths[n] : 0;
    for (int32_t i = 0; i < length; ++i) {
      const bool again = i > 0 && (s.labels == LabelKind::one_class ||
                                   (s.labels == LabelKind::repeats && c.random(3) == 0));
      b.labels.push_back(again ? b.labels.back() : random_label(c, s));
    }
    b.offsets.push_back(static_cast<int32_t>(b.labels.size()));
  }
}

// The class an evenly spread alignment of the labels has at frame t: spikes between blanks.
int32_t aligned_class(const Setup& s, const Batch& b, size_t n, int32_t t) {
  const int64_t first = b.offsets[n], count = b.offsets[n + 1] - first, frames = s.lengths[n];
  if (count == 0) return s.blank;
  const int64_t i = t * count / frames;
  const bool spike = i * frames <= t * count - count / 2 && (t + 1) * count / frames != i;
  return spike || frames < 2 * count ? b.labels[static_cast<size_t>(first + i)] : s.blank;
}

void make_logits(Case& c, const Setup& s, const PackedView& layout, Batch& b) {
  const int64_t classes = s.classes;
  b.logits.assign(static_cast<size_t>(layout.capacity.rows * classes), nan);
  // Rows in the order of packed.h: frame by frame, the sequences that still run; they are the
  // first.
  int64_t first = 0;
  for (int32_t t = 0; t < longest(s); ++t) {
    int64_t running = 0;
    for (size_t n = 0; n < s.lengths.size(); ++n) {
      if (s.lengths[n] <= t) continue;
      ++running;
      const int64_t r = first + static_cast<int64_t>(n);
      const int64_t lead = s.logits == LogitKind::peaked    ? c.random(classes)
                           : s.logits == LogitKind::aligned ? aligned_class(s, b, n, t)
                                                            : -1;
      for (int64_t v = 0; v < classes; ++v) {
        double x = c.random_real(-1, 1);
        if (lead < 0) x *= s.range;
        if (lead == v) x += s.range;
        if (s.logits == LogitKind::holed && v != s.blank && c.random(4) == 0) x = -infinity;
        if (s.input == CtcInput::log_softmax) x -= s.range + 1;
        const bool hit = static_cast<int32_t>(n) == s.poisoned && t == s.lengths[n] / 2;
        b.logits[static_cast<size_t>(r * classes + v)] = hit && v == s.blank ? s.poison : x;
      }
    }
    first += s.padded ? static_cast<int64_t>(s.lengths.size()) : running;
  }
}

// Losses are sums over the frames of numbers of the logits' size.
Tolerance loss_tolerance(const Setup& s) {
  const double frames = std::max(longest(s), 1);
  const DType type = s.dtype == DType::f64 ? DType::f64 : DType::f32;
  return Tolerance::ulps(type, 4 + std::sqrt(frames), 1 + s.range);
}

// Gradients lie in [-1, 1] times the scale. The relative error of an exp is the absolute one of its
// argument. In f32 that is `range` ulps of 1 a frame, and posteriors feel several frames. In the
// f64 reference, which runs in log space, it is the rounding of `frames` steps on sums of up to
// frames * (range + log classes).
Tolerance grad_tolerance(const Setup& s, double scale) {
  const double frames = std::max(longest(s), 1);
  switch (s.dtype) {
    case DType::bf16:
      return Tolerance::ulps(s.dtype, 1, scale);
    case DType::f64:
      return Tolerance::ulps(
          s.dtype, 16 + frames * std::sqrt(frames) * (s.range + std::log(s.classes)), scale);
    default:
      return Tolerance::ulps(s.dtype, 16 + 4 * s.range, scale);
  }
}

PackedView layout_of(Case& c, const Setup& s) {
  if (!s.padded) return c.packed(s.lengths, s.spare_rows, s.spare_sequences);
  // Sequences of one length lie so; the kernels ask each for its own.
  PackedView layout = c.packed(std::vector<int32_t>(s.lengths.size(), longest(s)));
  layout.lengths = c.ints(s.lengths);
  return layout;
}

TensorView gradient_of(Case& c, const Setup& s, const PackedView& layout, Tolerance tolerance) {
  if (!s.padded) return c.rows_output("grad", layout, s.classes, s.dtype, tolerance);
  const int64_t rows = layout.capacity.rows;
  const std::vector<double> zeros(static_cast<size_t>(rows * s.classes));
  return c.in_out_values("grad", {rows, s.classes}, s.dtype, tolerance, zeros);
}

void ctc_case(Case& c, CtcArgs& args, const Setup& s) {
  args.layout = layout_of(c, s);
  Batch b;
  make_labels(c, s, args.layout.capacity.sequences, b);
  make_logits(c, s, args.layout, b);
  const int64_t rows = args.layout.capacity.rows, sequences = args.layout.capacity.sequences;
  args.labels = c.ints(b.labels);
  args.label_offsets = c.ints(b.offsets);
  for (int32_t l : s.label_lengths) args.max_label_length = std::max(args.max_label_length, l);
  args.blank = s.blank;
  args.input = s.input;
  args.zero_infinity = s.zero_infinity;
  args.lattice_limit = s.lattice_limit;
  const DType loss_type = s.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (s.scaled) args.grad_scale = c.input({sequences}, loss_type, {Fill::uniform, -2, 2});
  args.loss = c.output("loss", {sequences}, loss_type, loss_tolerance(s));
  const Tolerance tolerance = grad_tolerance(s, s.scaled ? 2 : 1);
  if (s.gradient == Gradient::in_place) {
    args.logits = args.grad =
        c.in_out_values("grad", {rows, s.classes}, s.dtype, tolerance, b.logits);
  } else {
    args.logits = c.input_values({rows, s.classes}, s.dtype, b.logits);
    if (s.gradient == Gradient::separate) {
      args.grad = gradient_of(c, s, args.layout, tolerance);
    }
  }
  args.workspace = c.workspace(ctc_workspace_bytes(c.context(), args.layout.capacity, s.dtype,
                                                   s.classes, args.max_label_length,
                                                   static_cast<bool>(args.grad), s.lattice_limit));
  const double live = static_cast<double>(c.extent_rows(args.layout));
  const double states = 2.0 * args.max_label_length + 1, classes = s.classes;
  // alpha and beta: two sums and a product per state each; posterior: a product and a sum; exp: 20.
  c.work(live * (states * 8 + classes * 42),
         live * classes * static_cast<double>(size_of(s.dtype)) * (args.grad ? 3 : 1));
}

Suite::Entry& add(Suite& suite, const std::string& label, const Setup& s) {
  return suite.add(label, ctc_case, s);
}

// What log space has no other path for than for a thousand labels.
void add_fast(Suite& suite, const std::string& label, const Setup& s) {
  add(suite, label, s).simulated = {"fast"};
}

constexpr std::initializer_list<DType> all_types = {DType::f32, DType::bf16, DType::f64};

// T, N, V, L around the widths of vectors and tiles. The simulator has a third of them: every two
// of T, V and L.
void add_sizes(Suite& suite) {
  constexpr int32_t frames[] = {1, 2, 7, 31, 32, 33, 65}, classes[] = {2, 5, 16, 17, 33, 70},
                    labels[] = {0, 1, 7, 8, 9, 16, 31};
  for (const auto& [dtype, t, v, l] :
       every(all_types, {0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6})) {
    const int32_t T = frames[t], V = classes[v], L = labels[l];
    if (L > T) continue;
    Setup s = {dtype, V, {T, T - T / 6, T - 2 * T / 6}, {L, L / 2, L / 3}};
    s.blank = V / 2, s.labels = LabelKind::repeats;
    auto& entry = add(suite, str("sizes/", name_of(dtype), "/T", T, "V", V, "L", L), s);
    // With so few frames there are few numbers of labels.
    const bool simulated = (t + v + l) % 3 == 0 || T <= 2;
    if (!simulated) entry.simulated.emplace();
  }
}

void add_edges(Suite& suite) {
  for (DType dtype : all_types) {
    const auto add_edge = [&](const std::string& what, const Setup& s) {
      add(suite, str("edges/", name_of(dtype), "/", what), s);
    };
    Setup ragged = {dtype, 9, {40, 33, 20, 20, 3, 0, 0}, {12, 0, 9, 1, 3, 0, 1}};
    ragged.spare_sequences = 2;
    add_edge("ragged", ragged);
    for (Gradient g : {Gradient::none, Gradient::in_place}) {
      const char* name = g == Gradient::none ? "loss_only" : "in_place";
      Setup s = ragged;
      s.gradient = g;
      add_edge(name, s);
      s.input = CtcInput::log_softmax;
      add_edge(str("log_softmax_", name), s);
    }
    Setup s = ragged;
    s.scaled = true;
    add_edge("grad_scale", s);
    s.input = CtcInput::log_softmax;
    add_edge("log_softmax", s);
    for (bool zero : {false, true}) {
      s = ragged;
      s.label_lengths = {21, 17, 10, 11, 2, 0, 2};  // those of 20/11 and 3/2 need 21 and 3
      s.labels = LabelKind::one_class, s.zero_infinity = zero, s.scaled = true;
      add_edge(zero ? "zero_infinity" : "infeasible", s);
    }
    for (int32_t blank : {0, 4, 8}) {
      s = ragged;
      s.blank = blank;
      add_edge(str("blank", blank), s);
    }
    for (const auto& [poison, input] :
         every({nan, infinity, -infinity}, {CtcInput::logits, CtcInput::log_softmax})) {
      s = ragged;
      s.input = input, s.poisoned = 2, s.poison = poison;
      add_edge(str(input == CtcInput::logits ? "poison" : "log_softmax_poison", poison), s);
    }
    s = ragged;
    s.lengths = {0, 0};
    s.label_lengths = {0, 2};
    add_edge("all_empty", s);
    s.lengths = s.label_lengths = {};
    add_edge("no_sequences", s);
  }
}

// What leaves the range of plain doubles: each of these must still be right.
void add_extremes(Suite& suite) {
  for (const auto& [dtype, kind, range, gradient] :
       every({DType::f32, DType::f64},
             {LogitKind::uniform, LogitKind::peaked, LogitKind::aligned, LogitKind::holed},
             {1.0, 15.0, 80.0, 2000.0}, {Gradient::separate, Gradient::none})) {
    Setup s = {dtype, 12, {130, 90, 60, 22}, {40, 44, 3, 20}};
    s.gradient = gradient, s.labels = LabelKind::repeats, s.logits = kind, s.range = range;
    add(suite,
        str("extremes/", name_of(dtype), "/kind", static_cast<int>(kind), "/", range,
            gradient == Gradient::none ? "/loss_only" : ""),
        s);
  }
}

void add_long(Suite& suite) {
  for (LogitKind kind : {LogitKind::uniform, LogitKind::aligned}) {
    const std::string name = str("/kind", static_cast<int>(kind));
    Setup s = {DType::f32, 7, {1800, 1500}, {1050, 200}};
    s.logits = kind, s.range = kind == LogitKind::uniform ? 2 : 12;
    // The simulator has segments/blocks.
    add(suite, "long" + name, s).simulated.emplace();
    s.lengths = {400, 300}, s.label_lengths = {60, 40}, s.classes = 300;
    add(suite, "wide_rows" + name, s);
    s.dtype = DType::bf16;
    add(suite, "wide_rows_bf16" + name, s);
  }
}

// So many labels, with these lengths.
Setup labelled(int32_t labels, std::vector<int32_t> lengths) {
  Setup s = {DType::f32, 6, std::move(lengths), {labels, labels / 2}};
  s.labels = LabelKind::repeats;
  s.logits = labels % 2 ? LogitKind::aligned : LogitKind::uniform, s.range = labels % 2 ? 6 : 1;
  return s;
}

// Labels around the borders of the tiles that GPU lanes, warps and blocks hold, with few frames to
// spare, so that alignments cross all of them.
void add_tiles(Suite& suite) {
  for (int32_t labels : {30, 31, 32, 62, 63, 64, 126, 127, 128, 129, 255, 256, 512, 1023, 1024}) {
    Setup s = labelled(labels, {labels + labels / 4 + 8, labels + labels / 4 + 1});
    if (labels > 512) {
      add_fast(suite, str("tiles/L", labels), s);
      continue;
    }
    add(suite, str("tiles/L", labels), s);
    s.gradient = Gradient::none;
    add(suite, str("tiles/loss_only/L", labels), s);
  }
}

// A lattice that GPUs keep at some frames alone: halves of less than a segment, of several, and
// with a rest; and states over many blocks, the second sequence's over fewer.
void add_segments(Suite& suite) {
  for (const auto& [labels, spare] : every({0, 9, 31, 40, 63, 100, 127, 150, 600}, {1, 61, 260})) {
    Setup s = labelled(labels, {labels + labels / 4 + spare, labels + labels / 8 + spare});
    s.lattice_limit = 0;
    s.dtype = spare == 61 ? DType::bf16 : DType::f32;
    auto& entry = add(suite, str("segments/T", s.lengths.front(), "L", labels), s);
    if (labels == 600 && spare != 61) entry.simulated.emplace();  // many segments in any case
  }
  Setup s = {DType::f32, 9, {240, 133, 70, 20, 3, 0, 0}, {12, 0, 9, 21, 3, 0, 1}};
  s.labels = LabelKind::one_class, s.scaled = true, s.spare_sequences = 2, s.lattice_limit = 0;
  add(suite, "segments/ragged", s);
  s.gradient = Gradient::in_place, s.input = CtcInput::log_softmax, s.zero_infinity = true;
  add(suite, "segments/in_place", s);
  s.poisoned = 1;
  add(suite, "segments/poison", s);
  Setup blocks = {DType::f32, 40, {1180, 350, 50}, {1100, 300, 7}};
  blocks.logits = LogitKind::aligned, blocks.range = 12;
  add_fast(suite, "segments/blocks", blocks);
  Setup many = {DType::bf16, 8200, {1180, 40}, {1150, 3}};  // more than 1024 different ones
  many.range = 1, many.poisoned = 1;
  add_fast(suite, "segments/blocks_many_classes", many);
  blocks.gradient = Gradient::none, blocks.logits = LogitKind::uniform, blocks.range = 3;
  add_fast(suite, "segments/blocks_loss_only", blocks);
}

void add_padded(Suite& suite) {
  for (DType dtype : all_types) {
    Setup s = {dtype, 9, {20, 0, 40, 3, 33, 20}, {9, 1, 12, 3, 0, 12}};
    s.padded = true, s.blank = 4, s.labels = LabelKind::repeats;
    add(suite, str("padded/", name_of(dtype)), s);
    s.lattice_limit = 0;
    add(suite, str("padded/segments/", name_of(dtype)), s);
    s.gradient = Gradient::none;
    add(suite, str("padded/loss_only/", name_of(dtype)), s);
    s.gradient = Gradient::separate, s.lattice_limit = ctc_lattice_limit;
    s.classes = 1030, s.lengths = {150, 330, 0}, s.label_lengths = {130, 260, 3};
    add(suite, str("padded/wide/", name_of(dtype)), s);
  }
}

// Long and sharp: values leave the range of f32 and come back.
void add_sharp(Suite& suite) {
  for (LogitKind kind : {LogitKind::uniform, LogitKind::peaked, LogitKind::aligned}) {
    Setup s = {DType::f32, 20, {2000, 160}, {20, 100}};
    s.logits = kind, s.range = 25;
    add(suite, str("sharp/kind", static_cast<int>(kind)), s);
  }
}

// Many classes: labels are gathered, gradients corrected by chunks and, if large, stored past the
// caches. One sequence: threads share its rows.
void add_many_classes(Suite& suite) {
  for (DType dtype : all_types) {
    const int32_t frames = dtype == DType::bf16 ? 900 : 450,
                  some = dtype == DType::bf16 ? 200 : 100;
    Setup s = {dtype, 2051, {frames, some}, {30, 50}};
    s.blank = 2050, s.labels = LabelKind::repeats;
    s.spare_rows = 0;  // so that the size of the gradient is that of its rows
    add(suite, str("many_classes/", name_of(dtype)), s);
    s.lengths = {37}, s.label_lengths = {12}, s.spare_rows = 3;
    add(suite, str("one_sequence/", name_of(dtype)), s);
    s.gradient = Gradient::in_place, s.input = CtcInput::log_softmax, s.blank = 1023;
    add(suite, str("one_sequence_log_softmax/", name_of(dtype)), s);
  }
}

struct BenchShape {
  int32_t frames, sequences, classes, labels;
};
constexpr std::initializer_list<BenchShape> batches = {
    {500, 32, 32, 100},  {150, 64, 28, 40},   {250, 32, 5000, 60}, {1000, 32, 32, 40},
    {1000, 32, 32, 100}, {1000, 32, 32, 127}, {1000, 32, 32, 150}, {1000, 32, 32, 250},
    {2000, 64, 5, 450},  {100, 32, 32, 20},   {100, 32, 5000, 20}, {2000, 16, 32, 450}};
// One utterance: a sentence, and a recording of minutes.
constexpr std::initializer_list<BenchShape> alone = {{1000, 1, 32, 100}, {20000, 1, 32, 5000}};

void add_benches(Suite& suite, const char* group, std::initializer_list<BenchShape> shapes) {
  for (const auto& [shape, dtype] : every(shapes, f32_bf16)) {
    const auto count = static_cast<size_t>(shape.sequences);
    const std::vector<int32_t> lengths(count, shape.frames), label_lengths(count, shape.labels);
    Setup s = {dtype, shape.classes, lengths, label_lengths};
    s.spare_rows = 0;
    suite.add_bench(str(group, "/", name_of(dtype), "/T", shape.frames, "N", shape.sequences, "V",
                        shape.classes, "L", shape.labels),
                    ctc_case, s);
  }
}

// One chunk that holds whole sequences. What crosses borders belongs to one variant, so cuts are
// tested by tests/ctc/ctc_chunk_test.cc.
template <class Args>
void fill_chunk(Case& c, const Setup& s, Args& args) {
  args.layout = c.packed(s.lengths, 3, 1);
  const auto sequences = static_cast<size_t>(args.layout.capacity.sequences);
  std::vector<int32_t> labels, offsets = {0}, totals(sequences, 0);
  for (size_t n = 0; n < sequences; ++n) {
    const int32_t count = n < s.label_lengths.size() ? s.label_lengths[n] : 0;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t label = random_label(c, s);
      labels.push_back(i > 0 && c.random(3) == 0 ? labels.back() : label);
    }
    offsets.push_back(static_cast<int32_t>(labels.size()));
    args.max_label_length = std::max(args.max_label_length, count);
  }
  std::copy(s.lengths.begin(), s.lengths.end(), totals.begin());
  args.total_frames = c.ints(totals);
  args.layout.first_frame = c.ints(std::vector<int32_t>(sequences, 0));
  args.labels = c.ints(labels);
  args.label_offsets = c.ints(offsets);
  args.blank = s.blank;
  args.input = s.input;
  args.workspace = c.workspace(ctc_chunk_workspace_bytes(c.context(), args.layout.capacity, s.dtype,
                                                         s.classes, args.max_label_length));
  // Of what ctc_case counts a pass forward is two sums and a product per state and 20 for the exp
  // of each logit; the gradient is the other half and a fixed cost per class.
  const bool gradient = std::is_same_v<Args, CtcChunkGradArgs>;
  const double live = static_cast<double>(c.extent_rows(args.layout)), classes = s.classes;
  const double states = 2.0 * args.max_label_length + 1;
  c.work(live * (gradient ? states * 5 + classes * 22 : states * 3 + classes * 20),
         live * classes * static_cast<double>(size_of(s.dtype)) * (gradient ? 3 : 1));
}

void chunk_grad_case(Case& c, CtcChunkGradArgs& args, const Setup& s) {
  fill_chunk(c, s, args);
  const int64_t rows = args.layout.capacity.rows, sequences = args.layout.capacity.sequences;
  const DType loss_type = s.dtype == DType::f64 ? DType::f64 : DType::f32;
  args.zero_infinity = s.zero_infinity;
  if (s.scaled) args.grad_scale = c.input({sequences}, loss_type, {Fill::uniform, -2, 2});
  args.loss = c.output("loss", {sequences}, loss_type, loss_tolerance(s));
  const Fill logits = s.input == CtcInput::log_softmax ? Fill{Fill::uniform, -2 * s.range, -1}
                                                       : Fill{Fill::uniform, -s.range, s.range};
  const Tolerance tolerance = grad_tolerance(s, s.scaled ? 2 : 1);
  if (s.gradient == Gradient::in_place) {
    args.logits = args.grad = c.in_out("grad", {rows, s.classes}, s.dtype, tolerance, logits);
  } else {
    args.logits = c.rows_input(args.layout, s.classes, s.dtype, logits);
    args.grad = c.rows_output("grad", args.layout, s.classes, s.dtype, tolerance);
  }
}

// That it stays within its memory; its result is the kernel's own.
void chunk_alpha_case(Case& c, CtcChunkAlphaArgs& args, const Setup& s) {
  fill_chunk(c, s, args);
  args.logits = c.rows_input(args.layout, s.classes, s.dtype, {Fill::uniform, -s.range, s.range});
  const int64_t sequences = args.layout.capacity.sequences;
  const int64_t width = ctc_border_width(args.max_label_length);
  args.alpha_out = c.workspace(static_cast<size_t>(sequences * width) * 8);
  args.alpha_out = TensorView(args.alpha_out.data, DType::f64, {sequences, width});
}

void add_chunks(Suite& suite) {
  const auto add_chunk = [&](const std::string& label, const Setup& s, bool bench = false) {
    suite.add(label, chunk_grad_case, s).bench = bench;
    if (s.gradient == Gradient::in_place) return;
    suite.add(label, chunk_alpha_case, s).bench = bench;
  };
  for (DType dtype : all_types) {
    for (const auto& [T, V, L] : every({1, 7, 33, 65}, {2, 17, 70}, {0, 1, 8, 31})) {
      if (L > T) continue;
      Setup s = {dtype, V, {T, T / 2 + 1, T / 3}, {L, L / 2, L / 3}};
      s.blank = V / 2;
      add_chunk(str("sizes/", name_of(dtype), "/T", T, "V", V, "L", L), s);
    }
    Setup s = {dtype, 9, {40, 33, 20, 3, 0, 0}, {12, 0, 21, 3, 0, 1}};
    add_chunk(str("edges/", name_of(dtype), "/ragged"), s);
    s.gradient = Gradient::in_place, s.scaled = s.zero_infinity = true;
    add_chunk(str("edges/", name_of(dtype), "/in_place"), s);
    s.input = CtcInput::log_softmax;
    add_chunk(str("edges/", name_of(dtype), "/log_softmax"), s);
  }
  for (double range : {30.0, 500.0}) {
    Setup s = {DType::f32, 12, {130, 90, 60}, {40, 44, 3}};
    s.range = range;
    add_chunk(str("extremes/", range), s);
  }
  add_chunk("bench/f32/T500N32V32L100",
            {DType::f32, 32, std::vector<int32_t>(32, 500), std::vector<int32_t>(32, 100)}, true);
}

}  // namespace

void ctc_cases(Suite& suite) {
  add_sizes(suite);
  add_edges(suite);
  add_extremes(suite);
  add_long(suite);
  add_tiles(suite);
  add_segments(suite);
  add_padded(suite);
  add_sharp(suite);
  add_many_classes(suite);
  add_benches(suite, "bench", batches);
  add_benches(suite, "alone", alone);
  add_chunks(suite);
}

}  // namespace rondo::check
