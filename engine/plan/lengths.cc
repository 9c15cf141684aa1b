#include "engine/plan/lengths.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

double positive_number(std::string_view text, std::string_view all) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 1e6) {
    fail_input("lengths '", all, "': '", text,
               "' is not a number above 0; expected seconds:share,... as in 4:2,8:5,16:3");
  }
  return value;
}

}  // namespace

std::vector<LengthShare> parse_lengths(std::string_view text) {
  std::vector<LengthShare> lengths;
  double sum = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, comma - at);
    const size_t colon = part.find(':');
    LengthShare l;
    l.seconds = positive_number(part.substr(0, colon), text);
    l.share = colon == std::string_view::npos ? 1 : positive_number(part.substr(colon + 1), text);
    sum += l.share;
    lengths.push_back(l);
    at = comma + 1;
  }
  for (LengthShare& l : lengths) l.share /= sum;
  return lengths;
}

std::vector<LengthShare> histogram_of(std::vector<double> seconds, int parts) {
  RONDO_CHECK(!seconds.empty() && parts >= 1, seconds.size(), " durations in ", parts, " parts");
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size(), count = std::min<size_t>(n, static_cast<size_t>(parts));
  std::vector<LengthShare> lengths;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = n * i / count, end = n * (i + 1) / count;
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += seconds[j];
    lengths.push_back({sum / static_cast<double>(end - begin),
                       static_cast<double>(end - begin) / static_cast<double>(n)});
  }
  return lengths;
}

std::vector<WeightedShape> batches_of(const std::vector<LengthShare>& lengths, double hop_seconds,
                                      double batch_frames, double labels_per_second) {
  std::vector<WeightedShape> batches;
  double sum = 0;
  for (const LengthShare& l : lengths) {
    WeightedShape b;
    b.shape.frames = std::max(1.0, std::round(l.seconds / hop_seconds));
    b.shape.sequences = std::max(1.0, std::floor(batch_frames / b.shape.frames));
    b.shape.labels = std::max(1.0, std::round(l.seconds * labels_per_second));
    b.weight = l.share / b.shape.sequences;
    sum += b.weight;
    batches.push_back(b);
  }
  for (WeightedShape& b : batches) b.weight /= sum;
  return batches;
}

}  // namespace rondo::plan
