#include <algorithm>
#include <numeric>
#include <utility>

#include "bench/cases/check/check.h"
#include "kernels/pack/pack.h"

namespace rondo::check {
namespace {

struct Shape {
  std::vector<int32_t> lengths;
  int64_t cols;
  PaddedLayout padded_layout;
  bool permuted;
  DType dtype;
};

template <class Args>
Args with_layout(Case& c, const Shape& s) {
  Args args;
  args.padded_layout = s.padded_layout;
  args.layout = c.packed(s.lengths, 4, 2);
  if (s.permuted) {
    std::vector<int32_t> order(static_cast<size_t>(args.layout.capacity.sequences));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(c.random(static_cast<int64_t>(i)))]);
    }
    args.order = c.ints(order);
  }
  return args;
}

// One frame more than the batch needs.
int64_t padded_frames(const Shape& s) {
  return 1 + (s.lengths.empty() ? 0 : *std::max_element(s.lengths.begin(), s.lengths.end()));
}

void pack_case(Case& c, const Shape& s) {
  auto args = with_layout<PackArgs>(c, s);
  const int64_t frames = padded_frames(s), sequences = args.layout.capacity.sequences;
  // Padding is not marked here: unpack's check and the round trip in tests/kernels look at it.
  args.padded = s.padded_layout == PaddedLayout::time_major
                    ? c.input({frames, sequences, s.cols}, s.dtype, {Fill::uniform, -100, 100})
                    : c.input({sequences, frames, s.cols}, s.dtype, {Fill::uniform, -100, 100});
  args.packed = c.rows_output("packed", args.layout, s.cols, s.dtype, Tolerance::exact());
  c.work(0, static_cast<double>(args.packed.bytes()) * 2);
  c.run(args);
}

void unpack_case(Case& c, const Shape& s) {
  auto args = with_layout<UnpackArgs>(c, s);
  const int64_t frames = padded_frames(s), sequences = args.layout.capacity.sequences;
  args.packed = c.rows_input(args.layout, s.cols, s.dtype, {Fill::uniform, -100, 100});
  args.padded = s.padded_layout == PaddedLayout::time_major
                    ? c.output("padded", {frames, sequences, s.cols}, s.dtype, Tolerance::exact())
                    : c.output("padded", {sequences, frames, s.cols}, s.dtype, Tolerance::exact());
  c.work(0, static_cast<double>(args.padded.bytes()) * 2);
  c.run(args);
}

}  // namespace

void pack_cases(Suite& suite) {
  const std::vector<std::vector<int32_t>> batches = {{}, {1}, {7, 7}, {65, 33, 32, 31, 1, 0}};
  for (size_t b = 0; b < batches.size(); ++b) {
    for (int64_t cols : {1, 7, 33, 65}) {
      for (PaddedLayout layout : {PaddedLayout::time_major, PaddedLayout::batch_major}) {
        for (bool permuted : {false, true}) {
          for (DType dtype : {DType::f32, DType::bf16, DType::f64}) {
            const Shape s = {batches[b], cols, layout, permuted, dtype};
            const std::string label =
                str(layout == PaddedLayout::time_major ? "TNC/" : "NTC/",
                    permuted ? "permuted/" : "", name_of(dtype), "/batch ", b, "/", cols);
            suite.add<PackArgs>(label, [=](Case& c) { pack_case(c, s); });
            suite.add<UnpackArgs>(label, [=](Case& c) { unpack_case(c, s); });
          }
        }
      }
    }
  }
  // More rows than a GPU's threads take in one turn.
  const Shape long_one = {{34000}, 2, PaddedLayout::time_major, false, DType::bf16};
  suite.add<PackArgs>("TNC/bf16/34000 frames", [=](Case& c) { pack_case(c, long_one); });
  suite.add<UnpackArgs>("TNC/bf16/34000 frames", [=](Case& c) { unpack_case(c, long_one); });
  const Shape big = {std::vector<int32_t>(16, 512), 80, PaddedLayout::batch_major, false,
                     DType::f32};
  suite.add_bench<PackArgs>("NTC/f32/16x512x80", [=](Case& c) { pack_case(c, big); });
  suite.add_bench<UnpackArgs>("NTC/f32/16x512x80", [=](Case& c) { unpack_case(c, big); });
}

}  // namespace rondo::check
