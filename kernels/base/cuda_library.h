// Finding NVIDIA's libraries at run time: the program starts without them.
#pragma once

#include <string>
#include <vector>

namespace rondo {

// Opens `file` ("libcudnn.so.9"), which stays open, and says which it was in *which; nullptr with
// all that was tried. Looks at the file that the environment variable `variable` names, and only
// there when it is set; else where the system looks for libraries, in CUDA_HOME, CUDA_PATH and the
// toolkit's usual folder, and in the nvidia packages of an active Python environment.
void* open_cuda_library(const std::string& file, const char* variable, std::string* which);

// A function of an open library; false when it is not there.
bool find_function(void* library, const char* name, void** function);

template <class Function>
bool find_function(void* library, const char* name, Function*& function) {
  void* found = nullptr;
  if (!find_function(library, name, &found)) return false;
  function = reinterpret_cast<Function*>(found);
  return true;
}

}  // namespace rondo
