#include "kernels/base/packed_host.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/base/error.h"

namespace rondo {

PackedView PackedHost::view() const {
  PackedView v;
  v.capacity = {extent.rows, extent.frames, extent.sequences};
  v.extent = &extent;
  v.lengths = lengths.data();
  v.batch_sizes = batch_sizes.data();
  v.row_offsets = row_offsets.data();
  v.row_frame = row_frame.data();
  v.keys = keys.data();
  v.first_frame = first_frame.data();
  return v;
}

void PackedHost::assign(std::span<const int32_t> lengths_in, std::span<const uint64_t> keys_in,
                        std::span<const int32_t> first_frame_in) {
  const size_t n = lengths_in.size();
  RONDO_CHECK(keys_in.empty() || keys_in.size() == n, keys_in.size(), " keys for ", n,
              " sequences");
  RONDO_CHECK(first_frame_in.empty() || first_frame_in.size() == n, first_frame_in.size(),
              " first frames for ", n, " sequences");
  int64_t rows = 0;
  for (size_t i = 0; i < n; ++i) {
    RONDO_CHECK(lengths_in[i] >= 0, "length ", i, " is ", lengths_in[i]);
    RONDO_CHECK(i == 0 || lengths_in[i] <= lengths_in[i - 1], "length ", i, " is ", lengths_in[i],
                ", after ", lengths_in[i - 1], ": sequences must be sorted longest first");
    rows += lengths_in[i];
  }
  if (n > 0 && lengths_in.front() > most_sequence_frames) {
    fail_input("a sequence of ", lengths_in.front(), " frames, expected at most ",
               most_sequence_frames);
  }
  constexpr int64_t most_rows = std::numeric_limits<int32_t>::max();
  if (rows > most_rows) {
    fail_input("a batch of ", rows, " frames, expected at most ", most_rows);
  }
  lengths.assign(lengths_in.begin(), lengths_in.end());
  const int32_t frames = n ? lengths.front() : 0;
  extent = {static_cast<int32_t>(rows), frames, static_cast<int32_t>(n)};
  batch_sizes.clear();
  row_frame.clear();
  row_offsets.assign(1, 0);
  int32_t active = static_cast<int32_t>(n);
  for (int32_t t = 0; t < frames; ++t) {
    while (lengths[static_cast<size_t>(active) - 1] <= t) --active;
    batch_sizes.push_back(active);
    row_offsets.push_back(row_offsets.back() + active);
    row_frame.insert(row_frame.end(), static_cast<size_t>(active), t);
  }
  if (keys_in.empty()) {
    keys.resize(n);
    std::iota(keys.begin(), keys.end(), uint64_t{0});
  } else {
    keys.assign(keys_in.begin(), keys_in.end());
  }
  if (first_frame_in.empty()) {
    first_frame.assign(n, 0);
  } else {
    first_frame.assign(first_frame_in.begin(), first_frame_in.end());
  }
}

PackedHost build_packed(std::span<const int32_t> lengths, std::span<const uint64_t> keys,
                        std::span<const int32_t> first_frame) {
  PackedHost host;
  host.assign(lengths, keys, first_frame);
  return host;
}

std::vector<int32_t> longest_first(std::span<const int32_t> lengths) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace rondo
