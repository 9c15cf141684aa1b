#include "tools/command_line/path_words.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "engine/data/features/endings.h"
#include "engine/io/checkpoint.h"
#include "engine/page/page_file.h"
#include "kernels/base/error.h"
#include "tools/command_line/command_line.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> manifests_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (has_ending(entry.path().string(), ".jsonl") && entry.path().filename() != "log.jsonl") {
      names.push_back(entry.path().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

PathKind kind_of_folder(const std::string& path) {
  if (fs::exists(fs::path(path) / "model.safetensors") || !list_checkpoints(path).empty()) {
    return PathKind::run;
  }
  return manifests_of(path).empty() ? PathKind::folder : PathKind::corpus;
}

PathKind kind_of_file(const std::string& path) {
  char start[9] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(start, sizeof start);
  const std::string text(start, static_cast<size_t>(file.gcount()));
  for (const char* magic : {"RIFF", "fLaC", "OggS"}) {
    if (text.starts_with(magic)) return PathKind::recording;
  }
  if (text.starts_with("{") || has_ending(path, ".jsonl")) return PathKind::manifest;
  // The length of a JSON header in eight bytes, then the header.
  if (has_ending(path, ".safetensors") || (text.size() == 9 && text[8] == '{')) {
    return PathKind::model;
  }
  for (const char* magic : {"\x89PNG", "\xff\xd8\xff", "II*", "MM", "P5", "P6"}) {
    if (text.starts_with(magic)) return PathKind::image;
  }
  return is_page_file(path) ? PathKind::page : PathKind::unknown;
}

// "a manifest", for what can be told.
const char* words_for(PathKind kind) {
  switch (kind) {
    case PathKind::unknown:
      return "something else";
    case PathKind::run:
      return "a training run";
    case PathKind::corpus:
      return "a folder with manifests";
    case PathKind::folder:
      return "a folder";
    case PathKind::model:
      return "a model";
    case PathKind::manifest:
      return "a manifest";
    case PathKind::recording:
      return "a recording";
    case PathKind::image:
      return "an image";
    case PathKind::page:
      return "a page (PAGE-XML or ALTO)";
  }
  return "";
}

bool is_model(PathKind kind) { return kind == PathKind::run || kind == PathKind::model; }

// A folder may be a generation of a run.
bool may_be_model(PathKind kind) {
  return kind == PathKind::unknown || kind == PathKind::folder || is_model(kind);
}

[[noreturn]] void refuse(const std::string& path, PathKind kind, const std::string& expected) {
  fail_input("'", path, "' is ", words_for(kind), ", expected ", expected);
}

}  // namespace

PathKind kind_of_path(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) return kind_of_folder(path);
  return fs::is_regular_file(status) ? kind_of_file(path) : PathKind::unknown;
}

void require_configuration(const std::string& path) {
  const PathKind kind = kind_of_path(path);
  const std::string expected = "a configuration (TOML); ";
  switch (kind) {
    case PathKind::unknown:
      return;
    case PathKind::run:
      refuse(path, kind,
             expected + "--resume " + path + " continues that run, " +
                 (fs::path(path) / "config.toml").string() + " has its settings");
    case PathKind::corpus:
    case PathKind::folder:
      refuse(path, kind, expected + "a prepared corpus is named by data=" + path);
    case PathKind::model:
      refuse(path, kind, expected + "--init-from " + path + " begins with its weights");
    case PathKind::manifest:
      refuse(path, kind, expected + "manifests are named by data.train=" + path);
    case PathKind::recording:
      refuse(path, kind, expected + "recordings are named by a manifest (docs/data.md)");
    case PathKind::image:
    case PathKind::page:
      refuse(path, kind, expected + "images are named by a manifest (docs/data.md)");
  }
}

void require_manifest(const std::string& path) {
  const PathKind kind = kind_of_path(path);
  const std::string expected = "a manifest";
  switch (kind) {
    case PathKind::unknown:
    case PathKind::manifest:
      return;
    case PathKind::corpus: {
      std::string all;
      for (const std::string& name : manifests_of(path)) all += (all.empty() ? "" : ", ") + name;
      refuse(path, kind, expected + "; there are " + all);
    }
    case PathKind::recording:
      refuse(path, kind, expected + "; 'rondo transcribe' takes recordings");
    case PathKind::image:
      refuse(path, kind, expected + "; 'rondo transcribe' takes images");
    case PathKind::page:
    case PathKind::folder:
      refuse(path, kind,
             expected + "; 'rondo prepare' writes manifests of recordings, lines and pages");
    case PathKind::run:
    case PathKind::model:
      refuse(path, kind, expected);
  }
}

void require_model(const std::string& path) {
  const PathKind kind = kind_of_path(path);
  if (!may_be_model(kind)) refuse(path, kind, "a model");
}

void require_model_first(const std::string& command, const std::string& model,
                         const std::string& other) {
  const PathKind kind = kind_of_path(model);
  if (!may_be_model(kind) && is_model(kind_of_path(other))) {
    throw WrongUsage(str("'", model, "' is ", words_for(kind), " and '", other,
                         "' a model, which comes first: ", command, " ", other, " ", model));
  }
  require_model(model);
}

}  // namespace rondo
