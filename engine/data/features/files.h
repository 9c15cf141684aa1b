// Small files, read and written whole. Errors: InputError that names the file and the cause.
#pragma once

#include <string>
#include <string_view>

namespace rondo::data {

// What is no regular file (a pipe, a device) may give this much, so that none is read for ever.
inline constexpr size_t most_piped_bytes = size_t{256} << 20;

std::string read_whole_file(const std::string& path);
// The same of a regular file alone: a pipe without a writer would be waited for.
std::string read_regular_file(const std::string& path);
// The first bytes of a regular file, at most `most`.
std::string read_file_start(const std::string& path, size_t most);
// That it is one, without waiting.
void require_regular_file(const std::string& path);
// Through a temporary file in the same folder, synced and renamed: a reader sees the old content
// or the new, never a part.
void write_whole_file(const std::string& path, std::string_view content);

}  // namespace rondo::data
