#include "engine/train/shared_evaluation.h"

#include "engine/io/json.h"

namespace rondo {
namespace {

void gather(const Ranks& ranks, std::vector<SampleHypothesis>& samples) {
  if (ranks.size() == 1) return;
  Json mine = Json::array();
  for (const SampleHypothesis& s : samples) {
    mine.push_back(Json::array({s.utterance, s.name, s.reference, s.hypothesis}));
  }
  samples.clear();
  for (const std::string& text : ranks.gather(mine.dump())) {
    const Json theirs = Json::parse(text);
    for (const Json& s : theirs.elements()) {
      samples.push_back({s.at(0).get<int64_t>(), s.at(1).get<std::string>(),
                         s.at(2).get<std::string>(), s.at(3).get<std::string>()});
    }
  }
}

}  // namespace

Evaluation evaluate_together(const Ranks& ranks, EvaluatedModel& model, const ManifestDataset& data,
                             const Config& config, const Alphabet* text,
                             std::vector<SampleHypothesis>* samples,
                             const std::function<bool()>& stop) {
  EvaluationOptions o;
  o.task = config.task;
  o.batch_frames = config.data.batch_frames;
  o.part = ranks.rank();
  o.parts = ranks.size();
  o.stop = stop;
  const auto wanted = static_cast<size_t>(samples ? config.training.samples : 0);
  Evaluation e;
  ranks.together([&] {
    e = evaluate(model, data, text, o, [&](const Hypothesis& h) {
      // The same utterances each time: the first of the manifest.
      if (static_cast<size_t>(h.utterance) >= wanted) return;
      const std::string reference =
          text ? reference_text(data.entry(h.utterance), *text).value_or("") : "";
      samples->push_back({h.utterance, data.name(h.utterance), reference, h.text});
    });
  });
  e.combine([&](std::span<double> values) { ranks.sum(values); });
  if (samples) gather(ranks, *samples);
  return e;
}

}  // namespace rondo
