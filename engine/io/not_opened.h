// What is said of a file that cannot be opened.
#pragma once

#include <filesystem>
#include <string>

namespace rondo {

// Throws InputError: "PATH: cannot be opened: ", the system's reason (`error` is its errno), and of
// a relative path that is not there where it was looked for.
[[noreturn]] void fail_to_open(const std::string& path, int error);

// " in /home/ann" for a relative path; nothing for an absolute one, and where nobody knows.
std::string looked_for(const std::filesystem::path& path);

}  // namespace rondo
