#include "engine/train/recognition/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "engine/rank_model.h"
#include "engine/train/model/build_model.h"
#include "engine/train/recognition/agreement.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {

BatchView batch_view(const HostBatch& batch, Task task, std::vector<BatchView::Input>& inputs,
                     uint64_t step_seed) {
  inputs.clear();
  inputs.push_back({features_input, batch.features.data(), batch.features.size() * sizeof(float)});
  if (task == Task::classify) {
    inputs.push_back({targets_input, batch.classes.data(), batch.classes.size() * 4});
  } else if (task == Task::regress) {
    inputs.push_back({targets_input, batch.targets.data(), batch.targets.size() * 4});
  }
  BatchView view;
  view.layout = &batch.layout;
  view.inputs = inputs;
  view.step_seed = step_seed;
  if (task == Task::ctc) {
    view.labels = batch.labels;
    view.label_offsets = batch.label_offsets;
  }
  return view;
}

std::optional<std::string> reference_text(const ManifestEntry& entry, const Alphabet& alphabet) {
  if (entry.labels) return alphabet.decode(*entry.labels);
  return entry.text;
}

Unwritable unwritable_text(const ManifestDataset& data, const Alphabet& alphabet) {
  Unwritable found(alphabet);
  for (int64_t i = 0; i < data.size(); ++i) {
    if (const auto reference = reference_text(data.entry(i), alphabet)) found.add(*reference);
  }
  return found;
}

WordSpacing word_spacing(const ManifestDataset& data, const Alphabet& alphabet) {
  WordSpacing spacing;
  for (int64_t i = 0; i < data.size(); ++i) {
    if (const auto reference = reference_text(data.entry(i), alphabet)) spacing.add(*reference);
  }
  return spacing;
}

std::vector<float> unpack(const std::vector<float>& packed, std::span<const int32_t> lengths,
                          size_t n, int64_t cols) {
  std::vector<float> scores;
  int64_t row = static_cast<int64_t>(n);
  for (int32_t t = 0; t < lengths[n]; ++t) {
    scores.insert(scores.end(), packed.begin() + row * cols, packed.begin() + (row + 1) * cols);
    const auto active = std::partition_point(lengths.begin(), lengths.end(),
                                             [&](int32_t length) { return length > t; });
    row += active - lengths.begin();
  }
  return scores;
}

std::vector<int32_t> output_lengths(const EvaluatedModel& model, const PackedHost& layout) {
  std::vector<int32_t> lengths;
  for (int32_t length : layout.lengths) lengths.push_back(model.output_frames(length));
  return lengths;
}

std::string names_of(const ManifestDataset& data, std::span<const int64_t> utterances) {
  constexpr size_t shown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(shown, utterances.size()); ++i) {
    text += str(i ? ", " : "", data.name(utterances[i]));
  }
  if (utterances.size() > shown) text += str(" and ", utterances.size() - shown, " more");
  return text;
}

Json class_json(std::span<const std::string> classes, int64_t index) {
  return classes.empty() ? Json(index) : Json(class_text(classes, index));
}

std::string loss_text(double loss) {
  if (std::isnan(loss)) return "n/a";
  return fixed_text(loss, 4);
}

double Evaluation::value(Metric metric) const {
  switch (metric) {
    case Metric::cer:
      return errors.cer();
    case Metric::wer:
      return errors.wer();
    case Metric::error:
      return utterances ? static_cast<double>(wrong) / static_cast<double>(utterances) : 0;
    case Metric::loss:
    case Metric::automatic:
      break;
  }
  // Of nothing it is no achievement.
  return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
}

void Evaluation::combine(const std::function<void(std::span<double>)>& sum) {
  const auto& w = errors.words();
  const auto& c = errors.characters();
  const int64_t counts[] = {utterances,
                            wrong,
                            infeasible,
                            counted,
                            w.substitutions,
                            w.insertions,
                            w.deletions,
                            w.reference,
                            c.substitutions,
                            c.insertions,
                            c.deletions,
                            c.reference,
                            errors.utterances(),
                            errors.wrong_utterances(),
                            stopped};
  std::vector<double> sums(std::begin(counts), std::end(counts));
  sums.insert(sums.end(), batch_losses.begin(), batch_losses.end());
  sum(sums);
  const auto at = [&](size_t i) { return static_cast<int64_t>(sums[i]); };
  utterances = at(0);
  wrong = at(1);
  infeasible = at(2);
  counted = at(3);
  stopped = at(14) > 0;
  errors = ErrorRate({at(4), at(5), at(6), at(7)}, {at(8), at(9), at(10), at(11)}, at(12), at(13));
  std::copy(sums.begin() + std::size(counts), sums.end(), batch_losses.begin());
  const double total = std::accumulate(batch_losses.begin(), batch_losses.end(), 0.0);
  loss = counted > 0 ? total / static_cast<double>(counted) : std::nan("");
}

namespace {

class Evaluator {
 public:
  Evaluator(EvaluatedModel& model, const ManifestDataset& data, const Alphabet* text,
            const EvaluationOptions& options, const std::function<void(const Hypothesis&)>& each)
      : model_(model),
        data_(data),
        text_(text),
        options_(options),
        each_(each),
        shape_(model.prediction_shape()) {
    if (text) vocabulary_ = Vocabulary::of(*text);
    if (options.decoder) threads_.emplace(options.decoder_threads);
  }

  void batch(const HostBatch& batch) {
    const BatchView view = batch_view(batch, options_.task, inputs_);
    const std::vector<float>& prediction =
        options_.references ? model_.evaluate_and_predict(view) : model_.predict(view);
    if (options_.references) {
      last_ = &model_.last_result();
      result.batch_losses[static_cast<size_t>(batch.step)] = last_->loss;
      result.counted += last_->sequences - last_->infeasible - last_->nonfinite;
      result.infeasible += last_->infeasible;
    }
    if (options_.task == Task::ctc) {
      read_texts(batch, prediction);
    } else {
      for (size_t n = 0; n < batch.utterances.size(); ++n) values(batch, prediction, n);
    }
  }

  Evaluation result;

 private:
  Hypothesis begin(const HostBatch& batch, size_t n) {
    Hypothesis h;
    h.utterance = batch.utterances[n];
    h.batch = batch.step;
    h.loss = options_.references ? static_cast<double>(last_->losses[n]) : 0;
    ++result.utterances;
    return h;
  }

  // What a model says of one utterance, unless it is text.
  void values(const HostBatch& batch, const std::vector<float>& prediction, size_t n) {
    Hypothesis h = begin(batch, n);
    const int64_t cols = shape_.cols;
    const auto row = prediction.begin() + static_cast<int64_t>(n) * cols;
    h.values.assign(row, row + cols);
    h.scores = h.values;
    if (options_.task == Task::classify) {
      h.class_index = static_cast<int32_t>(std::max_element(h.values.begin(), h.values.end()) -
                                           h.values.begin());
      if (options_.references && h.class_index != batch.classes[n]) ++result.wrong;
    }
    if (each_) each_(h);
  }

  void read_texts(const HostBatch& batch, const std::vector<float>& prediction) {
    const size_t count = batch.utterances.size();
    const std::vector<int32_t> lengths = output_lengths(model_, batch.layout);
    std::vector<std::vector<float>> scores(count);
    for (size_t n = 0; n < count; ++n) {
      scores[n] = unpack(prediction, lengths, n, shape_.cols);
      if (std::any_of(scores[n].begin(), scores[n].end(), [](float v) { return std::isnan(v); })) {
        fail_input(data_.name(batch.utterances[n]),
                   ": the model's output is not a number; its weights have grown out of range (a "
                   "lower optimizer.lr helps, or training.clip), or the features are not finite");
      }
    }
    std::vector<std::string> found(count);
    const auto classes = static_cast<int32_t>(shape_.cols);
    const auto frames = [&](size_t n) {
      return static_cast<int32_t>(scores[n].size() / static_cast<size_t>(classes));
    };
    if (options_.decoder) {
      threads_->for_each(static_cast<int64_t>(count), [&](int64_t i) {
        const auto n = static_cast<size_t>(i);
        found[n] = model_.each().empty()
                       ? options_.decoder->decode(scores[n].data(), frames(n)).front().text
                       : vocabulary_.text(together(lengths, n));
      });
    }
    for (size_t n = 0; n < count; ++n) {
      Hypothesis h = begin(batch, n);
      h.scores = scores[n];
      h.output_frames = frames(n);
      h.labels = greedy_ctc(scores[n].data(), h.output_frames, classes);
      if (text_) {
        if (!options_.decoder)
          found[n] =
              vocabulary_.text(model_.each().empty() ? labels_of(h.labels) : together(lengths, n));
        h.text = text_->in_text_order(found[n]);
        const auto reference = reference_text(data_.entry(h.utterance), *text_);
        if (options_.references && reference) result.errors.add(*reference, h.text);
      }
      if (each_) each_(h);
    }
  }

  // What several models agree on.
  std::vector<int32_t> together(std::span<const int32_t> lengths, size_t n) const {
    return agreed_labels(model_.each(), lengths, n, static_cast<int32_t>(shape_.cols),
                         options_.decoder);
  }

  EvaluatedModel& model_;
  const ManifestDataset& data_;
  const Alphabet* text_;
  Vocabulary vocabulary_;  // the same, where it is
  const EvaluationOptions& options_;
  const std::function<void(const Hypothesis&)>& each_;
  Shape shape_;
  std::vector<BatchView::Input> inputs_;
  const StepResult* last_ = nullptr;
  std::optional<ThreadPool> threads_;  // of the decoder
};

}  // namespace

Shape SingleModel::prediction_shape() const { return model_.prediction_shape(); }
int32_t SingleModel::output_frames(int32_t length) const { return model_.output_frames(length); }
const std::vector<float>& SingleModel::predict(const BatchView& batch) {
  return model_.predict(batch);
}
const std::vector<float>& SingleModel::evaluate_and_predict(const BatchView& batch) {
  return model_.evaluate_and_predict(batch);
}
const StepResult& SingleModel::last_result() const { return model_.last_result(); }

Evaluation evaluate(Session& session, const ManifestDataset& data, const Alphabet* text,
                    const EvaluationOptions& options,
                    const std::function<void(const Hypothesis&)>& each) {
  SingleModel model(session.rank_model());
  return evaluate(model, data, text, options, each);
}

Evaluation evaluate(EvaluatedModel& model, const ManifestDataset& data, const Alphabet* text,
                    const EvaluationOptions& options,
                    const std::function<void(const Hypothesis&)>& each) {
  const auto start = std::chrono::steady_clock::now();
  Evaluator evaluator(model, data, text, options, each);
  if (data.size() > 0) {
    SamplerConfig sampling;
    sampling.order = BatchOrder::longest_first;
    std::vector<int32_t> lengths;
    for (int64_t i = 0; i < data.size(); ++i) lengths.push_back(data.frames(i, 0));
    sampling.batch_frames =
        std::max<int64_t>(options.batch_frames, *std::max_element(lengths.begin(), lengths.end()));
    Sampler sampler(
        data.size(), [&](int64_t i, uint64_t) { return lengths[static_cast<size_t>(i)]; },
        sampling);
    const int64_t steps = sampler.steps(0);
    evaluator.result.batch_losses.assign(static_cast<size_t>(steps), 0.0);
    int64_t given = options.part;
    Prefetcher prefetch(data,
                        [&]() -> std::optional<BatchRequest> {
                          if (given >= steps) return std::nullopt;
                          const int64_t step = given;
                          given += options.parts;
                          return sampler.at(0, step);
                        },
                        {options.prefetch_threads, 3});
    HostBatch batch;
    while (!evaluator.result.stopped && prefetch.next(batch)) {
      evaluator.batch(batch);
      evaluator.result.stopped = options.stop && options.stop();
    }
  }
  evaluator.result.combine([](std::span<double>) {});
  evaluator.result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  evaluator.result.audio_seconds = data.total_seconds();
  return evaluator.result;
}

}  // namespace rondo
