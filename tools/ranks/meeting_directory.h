// Where ranks on one machine find each other without an address or a secret: a directory that only
// their user can enter.
//
// Rank 0 makes one for itself alone, and says under the job's name which; the others wait for that,
// and believe no process that is gone: what a killed job of the same name has left behind, also an
// earlier attempt of this one, is never taken for this one's.
//
// Errors: InputError for what the file system refuses; CommError (timeout) where rank 0 does not
// come. Thread safety: one thread at a time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "comm/work.h"
#include "engine/io/signals.h"

namespace rondo {

class MeetingDirectory {
 public:
  // `name`: of the job and the attempt, letters, digits, "-" and "_".
  MeetingDirectory(const std::string& name, bool is_rank_zero, Deadline deadline);
  // Rank 0 removes it, as a signal does that ends its process.
  ~MeetingDirectory();
  MeetingDirectory(const MeetingDirectory&) = delete;
  MeetingDirectory& operator=(const MeetingDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path sign_, path_;
  bool is_rank_zero_;
  std::optional<RemovedIfStopped> unfinished_;
};

}  // namespace rondo
