#include "kernels/pack/pack.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

struct Shape {
  std::vector<int32_t> lengths;
  int64_t cols;
  bool time_major, permuted;
  DType dtype;
};

template <class Args>
void set_layout(Case& c, Args& args, const Shape& s) {
  args.padded_layout = s.time_major ? PaddedLayout::time_major : PaddedLayout::batch_major;
  args.layout = c.packed(s.lengths, 4, 2);
  if (!s.permuted) return;
  std::vector<int32_t> order(static_cast<size_t>(args.layout.capacity.sequences));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(c.random(static_cast<int64_t>(i)))]);
  }
  args.order = c.ints(order);
}

// The sizes of a padded batch of one frame more than it needs.
struct Padded {
  Padded(const Shape& s, const PackedView& layout) : outer(layout.capacity.sequences), inner(1) {
    if (!s.lengths.empty()) inner += *std::max_element(s.lengths.begin(), s.lengths.end());
    if (s.time_major) std::swap(outer, inner);
  }
  int64_t outer, inner;
};

void pack_case(Case& c, PackArgs& args, const Shape& s) {
  set_layout(c, args, s);
  const Padded of(s, args.layout);
  // Padding is not marked here: unpack's check and the round trip in tests/kernels look at it.
  args.padded = c.input({of.outer, of.inner, s.cols}, s.dtype, {Fill::uniform, -100, 100});
  args.packed = c.rows_output("packed", args.layout, s.cols, s.dtype, Tolerance::exact());
  c.work(0, static_cast<double>(args.packed.bytes()) * 2);
}

void unpack_case(Case& c, UnpackArgs& args, const Shape& s) {
  set_layout(c, args, s);
  const Padded of(s, args.layout);
  args.packed = c.rows_input(args.layout, s.cols, s.dtype, {Fill::uniform, -100, 100});
  args.padded = c.output("padded", {of.outer, of.inner, s.cols}, s.dtype, Tolerance::exact());
  c.work(0, static_cast<double>(args.padded.bytes()) * 2);
}

}  // namespace

void pack_cases(Suite& suite) {
  const auto add = [&](const std::string& label, const Shape& s, bool bench = false) {
    suite.add(label, pack_case, s).bench = bench;
    suite.add(label, unpack_case, s).bench = bench;
  };
  const std::vector<int32_t> batches[] = {{}, {1}, {7, 7}, {65, 33, 32, 31, 1, 0}};
  for (const auto& [batch, cols, time_major, permuted, dtype] :
       every({0, 1, 2, 3}, {1, 7, 33, 65}, {true, false}, {false, true},
             {DType::f32, DType::bf16, DType::f64}))
    add(str(time_major ? "TNC/" : "NTC/", permuted ? "permuted/" : "", name_of(dtype), "/batch ",
            batch, "/", cols),
        {batches[batch], cols, time_major, permuted, dtype});
  // More rows than a GPU's threads take in one turn.
  add("TNC/bf16/34000 frames", {{34000}, 2, true, false, DType::bf16});
  add("NTC/f32/16x512x80", {std::vector<int32_t>(16, 512), 80, false, false, DType::f32}, true);
}

}  // namespace rondo::check
