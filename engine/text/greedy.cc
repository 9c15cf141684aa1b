#include "engine/text/greedy.h"

#include <cmath>

#include "kernels/base/error.h"

namespace rondo {
namespace {

int32_t best_class(const float* row, int32_t classes, size_t frame) {
  int32_t best = 0;
  bool nan = false;
  for (int32_t c = 0; c < classes; ++c) {
    nan |= std::isnan(row[c]);
    if (row[c] > row[best]) best = c;
  }
  RONDO_CHECK(!nan, "frame ", frame, " holds a NaN score");
  return best;
}

}  // namespace

std::vector<TimedLabel> collapse_ctc(std::span<const int32_t> classes, int32_t blank) {
  std::vector<TimedLabel> out;
  int32_t previous = blank;
  for (size_t t = 0; t < classes.size(); ++t) {
    const auto frame = static_cast<int32_t>(t);
    if (classes[t] != blank && classes[t] == previous) {
      out.back().end_frame = frame + 1;
    } else if (classes[t] != blank) {
      out.push_back({classes[t], frame, frame + 1});
    }
    previous = classes[t];
  }
  return out;
}

std::vector<TimedLabel> greedy_ctc(const float* scores, std::span<const int64_t> rows,
                                   int32_t classes, int32_t blank) {
  RONDO_CHECK(classes >= 1, "classes is ", classes);
  std::vector<int32_t> path(rows.size());
  for (size_t t = 0; t < rows.size(); ++t)
    path[t] = best_class(scores + rows[t] * classes, classes, t);
  return collapse_ctc(path, blank);
}

std::vector<TimedLabel> greedy_ctc(const float* scores, int32_t frames, int32_t classes,
                                   int32_t blank) {
  std::vector<int64_t> rows(static_cast<size_t>(frames));
  for (size_t t = 0; t < rows.size(); ++t) rows[t] = static_cast<int64_t>(t);
  return greedy_ctc(scores, rows, classes, blank);
}

std::vector<int32_t> labels_of(std::span<const TimedLabel> timed) {
  std::vector<int32_t> out;
  out.reserve(timed.size());
  for (const TimedLabel& t : timed) out.push_back(t.label);
  return out;
}

}  // namespace rondo
