#include <cmath>

#include "engine/c/handles.h"
#include "engine/data/audio/resample.h"
#include "engine/data/audio/waveform.h"
#include "engine/data/image/grey_image.h"
#include "engine/graph/parameters.h"
#include "engine/train/model/open_data.h"
#include "engine/train/recognition/long_recording.h"
#include "engine/train/recognition/output_stream.h"
#include "kernels/base/cpu/parallel.h"

namespace rondo::c {
namespace {

rondo_task task_of(Task task) {
  return task == Task::ctc ? RONDO_CTC : task == Task::classify ? RONDO_CLASSIFY : RONDO_REGRESS;
}

rondo_kind kind_of(const ModelDescription& d) {
  const InputKind kind = input_kind(d.config.features.type);
  return kind == InputKind::recording ? RONDO_SAMPLES
         : kind == InputKind::image   ? RONDO_IMAGE
                                      : RONDO_FEATURES;
}

rondo_model_info info_of(const Model& model) {
  const ModelDescription& d = model.description();
  rondo_model_info info{};
  info.task = task_of(d.config.task);
  info.kind = kind_of(d);
  info.sample_rate = info.kind == RONDO_SAMPLES ? d.config.features.rate : 0;
  info.features = static_cast<int32_t>(d.sizes.features);
  info.outputs = static_cast<int32_t>(d.sizes.outputs);
  info.can_stream = why_no_stream(model).empty() ? 1 : 0;
  info.frame_seconds = model.frame_seconds();
  info.weights = model.weights()->trainable();
  return info;
}

Waveform waveform_of(const rondo_input& in, int32_t rate) {
  if (in.columns != 1) fail_input("samples of ", in.columns, " channels, expected 1");
  if (in.sample_rate < 1) fail_input("a sample rate of ", in.sample_rate, " Hz");
  const rondo_matrix column = {static_cast<const float*>(in.data), in.rows, 1, in.row_stride, 0};
  Waveform audio{in.sample_rate, matrix_of(column, "samples").data};
  require_samples(audio.samples, in.sample_rate);
  if (in.sample_rate != rate) {
    audio.samples = shared_resampler(in.sample_rate, rate)->apply(audio.samples);
    audio.sample_rate = rate;
  }
  return audio;
}

GreyImage image_of(const rondo_input& in) {
  constexpr int64_t most_pixels = int64_t{1} << 20;
  if (in.rows < 1 || in.columns < 1 || in.rows > most_pixels || in.columns > most_pixels) {
    fail_input("an image of ", in.columns, " x ", in.rows, " pixels, expected 1 to ", most_pixels,
               " each way");
  }
  require_given(in.data, "an image's data");
  const int64_t down = in.row_stride != 0 ? in.row_stride : in.columns;
  const int64_t across = in.column_stride != 0 ? in.column_stride : 1;
  GreyImage image(static_cast<int32_t>(in.columns), static_cast<int32_t>(in.rows));
  for (int32_t y = 0; y < image.height; ++y) {
    const uint8_t* from = static_cast<const uint8_t*>(in.data) + y * down;
    for (int32_t x = 0; x < image.width; ++x) image.row(y)[x] = from[x * across];
  }
  return image;
}

bool is_long(const Waveform& audio, const Model& model) {
  return model.description().config.task == Task::ctc &&
         audio.seconds() > 2 * PieceOptions{}.seconds;
}

// Inputs that go through the model together, and those that are too long for it.
class Run {
 public:
  Run(rondo_state& state, std::span<const rondo_input> inputs)
      : state_(state), model_(state.recognizer), found_(inputs.size()) {
    for (const rondo_input& in : inputs) whole_ += seconds_of(in);
    tell(0);
    for (size_t i = 0; i < inputs.size(); ++i) {
      try {
        add(inputs[i], i);
      } catch (const InputError& e) {
        if (inputs.size() == 1) throw;
        fail_input("input ", i, ": ", e.what());
      }
    }
  }

  std::vector<std::unique_ptr<rondo_result>> results() {
    const double seconds = model_.frame_seconds();
    std::vector<Prediction> all = model_.predict(std::move(features_));
    for (size_t i = 0; i < all.size(); ++i)
      found_[place_[i]] = result_of(std::move(all[i]), seconds);
    return std::move(found_);
  }

 private:
  static double seconds_of(const rondo_input& in) {
    const bool sound = in.kind == RONDO_SAMPLES && in.sample_rate > 0 && in.rows > 0;
    return sound ? static_cast<double>(in.rows) / in.sample_rate : 0;
  }

  void tell(double more) const {
    if (!state_.progress) return;
    if (state_.progress(state_.progress_user, done_ + more, whole_) != 0) throw Stopped();
  }

  void add(const rondo_input& in, size_t at) {
    Matrix x;
    if (in.kind == RONDO_SAMPLES) {
      const int32_t rate = model_.description().config.features.rate;
      Waveform audio = waveform_of(in, rate);
      if (kind_of(model_.description()) == RONDO_SAMPLES && is_long(audio, model_.model())) {
        PieceOptions pieces;
        pieces.progress = [this](double seconds) { tell(seconds); };
        found_[at] = result_of(model_.decode(long_outputs(model_, std::move(audio), pieces)),
                               model_.frame_seconds());
        done_ += seconds_of(in);
        return;
      }
      x = model_.features(audio);
    } else if (in.kind == RONDO_IMAGE) {
      x = model_.features(image_of(in));
    } else if (in.kind == RONDO_FEATURES) {
      x = matrix_of({static_cast<const float*>(in.data), in.rows, in.columns, in.row_stride,
                     in.column_stride},
                    "features");
    } else {
      fail_input("kind ", static_cast<int>(in.kind),
                 ", expected RONDO_FEATURES, RONDO_SAMPLES or RONDO_IMAGE");
    }
    features_.push_back(std::move(x));
    place_.push_back(at);
  }

  const rondo_state& state_;
  Recognizer& model_;
  double done_ = 0, whole_ = 0;  // seconds of sound
  std::vector<Matrix> features_;
  std::vector<size_t> place_;  // of each of them among the inputs
  std::vector<std::unique_ptr<rondo_result>> found_;
};

}  // namespace
}  // namespace rondo::c

using namespace rondo;
using namespace rondo::c;

rondo_status rondo_model_open(const char* path, const char* device, rondo_model** model) {
  return making<rondo_model>(model, [&] {
    require_given(path, "path");
    return std::make_unique<rondo_model>(Model(path, device_of(device)));
  });
}

rondo_status rondo_model_from_memory(const void* bytes, size_t size, const char* name,
                                     const char* device, rondo_model** model) {
  return making<rondo_model>(model, [&] {
    require_given(bytes, "bytes");
    const std::span content(static_cast<const std::byte*>(bytes), size);
    return std::make_unique<rondo_model>(
        Model(content, name ? name : "the model", device_of(device)));
  });
}

void rondo_model_free(rondo_model* model) { delete model; }

rondo_status rondo_model_get_info(const rondo_model* model, rondo_model_info* info, size_t size) {
  return guarded([&] {
    require_given(model, "model");
    require_given(info, "info");
    write_options(info, size, info_of(model->model));
  });
}

const char* rondo_model_class(const rondo_model* model, int32_t index) {
  if (!model || index < 0) return "";
  const ModelDescription& d = model->model.description();
  const bool is_ctc = d.config.task == Task::ctc;
  const std::vector<std::string>& names = is_ctc ? d.alphabet : d.classes;
  const int64_t at = is_ctc ? int64_t{index} - 1 : index;
  return at >= 0 && at < static_cast<int64_t>(names.size()) ? names[static_cast<size_t>(at)].c_str()
                                                            : "";
}

rondo_status rondo_state_new(const rondo_model* model, int32_t threads, rondo_state** state) {
  return making<rondo_state>(state, [&] {
    require_given(model, "model");
    const int used = std::min(cpu_threads(threads), usable_cpus());
    return std::make_unique<rondo_state>(Recognizer(model->model, used));
  });
}

void rondo_state_free(rondo_state* state) { delete state; }

rondo_status rondo_state_set_decoder(rondo_state* state, const rondo_decoder* decoder) {
  return guarded([&] {
    require_given(state, "state");
    state->recognizer.set_decoder(decoder ? std::optional(decoder->decoder) : std::nullopt);
  });
}

rondo_status rondo_state_trim(rondo_state* state) {
  return guarded([&] {
    require_given(state, "state");
    state->recognizer.trim();
  });
}

rondo_status rondo_state_set_progress(rondo_state* state, rondo_progress progress, void* user) {
  return guarded([&] {
    require_given(state, "state");
    state->progress = progress;
    state->progress_user = user;
  });
}

rondo_status rondo_run(rondo_state* state, const rondo_input* inputs, size_t count,
                       rondo_result** results) {
  if (results) std::fill_n(results, count, nullptr);
  return guarded([&] {
    require_given(state, "state");
    if (count == 0) return;
    require_given(inputs, "inputs");
    require_given(results, "results");
    std::vector<std::unique_ptr<rondo_result>> found = Run(*state, {inputs, count}).results();
    for (size_t i = 0; i < count; ++i) results[i] = found[i].release();
  });
}
