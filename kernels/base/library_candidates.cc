#include "kernels/base/library_candidates.h"

#include <cstdlib>
#include <filesystem>

namespace rondo {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

// <environment>/lib/python3.*/site-packages/nvidia/*/lib, where pip puts NVIDIA's libraries.
void add_python_folders(const std::string& root, const std::string& file,
                        std::vector<std::string>& files) {
  std::error_code ignored;
  for (const auto& python : fs::directory_iterator(fs::path(root) / "lib", ignored)) {
    const fs::path packages = python.path() / "site-packages" / "nvidia";
    for (const auto& package : fs::directory_iterator(packages, ignored)) {
      const fs::path found = package.path() / "lib" / file;
      if (fs::exists(found, ignored)) files.push_back(found.string());
    }
  }
}

}  // namespace

std::vector<std::string> library_candidates(const std::string& file, const char* chosen) {
  if (const std::string path = environment(chosen); !path.empty()) return {path};
  std::vector<std::string> files = {file};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const std::string root = environment(variable); !root.empty()) {
      files.push_back(root + "/lib64/" + file);
    }
  }
  files.push_back("/usr/local/cuda/lib64/" + file);
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string root = environment(variable); !root.empty()) {
      add_python_folders(root, file, files);
    }
  }
  return files;
}

}  // namespace rondo
