#include "engine/train/recognition/long_recording.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/session.h"
#include "engine/train/recognition/output_stream.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Frames.
struct Stretch {
  int64_t first = 0, end = 0;
  bool silent = false;
};

// Which features a piece is computed from, and which of them its outputs are for.
struct Piece {
  Stretch from, own;
};

Matrix rows(const Matrix& all, int64_t first, int64_t end) {
  Matrix part(end - first, all.dim);
  std::copy(all.row(first), all.row(first) + (end - first) * all.dim, part.data.begin());
  return part;
}

bool same_rows(const Matrix& m, int64_t a, int64_t b) {
  return std::equal(m.row(a), m.row(a) + m.dim, m.row(b));
}

// What is digital silence for long, which no frame of sound equals to the bit, and what is between.
// Silence begins and ends with whole blocks of frames.
std::vector<Stretch> stretches_of(const Matrix& features, int64_t block) {
  constexpr int64_t least = 50;
  std::vector<Stretch> all;
  int64_t done = 0;
  for (int64_t first = 0, end = 0; first < features.frames; first = end) {
    for (end = first + 1; end < features.frames && same_rows(features, first, end);) ++end;
    if (end - first < least) continue;
    const int64_t from = (first + block - 1) / block * block;
    const int64_t to = end == features.frames ? end : end / block * block;
    if (from >= to) continue;
    if (from > done) all.push_back({done, from, false});
    all.push_back({from, to, true});
    done = to;
  }
  if (done < features.frames) all.push_back({done, features.frames, false});
  return all;
}

std::unique_ptr<OutputStream> stream_of(Recognizer& model) {
  try {
    return std::make_unique<OutputStream>(model, 4.0);
  } catch (const InputError&) {
    return nullptr;  // it needs the end of a recording; then pieces it is
  }
}

class PiecewiseOutputs {
 public:
  PiecewiseOutputs(Recognizer& model, const Matrix& features, const PieceOptions& o)
      : model_(model),
        features_(features),
        block_(model.session().subsampling()),
        hop_(model.description().config.features.hop_ms / 1000),
        progress_(o.progress) {
    const auto blocks = [&](double seconds) {
      return static_cast<int64_t>(std::ceil(seconds / hop_ / static_cast<double>(block_)));
    };
    const int64_t own = std::max<int64_t>(blocks(o.seconds), 1) * block_;
    const int64_t context = blocks(o.context) * block_;
    // Normalised by itself, silence would be what the mean of speech is, and speech beside much of
    // it nothing that the model knows.
    const bool by_itself = model.description().config.features.cmvn == Cmvn::utterance;
    std::vector<Stretch> stretches{{0, features.frames, false}};
    if (by_itself) stretches = stretches_of(features, block_);
    for (const Stretch& s : stretches) {
      if (s.silent) pieces_.push_back({s, s});
      for (int64_t first = s.first; !s.silent && first < s.end; first += own) {
        const int64_t end = std::min(first + own, s.end);
        pieces_.push_back(
            {{std::max(first - context, s.first), std::min(end + context, s.end)}, {first, end}});
      }
    }
  }

  std::vector<float> run() {
    constexpr int64_t together = 16000;  // frames
    for (size_t next = 0; next < pieces_.size();) {
      if (progress_) progress_(static_cast<double>(pieces_[next].own.first) * hop_);
      std::vector<Matrix> inputs;
      const size_t begin = next;
      for (int64_t frames = 0; next < pieces_.size() && frames < together; ++next) {
        const Stretch& from = pieces_[next].from;
        inputs.push_back(from.silent ? Matrix() : rows(features_, from.first, from.end));
        frames += inputs.back().frames;
      }
      const std::vector<Prediction> found = model_.predict(std::move(inputs));
      for (size_t i = begin; i < next; ++i) take(pieces_[i], found[i - begin].transcript);
    }
    return std::move(outputs_);
  }

 private:
  void take(const Piece& p, const Transcript& t) {
    int64_t count = (p.own.end - p.own.first + block_ - 1) / block_;
    if (p.own.silent) {
      constexpr float certain = 20;
      const auto classes = static_cast<size_t>(model_.description().sizes.outputs);
      for (int64_t f = 0; f < count; ++f) {
        outputs_.resize(outputs_.size() + classes, 0);
        outputs_[outputs_.size() - classes + Alphabet::blank] = certain;
      }
      return;
    }
    const int64_t skipped = (p.own.first - p.from.first) / block_;
    if (p.own.end == features_.frames) count = t.frames - skipped;
    RONDO_CHECK(count >= 0 && skipped + count <= t.frames, "outputs of ", t.frames, " frames");
    const auto from = t.logits.begin() + skipped * t.classes;
    outputs_.insert(outputs_.end(), from, from + count * t.classes);
  }

  Recognizer& model_;
  const Matrix& features_;
  const int64_t block_;
  const double hop_;
  const std::function<void(double)>& progress_;
  std::vector<Piece> pieces_;
  std::vector<float> outputs_;
};

}  // namespace

std::vector<float> long_outputs(Recognizer& model, Waveform audio, const PieceOptions& o) {
  if (audio.seconds() <= 2 * o.seconds) return model.transcribe(audio).logits;
  if (const auto stream = stream_of(model)) {
    const auto step = static_cast<size_t>(audio.sample_rate);
    std::vector<float> outputs;
    for (size_t at = 0; at < audio.samples.size(); at += step) {
      if (o.progress) o.progress(static_cast<double>(at) / audio.sample_rate);
      stream->accept(
          std::span(audio.samples).subspan(at, std::min(step, audio.samples.size() - at)), outputs);
    }
    stream->finish(outputs);
    return outputs;
  }
  if (model.description().config.task != Task::ctc)
    fail_input(model.file(), ": is not a ctc model: it writes no text");
  const Matrix features = model.features(audio);
  audio = {};
  return PiecewiseOutputs(model, features, o).run();
}

}  // namespace rondo
