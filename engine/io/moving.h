// Files and directories put where they belong, also on file systems that cannot do all that a local
// disk does: object stores, network shares and the like, which cannot rename a directory, or a file
// onto another one, or sync a directory. (internal to engine/io)
//
// Nothing whole is lost at any time: a process that is killed, or a machine that is switched off,
// leaves what was there, or what was to be put there, whole and under a name that says so.
//
// Errors: InputError that names the path, the operation, the system's reason, and what is kept.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace rondo {

// Puts the temporary file, which is whole and synced, in the place of `path`, which may exist. At
// once by rename; where that is refused, in steps, and what `path` holds is meanwhile nothing or
// half of it, but then the temporary file and a mark beside it stay until it is whole. A file that
// another program has open may be held by it (Windows shares): that is waited for, for
// `busy_seconds`. On an error the temporary file is gone, unless it is the last whole one.
void replace_with(const std::filesystem::path& temporary, const std::filesystem::path& path);
inline constexpr int busy_seconds = 10;

// What a killed process left of that, or an error: puts the file in its place if the temporary one
// has its mark, and removes both. Also of a temporary file that never became whole.
void finish_replacing(const std::filesystem::path& temporary, const std::filesystem::path& path);

// Moves a directory to a name that is free: at once by rename, or returns false and has moved one
// file after the other, `last` after all others. Until then is_half_moved(to).
bool move_directory(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::string& last = "");
// Removes a directory that others may look at: by way of the name `aside`, or where it cannot be
// renamed, in place; what is left of it, should this process be killed, is_half_moved(). `first`,
// a file of it, goes first.
void remove_directory(const std::filesystem::path& directory, const std::filesystem::path& aside,
                      const std::string& first);
// It is marked as one that is being moved or removed file by file, or it is empty.
bool is_half_moved(const std::filesystem::path& directory);
// Takes the mark away, of a directory that is whole after all.
void declare_moved(const std::filesystem::path& directory);
// Removes a directory that is_half_moved().
void remove_half_moved(const std::filesystem::path& directory);

// Whether the temporary file has its mark: a file of that name and this.
bool is_whole(const std::filesystem::path& temporary);
inline constexpr std::string_view whole_suffix = ".whole";

// False: the file system does not sync files, or directories, and says so.
bool sync_if_possible(int fd, const std::filesystem::path& path);
bool sync_if_possible(const std::filesystem::path& directory);

}  // namespace rondo
