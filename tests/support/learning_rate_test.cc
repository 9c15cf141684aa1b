#include "engine/config/learning_rate.h"

#include <cmath>
#include <string>
#include <tuple>

#include "engine/config/metric.h"
#include "tests/support/support.h"

using namespace rondo;

namespace {

LearningRateConfig config(LearningRateType type, int64_t warmup, int64_t total = 0) {
  LearningRateConfig c;
  c.type = type;
  c.warmup_steps = warmup;
  c.total_steps = total;
  c.final_factor = 0.1;
  return c;
}

double rate(const LearningRateConfig& c, int64_t step, int64_t expected = 0) {
  return learning_rate(c, 2.0, step, expected);
}

}  // namespace

TEST_CASE("warm-up rises in equal steps to the peak", "[lr]") {
  for (auto type : {LearningRateType::constant, LearningRateType::linear, LearningRateType::cosine,
                    LearningRateType::noam, LearningRateType::step, LearningRateType::plateau}) {
    const LearningRateConfig c = config(type, 10, 100);
    CHECK(rate(c, 1) == Approx(0.2));
    CHECK(rate(c, 5) == Approx(1.0));
    CHECK(rate(c, 10) == Approx(2.0));
    CHECK(rate(c, 11) <= 2.0);
    CHECK(rate(config(type, 0, 100), 1) > 1.9);
  }
}

TEST_CASE("each type's course after the warm-up", "[lr]") {
  CHECK(rate(config(LearningRateType::constant, 10), 1000000) == 2.0);

  const LearningRateConfig linear = config(LearningRateType::linear, 10, 110);
  CHECK(rate(linear, 60) == Approx(2.0 * 0.55));
  CHECK(rate(linear, 110) == Approx(0.2));
  CHECK(rate(linear, 5000) == Approx(0.2));

  const LearningRateConfig cosine = config(LearningRateType::cosine, 10, 110);
  CHECK(rate(cosine, 60) == Approx(2.0 * 0.55));
  CHECK(rate(cosine, 35) == Approx(2.0 * (0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2)));
  CHECK(rate(cosine, 110) == Approx(0.2));
  CHECK(rate(cosine, 111) == Approx(0.2));

  CHECK(rate(config(LearningRateType::noam, 10), 40) == Approx(1.0));
  CHECK(rate(config(LearningRateType::noam, 0), 4) == Approx(1.0));

  LearningRateConfig step = config(LearningRateType::step, 10);
  step.step_every = 100;
  step.step_factor = 0.5;
  CHECK(rate(step, 109) == 2.0);
  CHECK(rate(step, 110) == 1.0);
  CHECK(rate(step, 310) == 0.25);
}

TEST_CASE("the total is the config's, else what the caller expects", "[lr]") {
  CHECK(rate(config(LearningRateType::linear, 0, 0), 50, 100) == Approx(2.0 * 0.55));
  CHECK(rate(config(LearningRateType::linear, 0, 50), 50, 100) == Approx(0.2));
  CHECK(rate(config(LearningRateType::linear, 0, 0), 50, 0) == 2.0);
  CHECK(rate(config(LearningRateType::cosine, 100, 50), 100) ==
        Approx(0.2));  // a total within the warm-up
}

TEST_CASE("plateau cuts after patience, and only then", "[lr]") {
  LearningRateConfig c = config(LearningRateType::plateau, 0);
  c.plateau_patience = 1;
  c.plateau_factor = 0.5;
  PlateauState s;
  s = plateau_update(c, s, 1.0);
  CHECK(s.best == 1.0);
  s = plateau_update(c, s, 1.0);
  CHECK(s.factor == 1);
  s = plateau_update(c, s, std::nan(""));
  CHECK(s.factor == 0.5);
  CHECK(s.bad_validations == 0);
  CHECK(learning_rate(c, 2.0, 7, 0, s) == 1.0);
  s = plateau_update(c, s, 0.9);
  CHECK(s.best == 0.9);
  s = plateau_update(c, s, 0.95);
  s = plateau_update(c, s, 0.8);
  CHECK(s.factor == 0.5);
  CHECK(s.best == 0.8);

  c.plateau_threshold = 0.1;
  s = plateau_update(c, s, 0.75);  // a gain of 6 %
  CHECK(s.bad_validations == 1);
  CHECK(s.best == 0.8);
  s = plateau_update(c, s, 0.7);
  CHECK(s.best == 0.7);
}

TEST_CASE("plateau: the loss to fall below is that of the last progress, not the least") {
  LearningRateConfig c;
  c.plateau_threshold = 0.01;
  PlateauState s = plateau_update(c, {}, {0.5, 2});
  s = plateau_update(c, s, {0.4, 3});
  CHECK(s.best_loss == 3);
  s = plateau_update(c, s, {0.4, 2.5});
  CHECK(s.bad_validations == 0);
  CHECK(s.best_loss == 2.5);
}

TEST_CASE("plateau's cuts count in the warm-up, and gains of what is below zero", "[lr]") {
  LearningRateConfig c = config(LearningRateType::plateau, 10);
  c.plateau_patience = 0;
  c.plateau_threshold = 0.1;
  PlateauState s;
  s.factor = 0.25;
  CHECK(learning_rate(c, 2.0, 5, 0, s) == Approx(0.25));
  CHECK(learning_rate(c, 2.0, 10, 0, s) == Approx(0.5));
  CHECK(learning_rate(config(LearningRateType::constant, 10), 2.0, 5, 0, s) == Approx(1.0));
  s = plateau_update(c, {}, -10.0);
  s = plateau_update(c, s, -10.9);  // not by a tenth of 10
  CHECK(s.factor == 0.5);
  CHECK(s.best == -10);
  s = plateau_update(c, s, -11.1);
  CHECK(s.factor == 0.5);
  CHECK(s.best == -11.1);
  // Of three without progress each cuts; with patience for one, each second does.
  for (int i = 0; i < 3; ++i) s = plateau_update(c, s, -11.1);
  CHECK(s.factor == 0.0625);
  c.plateau_patience = 1;
  for (const double factor : {0.0625, 0.03125, 0.03125, 0.015625}) {
    s = plateau_update(c, s, 5.0);
    CHECK(s.factor == factor);
  }
}

TEST_CASE("metrics by name, by task, and as people write them", "[metric]") {
  for (const auto& [metric, name, title, text] :
       {std::tuple(Metric::cer, "cer", "CER", "CER 3.21%"),
        std::tuple(Metric::wer, "wer", "WER", "WER 3.21%"),
        std::tuple(Metric::error, "error", "error", "error 3.21%"),
        std::tuple(Metric::loss, "loss", "loss", "loss 0.03214")}) {
    CHECK(std::string(name_of(metric)) == name);
    CHECK(metric_named(name) == metric);
    CHECK(title_of(metric) == title);
    CHECK(metric_text(metric, 0.032141) == text);
  }
  CHECK(std::string(name_of(Metric::automatic)) == "auto");
  CHECK_FALSE(metric_named("auto").has_value());
  CHECK(usual_metric(Task::ctc) == Metric::wer);
  CHECK(usual_metric(Task::classify) == Metric::error);
  CHECK(usual_metric(Task::regress) == Metric::loss);
  Config c;
  for (const Task task : {Task::ctc, Task::classify, Task::regress}) {
    for (const Metric metric : {Metric::automatic, Metric::loss, Metric::cer, Metric::wer}) {
      c.task = task, c.training.metric = metric;
      const bool of_texts = metric == Metric::cer || metric == Metric::wer;
      if (task == Task::ctc || !of_texts) {
        CHECK_NOTHROW(require_metric(c));
        continue;
      }
      const std::string error = rondo::test::input_error([&] { require_metric(c); });
      CHECK_THAT(error, Catch::Contains(str("metric is \"", name_of(metric), "\"")));
      CHECK_THAT(error, Catch::Contains(task == Task::classify ? "\"classify\" writes none"
                                                               : "\"regress\" writes none"));
    }
  }
}

TEST_CASE("plateau follows the loss while the metric stands at its worst, or where it was",
          "[lr]") {
  LearningRateConfig c = config(LearningRateType::plateau, 0);
  c.plateau_patience = 0;
  PlateauState s;
  for (const double loss : {60.0, 40.0, 20.0, 12.0, 11.0}) s = plateau_update(c, s, {1.0, loss});
  CHECK(s.factor == 1);
  s = plateau_update(c, s, {1.3, 10.5});
  CHECK(s.factor == 1);
  s = plateau_update(c, s, {1.0, 10.6});
  CHECK(s.factor == 0.5);
  s = plateau_update(c, s, {0.9, 10.6});
  s = plateau_update(c, s, {0.9, 10.4});
  CHECK(s.factor == 0.5);
  s = plateau_update(c, s, {0.95, 9});  // neither at its worst nor where it was
  CHECK(s.factor == 0.25);
  s = plateau_update(c, s, {1.0, 9});  // writes nothing once more, and learns
  CHECK(s.factor == 0.25);
  CHECK(s.best == 0.9);

  c.plateau_threshold = 0.1;
  s = plateau_update(c, s, {1.0, 8.5});  // a gain of 6 %
  CHECK(s.factor == 0.125);
  s = plateau_update(c, s, {1.0, 8});
  CHECK(s.factor == 0.125);
}
