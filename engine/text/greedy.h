// Greedy (best path) CTC decoding: the most likely class of each frame, repeats collapsed, blanks
// dropped. Source: Graves et al. 2006, "Connectionist Temporal Classification", section 3.2.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

struct TimedLabel {
  int32_t label = 0;
  int32_t first_frame = 0;  // the frames [first_frame, end_frame) chose this label
  int32_t end_frame = 0;

  bool operator==(const TimedLabel&) const = default;
};

// Reads labels from the class of each frame.
std::vector<TimedLabel> collapse_ctc(std::span<const int32_t> classes, int32_t blank = 0);

// Reads labels from scores (logits or log-probabilities): row t is scores[rows[t] * classes], the
// order of the frames in a packed batch, or from `frames` consecutive rows. Of equal scores the
// lowest class wins. Throws Error when a score is NaN, naming the frame.
std::vector<TimedLabel> greedy_ctc(const float* scores, std::span<const int64_t> rows,
                                   int32_t classes, int32_t blank = 0);
std::vector<TimedLabel> greedy_ctc(const float* scores, int32_t frames, int32_t classes,
                                   int32_t blank = 0);

std::vector<int32_t> labels_of(std::span<const TimedLabel> timed);

}  // namespace rondo
