// The inner loop of forced alignment: some labels, with the blank before each, over some frames.
//
// Compiled once per instruction set (alignment_simd.cc). All of them add the same numbers in the
// same order, so they give the same bits. Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace rondo {

// Labels lie in groups of so many, and a strip has one to four groups.
inline constexpr int alignment_group = 8;
inline constexpr int alignment_strip_groups = 4;
// Tables of so few scores per frame are looked up in registers, where there are some.
inline constexpr int alignment_small_table = 32;

// Where a state's best path comes from: a sum of these. The blank's step is the first bit, the
// label's the others.
inline constexpr uint8_t blank_from_label = 1;  // else the blank stayed
inline constexpr uint8_t label_from_blank = 2;
inline constexpr uint8_t label_from_label = 4;  // over the blank; else the label stayed

// -inf stands for "no path". May not be read: scores that are NaN or +inf.
struct AlignmentStrip {
  const float* table;  // [frames, row]: score 0 is the blank's
  int64_t row;         // at least alignment_small_table
  int32_t frames;
  int32_t groups;
  const int32_t* scores_of;  // [groups * 8, and 8 more that are read]: where in a row a label's is
  const double* skips;  // [groups * 8]: 0; -inf: the blank before the label must not be left out
  // Frame t enters the first blank from from_label[t * stride], the first label also from
  // from_skip[t * stride]: the label before, one frame earlier.
  const double* from_label;
  const double* from_skip;
  int64_t stride;
  double* blanks;  // [groups * 8]: best scores at the frame before the first, then at the last one
  double* labels;
  double* last;    // [frames, 8]: labels of the last group at the frame before each
  uint8_t* steps;  // [frames, steps_row]: of each pair; or null
  int64_t steps_row;
};

using AlignmentKernel = void (*)(const AlignmentStrip&);

namespace isa_generic {
void align_strip(const AlignmentStrip& strip);
}
namespace isa_avx2 {
void align_strip(const AlignmentStrip& strip);
}
namespace isa_avx512 {
void align_strip(const AlignmentStrip& strip);
}

}  // namespace rondo
