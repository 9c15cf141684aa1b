// Store: a small table shared by the ranks of a job, by which they find each other and agree on
// small things before, and beside, the transport: addresses, counters, "I am here".
//
//   * A key is 1 to 1024 bytes; a value is at most 1 MiB (and, all together, what the server
//     allows). Values are replaced by set; the last one wins. Keys are never
//     removed, unless one who serves the store says so (tcp_store.h).
//   * Nothing blocks beyond the deadline it was given.
//
// Thread safety: members may be called from any thread; calls on one object run one after the
// other, a waiting one included, so a thread that waits for long wants an object of its own.
// Errors: CommError: timeout (the deadline passed; the message names the key), peer_lost (whoever
// serves the store is gone). InputError: what was given cannot work (a wrong token, an unusable
// directory, a key or value that is too long).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/work.h"

namespace rondo {

class Store {
 public:
  static constexpr size_t max_key_bytes = 1024;
  static constexpr size_t max_value_bytes = size_t{1} << 20;

  virtual ~Store() = default;

  virtual void set(const std::string& key, std::string_view value, Deadline deadline) = 0;
  // Waits until the key has a value.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  // Does not wait.
  virtual std::optional<std::string> try_get(const std::string& key, Deadline deadline) = 0;
  // Adds to a number that starts at 0, atomically among all ranks, and returns the sum. The value
  // is kept as decimal text; adding to anything else is an InputError.
  virtual int64_t add(const std::string& key, int64_t delta, Deadline deadline) = 0;
  // Waits until all of these keys have values.
  virtual void wait(std::span<const std::string> keys, Deadline deadline) = 0;
};

// A directory that all ranks see (on one machine, or a shared file system with working rename and
// flock). Created when absent. Values are files, written whole and then renamed; waiting polls.
// Start every job, and every restart of it, with a directory of its own: old values count.
std::unique_ptr<Store> make_file_store(const std::string& directory);

// A store for one group of ranks or one attempt: every key gets "<prefix>/" in front. `store` must
// outlive it.
std::unique_ptr<Store> make_prefix_store(Store& store, const std::string& prefix);

}  // namespace rondo
