#include <rondo/version.h>

#include <vector>

#include "engine/c/handles.h"
#include "engine/config/config.h"
#include "engine/text/alphabet.h"
#include "engine/train/model/build_model.h"
#include "engine/train/model/model_file.h"
#include "engine/train/recognition/evaluation.h"
#include "kernels/base/cpu/parallel.h"

namespace rondo::c {
namespace {

// Features come ready and normalised, and nothing is read from files.
Config config_of(const char* toml, const char* name) {
  Config config = parse_config(toml, name ? name : "the settings");
  if (config.task != Task::ctc) fail_input("sessions train models of task \"ctc\"");
  config.features = FeaturesConfig{};
  config.features.type = FeatureType::ready;
  config.features.cmvn = Cmvn::none;
  config.data = DataConfig{};
  return config;
}

ModelDescription describe(const char* toml, const char* name, const rondo_session_options& o) {
  if (o.features < 1 || o.features > most_columns)
    fail_input("rondo_session_options.features: ", o.features, ", expected 1 to ", most_columns);
  if (o.alphabet_size > 0) require_given(o.alphabet, "rondo_session_options.alphabet");
  ModelDescription d;
  d.config = config_of(toml, name);
  for (size_t i = 0; i < o.alphabet_size; ++i) {
    require_given(o.alphabet[i], "a symbol of the alphabet");
    d.alphabet.emplace_back(o.alphabet[i]);
  }
  d.alphabet = Alphabet(d.alphabet).symbols();  // throws where a model could not have it
  if (d.alphabet.empty()) fail_input("the alphabet is empty, expected at least one character");
  d.sizes = {o.features, static_cast<int64_t>(d.alphabet.size()) + 1};
  d.origin.version = RONDO_VERSION;
  return d;
}

Example example_of(const rondo_session& s, const rondo_example& given, size_t number) {
  const ModelSizes& sizes = s.description.sizes;
  const std::string name = str("example ", number);
  Example e;
  e.features = matrix_of(given.features, name.c_str());
  if (e.features.frames < 1 || e.features.dim != sizes.features) {
    fail_input(name, ": features of ", e.features.frames, " frames and ", e.features.dim,
               " columns, expected at least one frame of ", sizes.features);
  }
  if (given.label_count > 0) require_given(given.labels, "labels of an example");
  for (size_t i = 0; i < given.label_count; ++i) {
    if (given.labels[i] < 1 || given.labels[i] >= sizes.outputs) {
      fail_input(name, ": label ", i, " is ", given.labels[i], ", expected 1 to ",
                 sizes.outputs - 1);
    }
  }
  e.labels.assign(given.labels, given.labels + given.label_count);
  return e;
}

// Fills the session's batch. Dropout is by the place in the batch and the number of updates.
void pack(rondo_session& s, const rondo_example* examples, size_t count) {
  if (count == 0) fail_input("a batch without examples");
  require_given(examples, "examples");
  BatchRequest request;
  request.step = s.session.step();
  std::vector<Example> all;
  std::vector<uint64_t> keys;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(example_of(s, examples[i], i));
    keys.push_back(i);
    request.utterances.push_back(static_cast<int64_t>(i));
  }
  pack_batch(request, all, keys, static_cast<int32_t>(s.description.sizes.features), s.batch);
}

template <class Pass>
rondo_status run(rondo_session* session, const rondo_example* examples, size_t count,
                 rondo_session_result* result, Pass pass) {
  return guarded([&] {
    require_given(session, "session");
    pack(*session, examples, count);
    std::vector<BatchView::Input> inputs;
    const StepResult& r =
        pass(session->session, batch_view(session->batch, Task::ctc, inputs,
                                          static_cast<uint64_t>(session->session.step())));
    if (!result) return;
    rondo_session_result told{};
    told.step = session->session.step();
    told.loss = r.mean_loss();
    told.gradient_norm = r.gradient_norm;
    told.infeasible = r.infeasible;
    told.skipped = r.skipped ? 1 : 0;
    write_options(result, result->size, told);
  });
}

}  // namespace
}  // namespace rondo::c

using namespace rondo;
using namespace rondo::c;

void rondo_session_options_init(rondo_session_options* options, size_t size) {
  write_options(options, size, rondo_session_options{});
}

rondo_status rondo_session_new(const char* toml, const char* name,
                               const rondo_session_options* options, rondo_session** session) {
  return making<rondo_session>(session, [&] {
    require_given(toml, "toml");
    require_given(options, "options");
    const auto o = read_options(options, rondo_session_options{}, "rondo_session_options");
    const int threads =
        o.threads == 0 ? 0 : cpu_threads(o.threads, "rondo_session_options.threads");
    ModelDescription d = describe(toml, name, o);
    SessionOptions s = session_options(d.config, device_of(o.device));
    if (threads > 0) s.threads = threads;
    const ModelFunction model = build_model(d.config.model, Task::ctc, d.sizes, d.config.training);
    return std::make_unique<rondo_session>(model, s, std::move(d));
  });
}

void rondo_session_free(rondo_session* session) { delete session; }

rondo_status rondo_session_train(rondo_session* session, const rondo_example* examples,
                                 size_t count, rondo_session_result* result) {
  return run(
      session, examples, count, result,
      [](Session& s, const BatchView& batch) -> const StepResult& { return s.train_step(batch); });
}

rondo_status rondo_session_evaluate(rondo_session* session, const rondo_example* examples,
                                    size_t count, rondo_session_result* result) {
  return run(
      session, examples, count, result,
      [](Session& s, const BatchView& batch) -> const StepResult& { return s.evaluate(batch); });
}

rondo_status rondo_session_set_learning_rate(rondo_session* session, double rate) {
  return guarded([&] {
    require_given(session, "session");
    if (!(rate >= 0 && rate <= 1e6))
      fail_input("a learning rate of ", rate, ", expected 0 or more");
    session->session.set_learning_rate(rate);
  });
}

rondo_status rondo_session_save(rondo_session* session, const char* path) {
  return guarded([&] {
    require_given(session, "session");
    require_given(path, "path");
    session->description.origin.updates = session->session.step();
    save_model(path, session->session, session->description);
  });
}

rondo_status rondo_session_load(rondo_session* session, const char* path) {
  return guarded([&] {
    require_given(session, "session");
    require_given(path, "path");
    std::vector<std::string> warnings;
    const SafetensorsFile file = open_model(path, &warnings);
    const ModelDescription d = ModelDescription::from_metadata(file.metadata(), file.name());
    if (d.alphabet != session->description.alphabet)
      fail_input(file.name(), ": has another alphabet than the session");
    session->session.load(file);
  });
}
