#include "engine/io/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// The resolved path of a file that need not exist yet.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path), error);
  return error ? path : whole;
}

}  // namespace

OutputFile::OutputFile(fs::path path, std::string named_by)
    : path_(std::move(path)), named_by_(std::move(named_by)) {
  struct stat st {};
  if (path_.empty() || ::stat(path_.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return;
  is_there_ = true;
  device_ = st.st_dev;
  inode_ = st.st_ino;
}

void OutputFile::require_not(const fs::path& input, std::string_view kind) const {
  struct stat st {};
  if (!is_there_ || input.empty() || ::stat(input.c_str(), &st) != 0) return;
  if (st.st_dev != device_ || st.st_ino != inode_) return;
  fail_input(named_by_, ": '", path_.string(), "' would overwrite ", kind,
             input == path_ ? "" : str(" '", input.string(), "'"),
             ", which is read; expected another file");
}

void OutputFile::require_not(const OutputFile& other) const {
  if (path_.empty() || other.path_.empty()) return;
  const bool same = is_there_ && other.is_there_
                        ? device_ == other.device_ && inode_ == other.inode_
                        : resolved(path_) == resolved(other.path_);
  // What is no regular file, a terminal say, takes both.
  std::error_code ignored;
  if (!same || (!is_there_ && fs::exists(path_, ignored))) return;
  fail_input(named_by_, " and ", other.named_by_, " would both be written to '", path_.string(),
             "'; expected two files");
}

void require_folder_of(const std::filesystem::path& path) {
  if (path.empty()) return;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) fail_input(path.string(), ": is a directory, not a file");
  const fs::path parent = path.parent_path(), folder = parent.empty() ? "." : parent;
  if (!fs::is_directory(folder, ignored)) {
    fail_input(path.string(), ": ", folder.string(), " is not a directory");
  }
  // Devices and pipes are written to as they are; files are made beside and renamed, where a link
  // leads to.
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  const fs::path place = resolved(path).parent_path();
  if (::access(place.c_str(), W_OK | X_OK) == 0) return;
  const int error = errno;
  fail_input(path.string(), ": cannot be created in ", place.string(), ": ", std::strerror(error));
}

}  // namespace rondo
