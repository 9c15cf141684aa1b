#include <rondo/version.h>

#include "engine/c/handles.h"
#include "engine/data/audio/audio.h"
#include "engine/data/image/image.h"
#include "engine/train/trainer.h"
#include "kernels/base/cpu/parallel.h"

namespace rondo::c {
namespace {

class Callbacks final : public TrainingObserver {
 public:
  explicit Callbacks(const rondo_train_options& o) : o_(o) {}
  void message(const std::string& text) override {
    if (o_.message) o_.message(o_.user, text.c_str());
  }
  void stepped(const Step& s) override {
    const rondo_training_step step = {s.step, s.epoch, s.loss, s.learning_rate, s.gradient_norm};
    if (o_.stepped) o_.stepped(o_.user, &step);
  }
  void validated(const Validation& v) override {
    const rondo_validation validation = {v.step, v.loss, v.metric, v.best ? 1 : 0};
    if (o_.validated) o_.validated(o_.user, &validation);
  }

 private:
  const rondo_train_options& o_;
};

}  // namespace
}  // namespace rondo::c

using namespace rondo;
using namespace rondo::c;

void rondo_train_options_init(rondo_train_options* options, size_t size) {
  write_options(options, size, rondo_train_options{});
}

rondo_status rondo_train(const char* toml, const char* name, const rondo_train_options* options,
                         rondo_training* summary) {
  return guarded([&] {
    require_given(toml, "toml");
    const auto o = read_options(options, rondo_train_options{}, "rondo_train_options");
    const int threads = o.threads == 0 ? 0 : cpu_threads(o.threads, "rondo_train_options.threads");
    const Config config = parse_config(toml, name ? name : "the settings");
    Callbacks callbacks(o);
    const SndfileReader audio;
    const ImageFileReader images;
    TrainerOptions t;
    t.start = o.resume != 0 ? StartFrom::checkpoint_if_any : StartFrom::scratch;
    t.device = device_of(o.device);
    t.audio = &audio;
    t.images = &images;
    t.observer = &callbacks;
    if (o.stop) t.stop = [&o] { return o.stop(o.user) != 0; };
    t.threads = threads;
    t.version = RONDO_VERSION;
    const TrainingSummary s = train(config, t);
    if (!summary) return;
    rondo_training result{};
    result.steps = s.steps;
    result.epochs = s.epochs;
    result.seconds = s.seconds;
    result.best_metric = s.best_metric;
    result.stopped = s.stopped_by_signal ? 1 : 0;
    write_options(summary, summary->size, result);
  });
}
