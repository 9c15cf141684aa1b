// One chunk that holds whole sequences. What crosses borders belongs to one variant, so cuts are
// tested by tests/ctc/ctc_chunk_test.cc.
#include <algorithm>
#include <cmath>

#include "bench/cases/check/check.h"
#include "kernels/ctc/ctc_chunk.h"

namespace rondo::check {
namespace {

struct Setup {
  DType dtype = DType::f32;
  int32_t classes = 5, blank = 0;
  std::vector<int32_t> lengths, label_lengths;
  CtcInput input = CtcInput::logits;
  bool in_place = false, zero_infinity = false, scaled = false;
  double range = 3;
};

template <class Args>
void fill(Case& c, const Setup& s, Args& args) {
  args.layout = c.packed(s.lengths, 3, 1);
  const auto sequences = static_cast<size_t>(args.layout.capacity.sequences);
  std::vector<int32_t> labels, offsets = {0}, totals(sequences, 0);
  for (size_t n = 0; n < sequences; ++n) {
    const int32_t count = n < s.label_lengths.size() ? s.label_lengths[n] : 0;
    for (int32_t i = 0; i < count; ++i) {
      const auto v = static_cast<int32_t>(c.random(s.classes - 1));
      labels.push_back(i > 0 && c.random(3) == 0 ? labels.back() : v + (v >= s.blank));
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
}

// As ctc.cc counts: a pass forward is two sums and a product per state and 20 for the exp of
// each logit; the gradient is the other half and a fixed cost per class.
template <class Args>
void note_work(Case& c, const Setup& s, const Args& args, bool gradient) {
  const double live = static_cast<double>(c.extent_rows(args.layout)), classes = s.classes;
  const double states = 2.0 * args.max_label_length + 1;
  c.work(live * (gradient ? states * 5 + classes * 22 : states * 3 + classes * 20),
         live * classes * static_cast<double>(size_of(s.dtype)) * (gradient ? 3 : 1));
}

// As of ctc (ctc.cc).
Tolerance loss_tolerance(const Setup& s) {
  const DType type = s.dtype == DType::f64 ? DType::f64 : DType::f32;
  return Tolerance::ulps(type, 4 + std::sqrt(std::max(s.lengths.front(), 1)), 1 + s.range);
}
Tolerance grad_tolerance(const Setup& s) {
  const double frames = std::max(s.lengths.front(), 1), scale = s.scaled ? 2 : 1;
  if (s.dtype == DType::bf16) return Tolerance::ulps(s.dtype, 1, scale);
  if (s.dtype == DType::f32) return Tolerance::ulps(s.dtype, 16 + 4 * s.range, scale);
  return Tolerance::ulps(s.dtype, 16 + frames * std::sqrt(frames) * (s.range + std::log(s.classes)),
                         scale);
}

void grad_case(Case& c, CtcChunkGradArgs& args, const Setup& s) {
  fill(c, s, args);
  const int64_t rows = args.layout.capacity.rows, sequences = args.layout.capacity.sequences;
  const DType loss_type = s.dtype == DType::f64 ? DType::f64 : DType::f32;
  args.zero_infinity = s.zero_infinity;
  if (s.scaled) args.grad_scale = c.input({sequences}, loss_type, {Fill::uniform, -2, 2});
  args.loss = c.output("loss", {sequences}, loss_type, loss_tolerance(s));
  const double low = s.input == CtcInput::log_softmax ? -2 * s.range : -s.range;
  const double high = s.input == CtcInput::log_softmax ? -1 : s.range;
  if (s.in_place) {
    args.logits = args.grad =
        c.in_out("grad", {rows, s.classes}, s.dtype, grad_tolerance(s), {Fill::uniform, low, high});
  } else {
    args.logits = c.rows_input(args.layout, s.classes, s.dtype, {Fill::uniform, low, high});
    args.grad = c.rows_output("grad", args.layout, s.classes, s.dtype, grad_tolerance(s));
  }
  note_work(c, s, args, true);
}

// That it stays within its memory; its result is the kernel's own.
void alpha_case(Case& c, CtcChunkAlphaArgs& args, const Setup& s) {
  fill(c, s, args);
  args.logits = c.rows_input(args.layout, s.classes, s.dtype, {Fill::uniform, -s.range, s.range});
  const int64_t sequences = args.layout.capacity.sequences;
  const int64_t width = ctc_border_width(args.max_label_length);
  args.alpha_out = c.workspace(static_cast<size_t>(sequences * width) * 8);
  args.alpha_out = TensorView(args.alpha_out.data, DType::f64, {sequences, width});
  note_work(c, s, args, false);
}

void add(Suite& suite, const std::string& label, const Setup& s) {
  suite.add(label, grad_case, s);
  if (!s.in_place) suite.add(label, alpha_case, s);
}

}  // namespace

void ctc_chunk_cases(Suite& suite) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const auto& [frames, classes, labels] :
         every({1, 7, 33, 65}, {2, 17, 70}, {0, 1, 8, 31})) {
      if (labels > frames) continue;
      add(suite, str("sizes/", name_of(dtype), "/T", frames, "V", classes, "L", labels),
          {.dtype = dtype,
           .classes = classes,
           .blank = classes / 2,
           .lengths = {frames, frames / 2 + 1, frames / 3},
           .label_lengths = {labels, labels / 2, labels / 3}});
    }
    Setup s = {.dtype = dtype,
               .classes = 9,
               .lengths = {40, 33, 20, 3, 0, 0},
               .label_lengths = {12, 0, 21, 3, 0, 1}};
    add(suite, str("edges/", name_of(dtype), "/ragged"), s);
    s.in_place = s.scaled = s.zero_infinity = true;
    add(suite, str("edges/", name_of(dtype), "/in_place"), s);
    s.input = CtcInput::log_softmax;
    add(suite, str("edges/", name_of(dtype), "/log_softmax"), s);
  }
  for (double range : {30.0, 500.0})
    add(suite, str("extremes/", range),
        {.classes = 12, .lengths = {130, 90, 60}, .label_lengths = {40, 44, 3}, .range = range});
  const Setup s = {.classes = 32,
                   .lengths = std::vector<int32_t>(32, 500),
                   .label_lengths = std::vector<int32_t>(32, 100)};
  suite.add_bench("bench/f32/T500N32V32L100", grad_case, s);
  suite.add_bench("bench/f32/T500N32V32L100", alpha_case, s);
}

}  // namespace rondo::check
