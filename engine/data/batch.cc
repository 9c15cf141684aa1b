#include "engine/data/batch.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

void pack_batch(const BatchRequest& request, const std::vector<Example>& examples,
                const std::vector<uint64_t>& keys, int32_t feature_dim, HostBatch& out) {
  const size_t n = examples.size();
  RONDO_CHECK(request.utterances.size() == n && keys.size() == n, n, " examples for ",
              request.utterances.size(), " utterances and ", keys.size(), " keys");
  std::vector<int32_t> lengths(n);
  for (size_t i = 0; i < n; ++i) {
    const Matrix& m = examples[i].features;
    RONDO_CHECK(m.dim == feature_dim, "utterance ", request.utterances[i], " has ", m.dim,
                " features per frame, expected ", feature_dim);
    lengths[i] = static_cast<int32_t>(m.frames);
  }
  const std::vector<int32_t> order = longest_first(lengths);
  std::vector<int32_t> sorted_lengths(n);
  std::vector<uint64_t> sorted_keys(n);
  for (size_t i = 0; i < n; ++i) {
    sorted_lengths[i] = lengths[static_cast<size_t>(order[i])];
    sorted_keys[i] = keys[static_cast<size_t>(order[i])];
  }
  out.epoch = request.epoch;
  out.step = request.step;
  out.layout.assign(sorted_lengths, sorted_keys);
  out.feature_dim = feature_dim;
  const auto rows = static_cast<size_t>(out.layout.extent.rows);
  const auto dim = static_cast<size_t>(feature_dim);
  out.features.resize(rows * dim);
  out.labels.clear();
  out.label_offsets.assign(1, 0);
  out.classes.clear();
  out.targets.clear();
  out.target_dim = n > 0 ? static_cast<int32_t>(examples[0].target.size()) : 0;
  out.utterances.clear();
  const bool by_frame = n > 0 && !examples[0].frame_labels.empty();
  out.frame_classes.assign(by_frame ? rows : 0, -1);
  for (size_t i = 0; i < n; ++i) {
    const Example& e = examples[static_cast<size_t>(order[i])];
    RONDO_CHECK(static_cast<int32_t>(e.target.size()) == out.target_dim, "targets of ",
                e.target.size(), " and ", out.target_dim, " numbers in one batch");
    RONDO_CHECK(!by_frame || e.frame_labels.size() == static_cast<size_t>(e.features.frames),
                e.frame_labels.size(), " classes for ", e.features.frames, " frames");
    out.labels.insert(out.labels.end(), e.labels.begin(), e.labels.end());
    out.label_offsets.push_back(static_cast<int32_t>(out.labels.size()));
    if (e.class_index >= 0) out.classes.push_back(e.class_index);
    out.targets.insert(out.targets.end(), e.target.begin(), e.target.end());
    out.utterances.push_back(request.utterances[static_cast<size_t>(order[i])]);
  }
  // Frame by frame, so that the destination is written once, in order.
  for (int32_t t = 0; t < out.layout.extent.frames; ++t) {
    const int32_t active = out.layout.batch_sizes[static_cast<size_t>(t)];
    for (int32_t i = 0; i < active; ++i) {
      const Example& e = examples[static_cast<size_t>(order[static_cast<size_t>(i)])];
      const auto row = static_cast<size_t>(out.layout.row(t, i));
      std::copy_n(e.features.row(t), dim, out.features.data() + row * dim);
      if (by_frame) out.frame_classes[row] = e.frame_labels[static_cast<size_t>(t)];
    }
  }
  RONDO_CHECK(out.classes.empty() || out.classes.size() == n, out.classes.size(), " classes for ",
              n, " utterances");
}

HostBatch load_batch(const Dataset& dataset, const BatchRequest& request) {
  std::vector<Example> examples;
  std::vector<uint64_t> keys;
  for (int64_t i : request.utterances) {
    examples.push_back(dataset.load(i, request.epoch));
    keys.push_back(dataset.key(i));
  }
  HostBatch out;
  pack_batch(request, examples, keys, dataset.feature_dim(), out);
  return out;
}

}  // namespace rondo
