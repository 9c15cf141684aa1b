// Which files of a folder are wanted, by patterns as the shell has them (glob(7)): * and ? stand
// for characters of one name, [abc] for one of these, ** for names and the / between them.
//
// A pattern without a / is compared with the name of a file and with those of the folders that it
// is in; one with a / with its path below the folder that is listed, and with the paths of those
// folders. A file is wanted that one of `only` fits, where there are any, and none of `exclude`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::corpus {

struct FileChoice {
  std::vector<std::string> only, exclude;

  bool is_all() const { return only.empty() && exclude.empty(); }
  // `path`: below the folder, names with / between. Counts what is not wanted.
  bool takes(const std::string& path);
  // Those patterns that have fitted no file: by mistake, mostly.
  std::vector<std::string> unused() const;

  int64_t passed_over = 0;            // files that were not wanted
  std::vector<bool> has_fitted = {};  // of `only`, then of `exclude`
};

}  // namespace rondo::corpus
