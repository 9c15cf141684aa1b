// What is in a tar archive, and where: its files are read in place.
//
// Format: POSIX ustar and pax (IEEE Std 1003.1), and GNU's long names and large sizes.
// Errors: InputError that names the archive and the byte: what is compressed or not an archive, cut
// off, or damaged (each header has a checksum). Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/audio/container_check.h"

namespace rondo::corpus {

struct TarMember {
  std::string name;
  uint64_t first = 0, size = 0;  // its bytes in the archive
};

// The regular files in an archive of `bytes` bytes, in its order. Folders, links and devices are
// left out.
std::vector<TarMember> tar_members(const data::ReadAt& read_at, uint64_t bytes,
                                   const std::string& name);
std::vector<TarMember> tar_members(const std::string& path);

}  // namespace rondo::corpus
