#include "engine/train/recognition/agreement.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "engine/text/edit_alignment.h"
#include "engine/text/greedy.h"
#include "engine/train/recognition/evaluation.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/packed_host.h"
#include "kernels/ctc/ctc.h"

namespace rondo {
namespace {

// Where two texts differ: elements [begin, end) of the one, and what stands there in the other.
struct Difference {
  size_t begin = 0, end = 0;
  std::vector<int32_t> other;
};

std::vector<Difference> differences(const std::vector<int32_t>& text,
                                    const std::vector<int32_t>& other) {
  const std::u32string a(text.begin(), text.end()), b(other.begin(), other.end());
  std::vector<Difference> found;
  size_t i = 0, j = 0;
  bool inside = false;
  for (const Edit edit : align_edits(a, b)) {
    if (edit == Edit::equal) {
      inside = false;
      ++i, ++j;
      continue;
    }
    if (!inside) found.push_back({i, i, {}});
    inside = true;
    if (edit != Edit::insertion) found.back().end = ++i;
    if (edit != Edit::deletion) found.back().other.push_back(other[j++]);
  }
  return found;
}

std::vector<int32_t> with(const std::vector<int32_t>& text, const Difference& d) {
  const auto at = [&](size_t i) { return text.begin() + static_cast<int64_t>(i); };
  std::vector<int32_t> changed(text.begin(), at(d.begin));
  changed.insert(changed.end(), d.other.begin(), d.other.end());
  changed.insert(changed.end(), at(d.end), text.end());
  return changed;
}

// What the decoder adds to ln p of this text: its score where nothing else is possible. -infinity
// for what it would not write.
double knowledge(const Decoder* decoder, const std::vector<int32_t>& text, int32_t classes) {
  if (!decoder) return 0;
  constexpr float impossible = -1e4f;
  std::vector<float> scores;
  int32_t frames = 0;
  const auto frame = [&](int32_t label) {
    scores.insert(scores.end(), static_cast<size_t>(classes), impossible);
    scores[scores.size() - static_cast<size_t>(classes - label)] = 0;
    ++frames;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && text[i] == text[i - 1]) frame(0);
    frame(text[i]);
  }
  if (frames == 0) frame(0);
  const DecodedText found = decoder->decode(scores.data(), frames).front();
  if (found.labels != text) return -std::numeric_limits<double>::infinity();
  return found.score - found.log_probability;
}

// How probable texts are to all models together.
class TextScores {
 public:
  TextScores(std::span<const std::span<const float>> models, int32_t classes,
             const Decoder* decoder)
      : models_(models), classes_(classes), decoder_(decoder), pool_(1) {}

  double of(const std::vector<int32_t>& text) {
    return mean_log_probability(text) + knowledge(decoder_, text, classes_);
  }

 private:
  double mean_log_probability(const std::vector<int32_t>& text) {
    const Context context{Backend::cpu, &cpu_device(), nullptr, &pool_};
    const int32_t offsets[] = {0, static_cast<int32_t>(text.size())};
    double sum = 0;
    for (const std::span<const float> scores : models_) {
      const auto frames = static_cast<int32_t>(scores.size() / static_cast<size_t>(classes_));
      const PackedHost layout = build_packed(std::span(&frames, 1));
      float loss = 0;
      CtcArgs args;
      args.layout = layout.view();
      args.logits = TensorView(const_cast<float*>(scores.data()), DType::f32, {frames, classes_});
      args.labels = text.data();
      args.label_offsets = offsets;
      args.max_label_length = offsets[1];
      args.loss = TensorView(&loss, DType::f32, {1});
      const size_t bytes = ctc_workspace_bytes(context, args.layout.capacity, DType::f32, classes_,
                                               args.max_label_length, false);
      workspace_.resize(std::max(workspace_.size(), bytes + 64));
      void* aligned = workspace_.data();
      size_t room = workspace_.size();
      std::align(64, bytes, aligned, room);
      args.workspace = TensorView(aligned, DType::u8, {static_cast<int64_t>(bytes)});
      run(context, args);
      sum -= static_cast<double>(loss);
    }
    return sum / static_cast<double>(models_.size());
  }

  const std::span<const std::span<const float>> models_;
  const int32_t classes_;
  const Decoder* const decoder_;
  ThreadPool pool_;
  std::vector<uint8_t> workspace_;
};

}  // namespace

std::vector<int32_t> agreed_labels(std::span<const std::span<const float>> models, int32_t classes,
                                   const Decoder* decoder) {
  std::vector<std::vector<int32_t>> texts;
  for (const std::span<const float> scores : models) {
    const auto frames = static_cast<int32_t>(scores.size() / static_cast<size_t>(classes));
    texts.push_back(decoder ? decoder->decode(scores.data(), frames).front().labels
                            : labels_of(greedy_ctc(scores.data(), frames, classes)));
  }
  if (models.front().empty()) return {};
  TextScores scores(models, classes, decoder);
  std::vector<int32_t> best = texts.front();
  double most = -std::numeric_limits<double>::infinity();
  const auto is_better = [&](const std::vector<int32_t>& text) {
    const double score = scores.of(text);
    if (!(score > most)) return false;
    most = score;
    best = text;
    return true;
  };
  for (const auto& text : texts) is_better(text);
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& text : texts) {
      // From the end, so that places before a change stay where they are.
      const std::vector<Difference> places = differences(best, text);
      for (auto d = places.rbegin(); d != places.rend(); ++d) {
        if (is_better(with(best, *d))) grown = true;
      }
    }
  }
  return best;
}

std::vector<int32_t> agreed_labels(std::span<const std::vector<float>> models,
                                   std::span<const int32_t> lengths, size_t n, int32_t classes,
                                   const Decoder* decoder) {
  std::vector<std::vector<float>> own;
  for (const std::vector<float>& packed : models)
    own.push_back(unpack(packed, lengths, n, classes));
  return agreed_labels(std::vector<std::span<const float>>(own.begin(), own.end()), classes,
                       decoder);
}

}  // namespace rondo
