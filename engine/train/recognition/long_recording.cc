#include "engine/train/recognition/long_recording.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/train/recognition/recognizer_stream.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Which features a piece is computed from, and which of them its outputs are for.
struct Piece {
  int64_t first = 0, end = 0;
  int64_t own_first = 0, own_end = 0;
};

Matrix rows(const Matrix& all, int64_t first, int64_t end) {
  Matrix part(end - first, all.dim);
  std::copy(all.row(first), all.row(first) + (end - first) * all.dim, part.data.begin());
  return part;
}

// Normalised by itself, a piece of digital silence would be what the mean of speech is.
bool is_silent(const Matrix& features) {
  for (int64_t t = 1; t < features.frames; ++t)
    if (!std::equal(features.row(t), features.row(t) + features.dim, features.row(0))) return false;
  return true;
}

std::unique_ptr<RecognizerStream> stream_of(Recognizer& model) {
  try {
    return std::make_unique<RecognizerStream>(model, 4.0);
  } catch (const InputError&) {
    return nullptr;  // it needs the end of a recording; then pieces it is
  }
}

class PiecewiseOutputs {
 public:
  PiecewiseOutputs(Recognizer& model, const Matrix& features, const PieceOptions& o)
      : model_(model), features_(features), block_(model.session().subsampling()) {
    const double hop = model.description().config.features.hop_ms / 1000;
    const auto blocks = [&](double seconds) {
      return static_cast<int64_t>(std::ceil(seconds / hop / static_cast<double>(block_)));
    };
    const int64_t own = std::max<int64_t>(blocks(o.seconds), 1) * block_;
    const int64_t context = blocks(o.context) * block_;
    for (int64_t first = 0; first < features.frames; first += own) {
      const int64_t end = std::min(first + own, features.frames);
      pieces_.push_back({std::max<int64_t>(first - context, 0),
                         std::min(end + context, features.frames), first, end});
    }
  }

  std::vector<float> run() {
    constexpr int64_t together = 16000;  // frames
    for (size_t next = 0; next < pieces_.size();) {
      std::vector<Matrix> inputs;
      const size_t begin = next;
      for (int64_t frames = 0; next < pieces_.size() && frames < together; ++next) {
        inputs.push_back(rows(features_, pieces_[next].first, pieces_[next].end));
        frames += inputs.back().frames;
        silent_.push_back(is_silent(inputs.back()));
      }
      const std::vector<Prediction> found = model_.predict(std::move(inputs));
      for (size_t i = begin; i < next; ++i) take(i, found[i - begin].transcript);
    }
    return std::move(outputs_);
  }

 private:
  void take(size_t number, const Transcript& t) {
    const Piece& p = pieces_[number];
    const int64_t skipped = (p.own_first - p.first) / block_;
    const bool is_last = number + 1 == pieces_.size();
    const int64_t count = is_last ? t.frames - skipped : (p.own_end - p.own_first) / block_;
    RONDO_CHECK(count >= 0 && skipped + count <= t.frames, "outputs of ", t.frames, " frames");
    const bool is_blank =
        silent_[number] && model_.description().config.features.cmvn == Cmvn::utterance;
    if (!is_blank) {
      const auto from = t.logits.begin() + skipped * t.classes;
      outputs_.insert(outputs_.end(), from, from + count * t.classes);
      return;
    }
    constexpr float certain = 20;
    for (int64_t f = 0; f < count; ++f) {
      outputs_.resize(outputs_.size() + static_cast<size_t>(t.classes), 0);
      (&outputs_.back())[Alphabet::blank + 1 - t.classes] = certain;
    }
  }

  Recognizer& model_;
  const Matrix& features_;
  const int64_t block_;
  std::vector<Piece> pieces_;
  std::vector<bool> silent_;
  std::vector<float> outputs_;
};

}  // namespace

std::vector<float> long_outputs(Recognizer& model, Waveform audio, const PieceOptions& o) {
  if (audio.seconds() <= 2 * o.seconds) return model.transcribe(audio).logits;
  if (const auto stream = stream_of(model)) {
    const auto step = static_cast<size_t>(audio.sample_rate);
    for (size_t at = 0; at < audio.samples.size(); at += step)
      stream->accept(
          std::span(audio.samples).subspan(at, std::min(step, audio.samples.size() - at)));
    audio = {};
    return std::move(stream->finish().logits);
  }
  if (model.description().config.task != Task::ctc)
    fail_input(model.file(), ": is not a ctc model: it writes no text");
  const Matrix features = model.features(audio);
  audio = {};
  return PiecewiseOutputs(model, features, o).run();
}

}  // namespace rondo
