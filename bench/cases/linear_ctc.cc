#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/cases/check/check.h"
#include "kernels/linear_ctc/linear_ctc.h"

namespace rondo::check {
namespace {

struct Setup {
  DType dtype = DType::f32;
  int32_t hidden = 5, classes = 7;
  std::vector<int32_t> lengths = {9, 7, 4};
  std::vector<int32_t> label_lengths = {3, 0, 2};  // in packed order
  int32_t spare_labels = 2;                        // capacity for so many more
  int32_t blank = 0;
  bool bias = true, one_class = false, zero_infinity = false;
  int32_t poisoned = -1;  // this sequence gets NaN in one frame
  int32_t masked = -1;    // this class has a bias of -inf
  int32_t spare_rows = 3, spare_sequences = 1;
};

int32_t longest(const std::vector<int32_t>& v) {
  return v.empty() ? 0 : *std::max_element(v.begin(), v.end());
}

// The size of the logits: sums of `hidden` products of numbers in [-1, 1] and [-1.5, 1.5].
double range(const Setup& s) { return 1.5 * std::sqrt(s.hidden) + 1; }

void fill_common(Case& c, const Setup& s, LinearCtc& a) {
  a.layout = c.packed(s.lengths, s.spare_rows, s.spare_sequences);
  std::vector<int32_t> labels, offsets = {0};
  for (int32_t n = 0; n < a.layout.capacity.sequences; ++n) {
    const auto i = static_cast<size_t>(n);
    const int32_t length = i < s.label_lengths.size() ? s.label_lengths[i] : 0;
    const auto only = static_cast<int32_t>(c.random(s.classes - 1));
    for (int32_t k = 0; k < length; ++k) {
      const auto v = s.one_class ? only : static_cast<int32_t>(c.random(s.classes - 1));
      labels.push_back(v + (v >= s.blank));
    }
    offsets.push_back(static_cast<int32_t>(labels.size()));
  }
  a.labels = c.ints(labels);
  a.label_offsets = c.ints(offsets);
  a.max_label_length = longest(s.label_lengths) + s.spare_labels;
  a.blank = s.blank;
  a.x = c.rows_input(a.layout, s.hidden, s.dtype);
  a.w = c.input({s.classes, s.hidden}, s.dtype, {Fill::uniform, -1.5, 1.5});
  if (s.bias) {
    std::vector<double> bias;
    for (int32_t v = 0; v < s.classes; ++v) {
      bias.push_back(v == s.masked ? -infinity : c.random_real(-1, 1));
    }
    a.bias = c.input_values({s.classes}, DType::f32, bias);
  }
  a.workspace = c.workspace(linear_ctc_workspace_bytes(c.context(), a.layout.capacity, s.dtype,
                                                       s.hidden, s.classes, a.max_label_length));
  const double live = static_cast<double>(c.extent_rows(a.layout));
  c.work(2 * live * s.hidden * s.classes, live * s.hidden * 4.0);
}

// x with a NaN in the middle of one sequence: all else are the same numbers.
void poison(Case& c, const Setup& s, LinearCtc& a) {
  const int64_t rows = a.layout.capacity.rows;
  std::vector<double> x(static_cast<size_t>(rows * s.hidden), nan);
  int64_t r = 0;
  for (int32_t t = 0; t < longest(s.lengths); ++t) {
    for (size_t n = 0; n < s.lengths.size() && s.lengths[n] > t; ++n, ++r) {
      for (int32_t h = 0; h < s.hidden; ++h) {
        const bool hit = static_cast<int32_t>(n) == s.poisoned && t == 1 && h == 0;
        x[static_cast<size_t>(r * s.hidden + h)] = hit ? nan : c.random_real(-1, 1);
      }
    }
  }
  a.x = c.input_values({rows, s.hidden}, s.dtype, x);
}

// Logits are rounded to f32, sums of `hidden` products; a loss adds those of its frames. A
// posterior feels the logits of several frames.
void loss_case(Case& c, LinearCtcArgs& a, const Setup& s) {
  fill_common(c, s, a);
  if (s.poisoned >= 0) poison(c, s, a);
  const double frames = longest(s.lengths), sum = std::sqrt(s.hidden), scale = 1 + range(s);
  a.zero_infinity = s.zero_infinity;
  a.loss = c.output("loss", {a.layout.capacity.sequences}, DType::f32,
                    Tolerance::ulps(DType::f32, (4 + sum) * (1 + std::sqrt(frames)), scale));
  const int64_t columns = int64_t{a.max_label_length} + 1;
  a.label_grad = c.rows_output("label_grad", a.layout, columns, DType::f32,
                               Tolerance::ulps(DType::f32, 16 + 4 * scale * (1 + sum)));
  a.normalizer = c.rows_output("normalizer", a.layout, 1, DType::f32,
                               Tolerance::ulps(DType::f32, 4 + sum, scale));
}

// softmax - posterior of each class, times weights or inputs: sums over classes or rows. In bf16
// each is rounded before it is multiplied.
void grad_case(Case& c, LinearCtcGradArgs& a, const Setup& s) {
  fill_common(c, s, a);
  const int64_t columns = int64_t{a.max_label_length} + 1;
  a.label_grad = c.rows_input(a.layout, columns, DType::f32, {Fill::uniform, -1, 0});
  a.normalizer = c.rows_input(a.layout, 1, DType::f32,
                              {Fill::uniform, range(s), range(s) + std::log(s.classes)});
  const double live = static_cast<double>(c.extent_rows(a.layout));
  const double labels = static_cast<double>(columns);
  const auto bound = [&](double terms, double scale) {
    return Tolerance::ulps(DType::f32, 8 + std::sqrt(terms) * range(s), scale);
  };
  // Each of a row's few classes with labels counts up to 1, the others together about 1.
  Tolerance dx = bound(s.classes, 1.5 * (1 + labels)), dw = bound(live, std::sqrt(live) + 2);
  if (s.dtype == DType::bf16) {
    dx = Tolerance::ulps(s.dtype, 1 + std::sqrt(labels), 1.5);
    dw.absolute += std::sqrt(live) * 0x1p-9 * 2;
  }
  a.dx = c.rows_output("dx", a.layout, s.hidden, s.dtype, dx);
  a.dw = c.in_out("dw", {s.classes, s.hidden}, DType::f32, dw);
  if (s.bias) a.dbias = c.in_out("dbias", {s.classes}, DType::f32, dw);
  c.work(6 * live * s.hidden * s.classes, live * s.hidden * 8.0);
}

}  // namespace

void linear_ctc_cases(Suite& suite) {
  const auto add = [&](const std::string& label, const Setup& s) {
    suite.add(label, loss_case, s);
    if (s.poisoned < 0 && s.masked < 0) suite.add(label, grad_case, s);
  };
  for (DType dtype : f32_bf16) {
    const std::string t = name_of(dtype);
    add(t + "/small", {dtype, 5, 7, {9, 7, 4}, {3, 0, 2}});
    add(t + "/two classes", {dtype, 1, 2, {6, 2}, {3, 1}});
    add(t + "/several tiles on GPUs", {dtype, 33, 131, {12, 12, 7, 1}, {5, 4, 3, 1}});
    add(t + "/nothing", {dtype, 4, 6, {}, {}});
    add(t + "/empty sequences", {dtype, 4, 6, {3, 0, 0}, {1, 0, 2}});
    Setup s = {dtype, 8, 50, {20, 18}, {6, 8}};
    s.blank = 49, s.bias = false;
    add(t + "/blank last, no bias", s);
    s.one_class = true, s.blank = 3;
    add(t + "/one class again and again", s);
  }
  Setup s = {DType::f32, 5, 60, {4, 3, 3}, {5, 2, 3}};
  add("infeasible", s);
  s.zero_infinity = true;
  add("infeasible, zero_infinity", s);
  s = {DType::f32, 5, 60, {9, 8, 7}, {2, 3, 2}};
  s.poisoned = 1;
  add("a NaN", s);
  s.poisoned = -1, s.masked = 50;
  add("a class masked by -inf", s);
  // More rows and classes than a tile of the CPU has; on the simulator others show the same.
  for (DType dtype : f32_bf16) {
    const Setup large = {dtype, 3, 2100, {600, 500}, {40, 30}};
    const std::string label = str(name_of(dtype), "/several tiles on CPUs");
    suite.add(label, loss_case, large).simulated.emplace();
    suite.add(label, grad_case, large).simulated.emplace();
  }
  for (DType dtype : f32_bf16) {
    const Setup lines = {dtype, 512, 18548, std::vector<int32_t>(32, 80),
                         std::vector<int32_t>(32, 25)};
    const std::string label = str(name_of(dtype), "/T 80, N 32, H 512, V 18548");
    suite.add_bench(label, loss_case, lines);
    suite.add_bench(label, grad_case, lines);
  }
}

}  // namespace rondo::check
