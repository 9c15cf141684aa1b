#include "engine/train/recognition/model.h"

#include <optional>

#include "engine/graph/parameters.h"
#include "engine/rank_model.h"
#include "engine/train/model/build_model.h"
#include "engine/train/model/model_file.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/error.h"

namespace rondo {

struct Model::State {
  State(const SafetensorsFile& opened, DeviceId on, std::vector<std::string> said);

  std::string file;
  std::vector<std::string> warnings;
  DeviceId device;
  ModelDescription description;
  Alphabet alphabet;
  Vocabulary vocabulary;
  std::shared_ptr<Parameters> weights;
};

Model::State::State(const SafetensorsFile& opened, DeviceId on, std::vector<std::string> said)
    : file(opened.name()),
      warnings(std::move(said)),
      device(on),
      description(ModelDescription::from_metadata(opened.metadata(), file)),
      alphabet(as_read(description.config.features, Alphabet(description.alphabet))),
      vocabulary(Vocabulary::of(alphabet)) {
  const ModelDescription& d = description;
  if (d.config.task == Task::ctc && alphabet.classes() != d.sizes.outputs) {
    fail_input(file, ": an alphabet of ", d.alphabet.size(), " symbols for ", d.sizes.outputs,
               " outputs");
  }
  require_finite(opened);
  weights =
      std::make_shared<Parameters>(inference_graph(d), require_device(device.kind, device.index),
                                   -1, Parameters::Gradients::absent);
  load_weights(opened, *weights);
}

Model::Model(const std::string& path, DeviceId device) {
  std::vector<std::string> warnings;
  const SafetensorsFile file = open_model(path, &warnings);
  state_ = std::make_shared<const State>(file, device, std::move(warnings));
}

Model::Model(std::span<const std::byte> bytes, const std::string& name, DeviceId device) {
  const SafetensorsFile file(bytes, name);
  require_checksum(file);
  state_ = std::make_shared<const State>(file, device, std::vector<std::string>());
}

const ModelDescription& Model::description() const { return state_->description; }
const std::string& Model::file() const { return state_->file; }
const std::vector<std::string>& Model::warnings() const { return state_->warnings; }
DeviceId Model::device() const { return state_->device; }
const Alphabet& Model::alphabet() const { return state_->alphabet; }
const Vocabulary& Model::vocabulary() const { return state_->vocabulary; }
const std::shared_ptr<Parameters>& Model::weights() const { return state_->weights; }

double Model::frame_seconds() const {
  const FeaturesConfig& f = description().config.features;
  const double step = f.type == FeatureType::image ? 1 : f.hop_ms / 1000.0;
  return step * static_cast<double>(subsampling_of(description().config.model));
}

}  // namespace rondo
