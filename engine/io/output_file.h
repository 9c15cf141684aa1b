// A file that is going to be written over, and what it must not be.
//
//   const OutputFile hypotheses(path, "--hypotheses");
//   hypotheses.require_not(manifest, "the manifest");
//
// Only regular files are lost by being written: a pipe or /dev/null is never refused. Files are
// compared as the file system knows them, so that links and other spellings of a path count.
// Thread safety: const members may be called at once. Errors: InputError.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace rondo {

class OutputFile {
 public:
  // `named_by`: the option or setting, for messages. An empty path is no file, and never refused.
  OutputFile(std::filesystem::path path, std::string named_by);

  // Throws if this is the file `input`, which `kind` describes ("the manifest"). Costs nothing
  // while the output does not exist.
  void require_not(const std::filesystem::path& input, std::string_view kind) const;
  // Throws if both would be written to one file.
  void require_not(const OutputFile& other) const;

 private:
  std::filesystem::path path_;
  std::string named_by_;
  bool is_there_ = false;  // as a regular file
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Throws if `path` is a directory, or the one in which it is to be made is none or may not be
// written in, which should show before the work whose result it is. An empty path is no file.
void require_folder_of(const std::filesystem::path& path);

}  // namespace rondo
