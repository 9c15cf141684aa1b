// Where one of NVIDIA's shared libraries may be found when the program runs.
#pragma once

#include <string>
#include <vector>

namespace rondo {

// Names for dlopen, best first. The file that the environment variable `chosen` names, and no
// other, when it is set; otherwise `file` as the system finds it, in CUDA_HOME, CUDA_PATH and the
// toolkit's usual folder, and in the nvidia packages of an active Python environment.
std::vector<std::string> library_candidates(const std::string& file, const char* chosen);

}  // namespace rondo
