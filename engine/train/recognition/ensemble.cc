#include "engine/train/recognition/ensemble.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/train/model/build_model.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr const char* scores_input = "scores";

// From a prediction to its loss.
ModelFunction loss_of_scores(Task task, int64_t columns) {
  return [task, columns](Graph& g) {
    switch (task) {
      case Task::ctc: {
        const ValueId x = layers::input_frames(g, scores_input, columns);
        return Outputs{layers::ctc_loss(g, x), x};
      }
      case Task::classify: {
        const ValueId x = layers::input_sequences(g, scores_input, columns);
        return Outputs{layers::cross_entropy(g, x, targets_input), x};
      }
      case Task::regress: {
        const ValueId x = layers::input_sequences(g, scores_input, columns);
        return Outputs{layers::mean_squared_error(g, x, targets_input), x};
      }
    }
    RONDO_CHECK(false, "unknown task");
  };
}

// Adds the probabilities of each row of logits to `sum`.
void add_softmax(std::span<const float> logits, std::span<float> sum, int64_t columns,
                 ThreadPool& pool) {
  const auto width = static_cast<size_t>(columns);
  pool.for_range(static_cast<int64_t>(logits.size() / width), 64, [&](int64_t begin, int64_t end) {
    std::vector<double> p(width);
    for (int64_t row = begin; row < end; ++row) {
      const auto x = logits.subspan(static_cast<size_t>(row) * width, width);
      const auto into = sum.subspan(static_cast<size_t>(row) * width, width);
      const float largest = *std::max_element(x.begin(), x.end());
      double total = 0;
      for (size_t c = 0; c < width; ++c) {
        p[c] = std::exp(static_cast<double>(x[c]) - static_cast<double>(largest));
        total += p[c];
      }
      for (size_t c = 0; c < width; ++c) into[c] += static_cast<float>(p[c] / total);
    }
  });
}

std::string quoted(const std::string& symbol) { return "'" + symbol + "'"; }

// What keeps two alphabets from being one; empty: nothing.
std::string alphabets_differ(const std::vector<std::string>& first,
                             const std::vector<std::string>& other) {
  const auto lacks = [](const std::vector<std::string>& all, const std::string& symbol) {
    return std::find(all.begin(), all.end(), symbol) == all.end();
  };
  for (const std::string& symbol : first) {
    if (lacks(other, symbol)) return str("it lacks the character ", quoted(symbol));
  }
  for (const std::string& symbol : other) {
    if (lacks(first, symbol)) return str("it has the character ", quoted(symbol), " besides");
  }
  return first == other ? "" : "its characters have other labels";
}

}  // namespace

RunningModel::RunningModel(const Model& of, int threads) : model(of) {
  const ModelDescription& d = description();
  SessionOptions o = session_options(d.config, model.device());
  o.threads = threads;
  o.training = false;
  o.weights = model.weights();
  session = std::make_unique<Session>(model_in_use(d, model.device()), o);
}

void require_alike(const RunningModel& first, const RunningModel& other) {
  const ModelDescription &a = first.description(), &b = other.description();
  const auto refuse = [&](const std::string& why) {
    fail_input(other.file(), ": cannot be averaged with ", first.file(), ": ", why);
  };
  Config reads, others;
  reads.task = a.config.task;
  reads.features = a.config.features;
  others.task = b.config.task;
  others.features = b.config.features;
  others.features.dither = reads.features.dither;  // of training alone
  if (const auto differences = config_differences(reads, others); !differences.empty())
    refuse("it reads otherwise, " + differences.front());
  if (a.sizes.features != b.sizes.features)
    refuse(str("it reads ", b.sizes.features, " columns, not ", a.sizes.features));
  if (const std::string why = alphabets_differ(a.alphabet, b.alphabet); !why.empty())
    refuse(why + "; training with the same data.alphabet gives all models the same");
  if (a.classes != b.classes) refuse("its classes have other names");
  if (a.sizes.outputs != b.sizes.outputs)
    refuse(str("it has ", b.sizes.outputs, " outputs, not ", a.sizes.outputs));
  const int64_t frames = first.session->subsampling(), found = other.session->subsampling();
  if (frames != found)
    refuse(str("it makes a frame of the output of ", found, " of the input, not of ", frames));
}

Ensemble::Ensemble(const std::vector<RunningModel>& models) : models_(models) {
  RONDO_CHECK(!models.empty(), "an ensemble of no model");
  for (const RunningModel& m : models) require_alike(models.front(), m);
}

// From the first model's statistics to another's, column by column.
BatchView Ensemble::normalized(const BatchView& batch, const ModelDescription& other) {
  const ModelDescription& own = models_.front().description();
  if (own.mean == other.mean && own.inverse_std == other.inverse_std) return batch;
  RONDO_CHECK(batch.inputs.front().name == features_input, "the first input of a batch");
  const BatchView::Input& given = batch.inputs.front();
  const auto* x = static_cast<const float*>(given.data);
  features_.resize(given.bytes / sizeof(float));
  const size_t columns = own.mean.size();
  for (size_t i = 0; i < features_.size(); ++i) {
    const size_t c = i % columns;
    features_[i] = (x[i] / own.inverse_std[c] + own.mean[c] - other.mean[c]) * other.inverse_std[c];
  }
  input_ = {features_input, features_.data(), given.bytes};
  BatchView view = batch;
  view.inputs = {&input_, 1};
  return view;
}

const std::vector<float>& Ensemble::predict(const BatchView& batch) {
  if (models_.size() == 1) return first().predict(batch);
  const Task task = models_.front().description().config.task;
  const bool is_regression = task == Task::regress;
  each_.clear();
  for (const RunningModel& m : models_) {
    const std::vector<float>& scores = m.session->predict(normalized(batch, m.description()));
    if (&m == &models_.front()) mean_.assign(scores.size(), 0.0f);
    RONDO_CHECK(scores.size() == mean_.size(), m.file(), ": ", scores.size(), " outputs of ",
                mean_.size());
    if (task == Task::ctc) each_.push_back(scores);
    if (is_regression) {
      for (size_t i = 0; i < mean_.size(); ++i) mean_[i] += scores[i];
    } else {
      add_softmax(scores, mean_, prediction_shape().cols, *first().context().pool);
    }
  }
  const auto count = static_cast<float>(models_.size());
  for (float& v : mean_) {
    v /= count;
    // The logarithm of 0 would be no number to reckon with.
    if (!is_regression) v = std::log(std::max(v, std::numeric_limits<float>::min()));
  }
  return mean_;
}

const std::vector<float>& Ensemble::evaluate_and_predict(const BatchView& batch) {
  if (models_.size() == 1) return first().evaluate_and_predict(batch);
  const Task task = models_.front().description().config.task;
  predict(batch);
  if (!loss_) {
    SessionOptions o;
    o.threads = first().context().pool->size();
    o.training = false;
    loss_ = std::make_unique<Session>(loss_of_scores(task, prediction_shape().cols), o);
  }
  PackedHost outputs = *batch.layout;
  if (task == Task::ctc) {
    outputs = build_packed(output_lengths(*this, *batch.layout));
  }
  std::vector<BatchView::Input> inputs(batch.inputs.begin(), batch.inputs.end());
  inputs.front() = {scores_input, mean_.data(), mean_.size() * sizeof(float)};
  BatchView view = batch;
  view.layout = &outputs;
  view.inputs = inputs;
  loss_->evaluate(view);
  return mean_;
}

const StepResult& Ensemble::last_result() const {
  return models_.size() == 1 ? first().last_result() : loss_->last_result();
}

}  // namespace rondo
