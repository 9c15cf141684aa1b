#include "engine/train/model/model_json.h"

#include <cmath>

#include "engine/config/metric.h"
#include "engine/train/model/build_model.h"

namespace rondo {

Json model_json(const std::string& file, const ModelDescription& d, int64_t weights,
                const std::string& version) {
  const FeaturesConfig& f = d.config.features;
  const int64_t subsampling = subsampling_of(d.config.model);
  const Json settings = Json::parse(to_json(d.config));
  Json features = Json::object({{"type", settings.at("features").at("type")},
                                {"columns", d.sizes.features},
                                {"normalisation", settings.at("features").at("cmvn")}});
  const bool is_image = f.type == FeatureType::image;
  if (is_image) {
    for (const char* key :
         {"height", "padding", "ink", "contrast", "scaling", "deskew", "centre", "direction"}) {
      features[key] = settings.at("features").at(key);
    }
  } else if (f.type != FeatureType::ready) {
    features["rate"] = f.rate;
  }
  Json j = Json::object({{"file", file},
                         {"rondo", version},
                         {"task", settings.at("task")},
                         {"weights", weights},
                         {"features", features},
                         {"subsampling", subsampling},
                         {"outputs", d.sizes.outputs}});
  if (!is_image) {
    j["features"]["hop_ms"] = f.hop_ms;
    j["frame_seconds"] = f.hop_ms / 1000 * static_cast<double>(subsampling);
  }
  if (d.config.task == Task::ctc) {
    j["blank"] = 0;
    j["alphabet"] = d.alphabet;  // of labels 1, 2, ...
  }
  if (!d.classes.empty()) j["classes"] = d.classes;  // of outputs 0, 1, ...
  if (!d.origin.version.empty()) {
    Json trained = Json::object({{"rondo", d.origin.version}, {"updates", d.origin.updates}});
    if (std::isfinite(d.origin.metric)) {
      trained["dev"] = Json::object({{name_of(d.origin.chosen_by), d.origin.metric}});
    }
    j["trained"] = trained;
  }
  j["settings"] = settings;
  return j;
}

}  // namespace rondo
