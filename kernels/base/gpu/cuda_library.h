// Finding NVIDIA's libraries at run time: the program starts without them.
#pragma once

#include <string>

namespace rondo {

// A library, opened if it is found; it stays open.
class CudaLibrary {
 public:
  // Opens `file` ("libcudnn.so.9"), which messages call `title` ("cuDNN 9"). Looks at the file that
  // the environment variable `variable` names, and only there when it is set; else where the system
  // looks for libraries, in CUDA_HOME, CUDA_PATH and the toolkit's usual folder, and in the nvidia
  // packages of an active Python environment.
  CudaLibrary(const std::string& title, const std::string& file, const char* variable);

  // One of its functions, which it must have; nullptr when it is not there.
  template <class Function>
  void find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(address_of(name));
  }

  // The library will not do, for this reason.
  void refuse(const std::string& why);

  // False, with the reason in *why, when it was not found, lacks a function, or was refused.
  bool usable(std::string* why = nullptr) const;

  const std::string& file() const { return file_; }

 private:
  void* address_of(const char* name);

  std::string title_, file_, why_;
  void* opened_ = nullptr;
};

}  // namespace rondo
