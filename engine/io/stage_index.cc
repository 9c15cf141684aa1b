#include "engine/io/stage_index.h"

#include <algorithm>
#include <set>

#include "engine/io/json.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr const char* format_name = "rondo stages 1";
constexpr const char* whole_file = "model.safetensors";

void require_consistent(const StageIndex& index, const std::string& where) {
  std::set<std::string> placed, files;
  for (const StageIndex::Stage& stage : index.optimizer) {
    if (stage.files.empty()) fail_input(where, ": a stage of the optimizer has no files");
    for (const std::string& file : stage.files) {
      if (!files.insert(file).second) fail_input(where, ": lists '", file, "' twice");
    }
    for (const auto& [name, offset] : stage.offsets) {
      if (offset < 0 || offset >= stage.elements) {
        fail_input(where, ": tensor '", name, "' begins at element ", offset, " of ",
                   stage.elements);
      }
      if (!index.tensors.contains(name)) {
        fail_input(where, ": '", name, "' has a state of the optimizer, but no weights");
      }
      if (!placed.insert(name).second) {
        fail_input(where, ": two stages have the optimizer's state of '", name, "'");
      }
    }
  }
  for (const auto& [name, file] : index.tensors) {
    if (!placed.contains(name)) {
      fail_input(where, ": no stage has the optimizer's state of '", name, "'");
    }
  }
}

}  // namespace

std::string StageIndex::to_json() const {
  Json stages = Json::array();
  for (const Stage& s : optimizer) {
    stages.push_back(
        Json::object({{"files", s.files}, {"elements", s.elements}, {"offsets", s.offsets}}));
  }
  return Json::object({{"format", format_name},
                       {"model", model},
                       {"tensors", tensors},
                       {"optimizer", std::move(stages)}})
             .dump(2) +
         "\n";
}

StageIndex StageIndex::from_json(std::string_view text, const std::string& where) {
  StageIndex index;
  try {
    const Json root = Json::parse(text);
    if (!root.at("format").is(format_name)) {
      fail_input(where, ": the format is ", root.at("format").dump(), ", expected \"", format_name,
                 "\"");
    }
    index.model = root.at("model").get<StringMap>();
    index.tensors = root.at("tensors").get<std::map<std::string, std::string>>();
    for (const Json& stage : root.at("optimizer").elements()) {
      index.optimizer.push_back({stage.at("files").get<std::vector<std::string>>(),
                                 stage.at("elements").get<int64_t>(),
                                 stage.at("offsets").get<std::map<std::string, int64_t>>()});
    }
  } catch (const JsonError& e) {
    fail_input(where, ": is not the index of a checkpoint's stages (", e.what(), ")");
  }
  require_consistent(index, where);
  return index;
}

SafetensorsFile open_weights(const Checkpoint& checkpoint) {
  const std::string where = (checkpoint.directory() / stage_index_file).string();
  if (!checkpoint.has(stage_index_file)) {
    const auto& files = checkpoint.files();
    const bool staged = std::any_of(files.begin(), files.end(), [](const std::string& file) {
      return file.starts_with("model-stage-");
    });
    if (staged) {
      fail_input("checkpoint '", checkpoint.directory().string(), "' has files of stages, but no ",
                 stage_index_file, ", which says what is in them");
    }
    return checkpoint.tensors(whole_file);
  }
  const StageIndex index = StageIndex::from_json(checkpoint.text(stage_index_file), where);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.tensors) names.insert(file);
  std::vector<SafetensorsFile> files;
  for (const std::string& name : names) {
    files.push_back(checkpoint.tensors(name));
    for (const StoredTensor& t : files.back().tensors()) {
      if (!index.tensors.contains(t.name)) {
        fail_input(where, ": does not know tensor '", t.name, "' of '", name, "'");
      }
    }
    for (const auto& [tensor, file] : index.tensors) {
      if (file == name) files.back().at(tensor);
    }
  }
  return SafetensorsFile::join(std::move(files), checkpoint.directory().string(), index.model);
}

}  // namespace rondo
