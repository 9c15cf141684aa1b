#include "kernels/base/gpu/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

// <environment>/lib/python3.*/site-packages/nvidia/*/lib, where pip puts NVIDIA's libraries.
void add_python_folders(const std::string& root, const std::string& name,
                        std::vector<std::string>& files) {
  std::error_code ignored;
  for (const auto& python : fs::directory_iterator(fs::path(root) / "lib", ignored)) {
    const fs::path packages = python.path() / "site-packages" / "nvidia";
    for (const auto& package : fs::directory_iterator(packages, ignored)) {
      const fs::path file = package.path() / "lib" / name;
      if (fs::exists(file, ignored)) files.push_back(file.string());
    }
  }
}

std::vector<std::string> candidates(const std::string& name, const char* variable) {
  if (const std::string file = environment(variable); !file.empty()) return {file};
  std::vector<std::string> files = {name};
  for (const char* home : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::string root = environment(home);
    if (root.empty()) continue;
    files.push_back(root + "/lib64/" + name);
    files.push_back(root + "/lib/" + name);
  }
  files.push_back("/usr/local/cuda/lib64/" + name);
  for (const char* active : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string root = environment(active); !root.empty()) {
      add_python_folders(root, name, files);
    }
  }
  return files;
}

}  // namespace

CudaLibrary::CudaLibrary(const std::string& title, const std::string& file, const char* variable)
    : title_(title) {
  std::string tried;
  for (const std::string& candidate : candidates(file, variable)) {
    opened_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened_ != nullptr) {
      file_ = candidate;
      return;
    }
    tried += str(tried.empty() ? "" : ", ", candidate);
  }
  refuse(str(title, " was not found (tried ", tried, "); install it or set ", variable,
             " to its file"));
}

void* CudaLibrary::address_of(const char* name) {
  if (opened_ == nullptr) return nullptr;
  void* found = dlsym(opened_, name);
  if (found == nullptr) refuse(str(file_, " lacks ", name, ", a function of ", title_));
  return found;
}

void CudaLibrary::refuse(const std::string& why) {
  if (why_.empty()) why_ = why;
}

bool CudaLibrary::usable(std::string* why) const {
  if (!why_.empty() && why != nullptr) *why = why_;
  return why_.empty();
}

}  // namespace rondo
