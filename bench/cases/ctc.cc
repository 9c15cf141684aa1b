#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/check/check.h"
#include "kernels/ctc/ctc.h"

namespace rondo::check {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

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
    auto& entry = add(suite, str("sizes/", name_of(dtype), "/T", T, "V", V, "L", L),
                      {.dtype = dtype,
                       .classes = V,
                       .lengths = {T, T - T / 6, T - 2 * T / 6},
                       .label_lengths = {L, L / 2, L / 3},
                       .blank = V / 2,
                       .labels = LabelKind::repeats});
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
    const Setup ragged = {.dtype = dtype,
                          .classes = 9,
                          .lengths = {40, 33, 20, 20, 3, 0, 0},
                          .label_lengths = {12, 0, 9, 1, 3, 0, 1},
                          .spare_sequences = 2};
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
      s.labels = LabelKind::one_class;
      s.label_lengths = {21, 17, 10, 11, 2, 0, 2};  // those of 20/11 and 3/2 need 21 and 3
      s.zero_infinity = zero;
      s.scaled = true;
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
      s.input = input;
      s.poisoned = 2;
      s.poison = poison;
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
             {1.0, 15.0, 80.0, 2000.0}, {Gradient::separate, Gradient::none}))
    add(suite,
        str("extremes/", name_of(dtype), "/kind", static_cast<int>(kind), "/", range,
            gradient == Gradient::none ? "/loss_only" : ""),
        {.dtype = dtype,
         .classes = 12,
         .lengths = {130, 90, 60, 22},
         .label_lengths = {40, 44, 3, 20},
         .gradient = gradient,
         .labels = LabelKind::repeats,
         .logits = kind,
         .range = range});
}

void add_long(Suite& suite) {
  for (LogitKind kind : {LogitKind::uniform, LogitKind::aligned}) {
    const std::string name = str("/kind", static_cast<int>(kind));
    Setup s = {.classes = 7,
               .lengths = {1800, 1500},
               .label_lengths = {1050, 200},
               .logits = kind,
               .range = kind == LogitKind::uniform ? 2.0 : 12.0};
    // The simulator has segments/blocks.
    add(suite, "long" + name, s).simulated.emplace();
    s.lengths = {400, 300};
    s.label_lengths = {60, 40};
    s.classes = 300;
    add(suite, "wide_rows" + name, s);
    s.dtype = DType::bf16;
    add(suite, "wide_rows_bf16" + name, s);
  }
}

// So many labels, with these lengths.
Setup labelled(int32_t labels, std::vector<int32_t> lengths) {
  return {.classes = 6,
          .lengths = std::move(lengths),
          .label_lengths = {labels, labels / 2},
          .labels = LabelKind::repeats,
          .logits = labels % 2 ? LogitKind::aligned : LogitKind::uniform,
          .range = labels % 2 ? 6.0 : 1.0};
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
  Setup s = {.classes = 9,
             .lengths = {240, 133, 70, 20, 3, 0, 0},
             .label_lengths = {12, 0, 9, 21, 3, 0, 1},
             .labels = LabelKind::one_class,
             .scaled = true,
             .spare_sequences = 2,
             .lattice_limit = 0};
  add(suite, "segments/ragged", s);
  s.gradient = Gradient::in_place;
  s.input = CtcInput::log_softmax;
  s.zero_infinity = true;
  add(suite, "segments/in_place", s);
  s.poisoned = 1;
  add(suite, "segments/poison", s);
  Setup blocks = {.classes = 40,
                  .lengths = {1180, 350, 50},
                  .label_lengths = {1100, 300, 7},
                  .logits = LogitKind::aligned,
                  .range = 12};
  add_fast(suite, "segments/blocks", blocks);
  add_fast(suite, "segments/blocks_many_classes",
           {.dtype = DType::bf16,
            .classes = 8200,
            .lengths = {1180, 40},
            .label_lengths = {1150, 3},  // more than 1024 different ones
            .range = 1,
            .poisoned = 1});
  blocks.gradient = Gradient::none;
  blocks.logits = LogitKind::uniform;
  blocks.range = 3;
  add_fast(suite, "segments/blocks_loss_only", blocks);
}

void add_padded(Suite& suite) {
  for (DType dtype : all_types) {
    Setup s = {.dtype = dtype,
               .classes = 9,
               .lengths = {20, 0, 40, 3, 33, 20},
               .label_lengths = {9, 1, 12, 3, 0, 12},
               .padded = true,
               .blank = 4,
               .labels = LabelKind::repeats};
    add(suite, str("padded/", name_of(dtype)), s);
    s.lattice_limit = 0;
    add(suite, str("padded/segments/", name_of(dtype)), s);
    s.gradient = Gradient::none;
    add(suite, str("padded/loss_only/", name_of(dtype)), s);
    s.gradient = Gradient::separate;
    s.lattice_limit = ctc_lattice_limit;
    s.classes = 1030;
    s.lengths = {150, 330, 0};
    s.label_lengths = {130, 260, 3};
    add(suite, str("padded/wide/", name_of(dtype)), s);
  }
}

// Long and sharp: values leave the range of f32 and come back.
void add_sharp(Suite& suite) {
  for (LogitKind kind : {LogitKind::uniform, LogitKind::peaked, LogitKind::aligned})
    add(suite, str("sharp/kind", static_cast<int>(kind)),
        {.classes = 20,
         .lengths = {2000, 160},
         .label_lengths = {20, 100},
         .logits = kind,
         .range = 25});
}

// Many classes: labels are gathered, gradients corrected by chunks and, if large, stored past the
// caches. One sequence: threads share its rows.
void add_many_classes(Suite& suite) {
  for (DType dtype : all_types) {
    const int32_t frames = dtype == DType::bf16 ? 900 : 450,
                  some = dtype == DType::bf16 ? 200 : 100;
    Setup s = {.dtype = dtype,
               .classes = 2051,
               .lengths = {frames, some},
               .label_lengths = {30, 50},
               .blank = 2050,
               .labels = LabelKind::repeats,
               .spare_rows = 0};  // so that the size of the gradient is that of its rows
    add(suite, str("many_classes/", name_of(dtype)), s);
    s.lengths = {37};
    s.label_lengths = {12};
    s.spare_rows = 3;
    add(suite, str("one_sequence/", name_of(dtype)), s);
    s.gradient = Gradient::in_place;
    s.input = CtcInput::log_softmax;
    s.blank = 1023;
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
    const auto sequences = static_cast<size_t>(shape.sequences);
    suite.add_bench(str(group, "/", name_of(dtype), "/T", shape.frames, "N", shape.sequences, "V",
                        shape.classes, "L", shape.labels),
                    ctc_case,
                    {.dtype = dtype,
                     .classes = shape.classes,
                     .lengths = std::vector<int32_t>(sequences, shape.frames),
                     .label_lengths = std::vector<int32_t>(sequences, shape.labels),
                     .spare_rows = 0});
  }
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
}

}  // namespace rondo::check
