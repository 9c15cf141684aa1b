#include "engine/train/shared_evaluation.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>

#include "engine/io/json.h"
#include "engine/reduce/long_work.h"
#include "kernels/base/error.h"

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

// What `each` of an evaluation over several ranks sees of an utterance, as bytes.
void append(std::string& bytes, const auto& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append(std::string& bytes, const Hypothesis& h) {
  append(bytes, h.batch);
  append(bytes, h.utterance);
  append(bytes, h.loss);
  append(bytes, h.class_index);
  append(bytes, h.text.size());
  bytes += h.text;
  append(bytes, h.values.size());
  for (const float value : h.values) append(bytes, value);
}

class Taker {
 public:
  explicit Taker(std::string_view bytes) : left_(bytes) {}
  bool is_done() const { return left_.empty(); }

  Hypothesis take() {
    Hypothesis h;
    h.batch = take<int64_t>();
    h.utterance = take<int64_t>();
    h.loss = take<double>();
    h.class_index = take<int32_t>();
    h.text = take_bytes(take<size_t>());
    h.values.resize(take<size_t>());
    for (float& value : h.values) value = take<float>();
    return h;
  }

 private:
  std::string_view take_bytes(size_t n) {
    RONDO_CHECK(n <= left_.size(), "a rank's hypotheses end within one of them");
    const std::string_view taken = left_.substr(0, n);
    left_.remove_prefix(n);
    return taken;
  }

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view left_;
};

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

Evaluation evaluate_together(const Ranks& ranks, CommClock::duration patience,
                             EvaluatedModel& model, const ManifestDataset& data,
                             const Alphabet* text, EvaluationOptions options,
                             const std::function<void(const Hypothesis&)>& each) {
  if (ranks.size() == 1) return evaluate(model, data, text, options, each);
  const auto start = std::chrono::steady_clock::now();
  options.part = ranks.rank();
  options.parts = ranks.size();
  Evaluation e;
  std::string mine;
  together_at_length(ranks, patience, [&] {
    e = evaluate(model, data, text, options, [&](const Hypothesis& h) { append(mine, h); });
  });
  e.combine([&](std::span<double> values) { ranks.sum(values); });
  std::vector<Hypothesis> all;
  for (const std::string& bytes : ranks.gather(mine)) {
    for (Taker taker(bytes); !taker.is_done();) all.push_back(taker.take());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.batch < b.batch; });
  for (const Hypothesis& h : all) each(h);
  e.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return e;
}

}  // namespace rondo
