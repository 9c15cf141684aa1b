// What the paths of a command line are, for sentences about one that is in the wrong place. Only
// names and first bytes are looked at; a path that is not there, or that cannot be told, passes:
// who opens it says what is wrong.
#pragma once

#include <cstdint>
#include <string>

namespace rondo {

enum class PathKind : uint8_t {
  unknown,  // or not there
  run,      // a directory with a model or with checkpoints
  corpus,   // a directory with manifests
  folder,
  model,  // a safetensors file
  manifest,
  recording,
  image,
  page,  // PAGE-XML or ALTO
};

PathKind kind_of_path(const std::string& path);

// Each throws InputError where the path is something else than is wanted, with what was probably
// meant, and WrongUsage for two that have changed places.
void require_configuration(const std::string& path);
void require_manifest(const std::string& path);
void require_model(const std::string& path);
// `command`: "rondo eval"; `other`: what follows the model.
void require_model_first(const std::string& command, const std::string& model,
                         const std::string& other);

}  // namespace rondo
