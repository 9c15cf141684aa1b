// Small files, read and written whole. Errors: InputError that names the file and the cause.
#pragma once

#include <string>
#include <string_view>

namespace rondo::data {

std::string read_whole_file(const std::string& path);
// The first bytes of a file, at most `most`.
std::string read_file_start(const std::string& path, size_t most);
// Through a temporary file in the same folder, synced and renamed: a reader sees the old content
// or the new, never a part.
void write_whole_file(const std::string& path, std::string_view content);

}  // namespace rondo::data
