#include "engine/io/descriptor.h"

#include <cerrno>
#include <system_error>

#include "kernels/base/error.h"

namespace rondo {

std::string looked_for(const std::filesystem::path& path) {
  std::error_code unknown;
  const std::filesystem::path here =
      path.is_absolute() ? std::filesystem::path() : std::filesystem::current_path(unknown);
  return here.empty() ? "" : " in " + here.string();
}

void fail_to_open(const std::string& path, int error) {
  fail_input(path, ": cannot be opened: ", std::generic_category().message(error),
             error == ENOENT ? looked_for(path) : std::string());
}

}  // namespace rondo
