// What Linux's control groups leave to this process: CPUs and memory.
//
// A limit may stand at the group of the process (/proc/self/cgroup says which) or at any group
// above it, and the least counts. Where the groups can be read, /proc/self/mountinfo says: version
// 2, version 1 with a tree per controller, or both beside each other. In a container the path of
// the group may lead out of what is mounted; then the limits at the root of the mount count, which
// are the container's.
//
// Thread safety: pure functions of the files. What is malformed or cannot be read is no limit.
#pragma once

#include <filesystem>
#include <optional>

namespace rondo {

// So many CPUs' time, a fraction too. `root` is where the files are looked for: "/proc/self/cgroup"
// is root/"proc/self/cgroup", and so on. Nothing: no limit.
std::optional<double> cgroup_cpus(const std::filesystem::path& root = "/");
// In bytes.
std::optional<double> cgroup_memory(const std::filesystem::path& root = "/");

}  // namespace rondo
