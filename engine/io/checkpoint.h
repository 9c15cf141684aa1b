// Checkpoints: numbered generations in a directory, each committed at once or not at all.
//
//   runs/digits/
//     checkpoint-000000041/   model.safetensors  state.json  manifest.json
//     checkpoint-000000042/
//     .writing-...            being written, or left by a killed writer (cleaned by the next one)
//     .lock                   held by the process that writes here
//
// Committing: the files are written and synced in `.writing-…`, then the manifest with every file's
// size and CRC-32C (and its own), then the directory is synced, renamed and its parent synced. A
// process killed, or a machine switched off, at any point leaves the earlier generations untouched
// and the new one either whole or absent. Old generations are removed only after that, by renaming
// them away first, so a half-removed one is never taken for a damaged one.
//
// Where the file system cannot rename directories, both are done file by file (engine/io/moving.h):
// a generation is committed by its manifest, which is moved last and removed first.
//
// Errors: InputError for everything the disk or a damaged file does. Thread safety: one thread per
// object; any number of processes may read while one writes.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/io/safetensors.h"
#include "engine/io/score.h"

namespace rondo {

// What a committed generation says about itself.
struct CheckpointInfo {
  uint64_t generation = 0;     // counts up by one per commit
  int64_t step = 0;            // the caller's step counter
  std::optional<Score> score;  // absent, or of a metric that is not finite: never among the best
};

struct CheckpointPolicy {
  int keep_last = 2;  // at least 1; 2 survives damage to the newest
  int keep_best = 0;  // so many more, of the best scores
  // How long the lock is waited for: a process that is about to end may have it.
  std::chrono::milliseconds patience{0};
};

// A committed generation whose files have all been read and compared with the manifest.
class Checkpoint {
 public:
  const CheckpointInfo& info() const { return info_; }
  const std::filesystem::path& directory() const { return directory_; }
  // Newer generations that had to be passed over, one sentence each, for the user to see.
  const std::vector<std::string>& warnings() const { return warnings_; }

  const std::vector<std::string>& files() const { return files_; }
  bool has(std::string_view file) const;
  // InputError if the checkpoint has no such file.
  std::filesystem::path path(std::string_view file) const;
  std::string text(std::string_view file) const;
  SafetensorsFile tensors(std::string_view file) const;

 private:
  friend Checkpoint open_checkpoint(const std::filesystem::path&);
  friend std::optional<Checkpoint> open_latest(const std::filesystem::path&);
  CheckpointInfo info_;
  std::filesystem::path directory_;
  std::vector<std::string> files_;
  std::vector<std::string> warnings_;
};

// One generation's directory, verified. InputError naming the file, and the expected and found size
// or checksum, if it is damaged.
Checkpoint open_checkpoint(const std::filesystem::path& generation_directory);

// The newest generation of `directory` that is whole; damaged newer ones become warnings. Nothing
// if the directory does not exist or has no generation; InputError if all of them are damaged.
std::optional<Checkpoint> open_latest(const std::filesystem::path& directory);

// Committed generations, oldest first, from their manifests alone (contents not verified; those
// with an unreadable manifest are left out).
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& directory);
// Those of `all` that have a score, of steps above `after_step`, the best first; of equals the
// newest first.
std::vector<CheckpointInfo> best_of(std::vector<CheckpointInfo> all, int64_t after_step);
std::filesystem::path checkpoint_path(const std::filesystem::path& directory, uint64_t generation);

class CheckpointStore;

// A file as it was written.
struct CheckpointFile {
  std::string name;
  uint64_t size = 0;
  uint32_t crc = 0;
};

// Files of a generation that is being written, for whoever will commit it: several processes may
// write into one directory, each its own files. After an exception it can only be destroyed;
// destroying it leaves the files.
class CheckpointPart {
 public:
  // `directory`: CheckpointWriter::directory(), as this process sees it.
  explicit CheckpointPart(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // File names are plain ("model.safetensors"), each used once.
  void add_tensors(const std::string& file, std::span<const TensorToWrite> tensors,
                   const StringMap& metadata = {});
  void add_text(const std::string& file, std::string_view content);

  const std::filesystem::path& directory() const { return directory_; }
  // Written and synced.
  const std::vector<CheckpointFile>& files() const { return files_; }

 private:
  friend class CheckpointWriter;
  FileWriter create(const std::string& file) const;
  void require_new(const std::string& file) const;
  void close(const std::string& file, FileWriter& writer);

  std::filesystem::path directory_;
  std::vector<CheckpointFile> files_;
};

// A generation being written. Destroyed without commit(): nothing remains of it.
class CheckpointWriter {
 public:
  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;
  ~CheckpointWriter();

  // Writes as CheckpointPart's does. After an exception the writer can only be destroyed.
  void add_tensors(const std::string& file, std::span<const TensorToWrite> tensors,
                   const StringMap& metadata = {});
  void add_text(const std::string& file, std::string_view content);

  // The folder where a CheckpointPart may write, until the writer is destroyed or commits; none may
  // be at work any more by then.
  const std::filesystem::path& directory() const { return part_.directory(); }
  // A file that a CheckpointPart has written belongs to the generation. InputError unless it is
  // there, of this size.
  void adopt(const CheckpointFile& file);

  // Makes the generation durable and visible, then removes what the policy no longer keeps. Returns
  // its directory. A failure to remove old generations comes after the commit and is a warning of
  // the store, not an exception.
  std::filesystem::path commit(int64_t step, std::optional<Score> score = std::nullopt);

 private:
  friend class CheckpointStore;
  CheckpointWriter(CheckpointStore& store, std::filesystem::path temporary);
  void require_open() const;

  CheckpointStore* store_;
  CheckpointPart part_;
};

// The writing end of a checkpoint directory. Creates it if needed, takes its lock (released by the
// system when the process dies) and cleans what killed writers left.
class CheckpointStore {
 public:
  // InputError if another process holds the lock.
  explicit CheckpointStore(std::filesystem::path directory, CheckpointPolicy policy = {});
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Scores up to this step are of another metric than those to come: none of them is among the
  // best.
  void set_best_after(int64_t step) { best_after_ = step; }

  // One writer at a time (RONDO_CHECK); it must not outlive the store.
  CheckpointWriter begin();

  const std::filesystem::path& directory() const { return directory_; }
  // What went wrong without losing anything (no lock on this file system, an old generation that
  // could not be removed); taking them clears the list.
  std::vector<std::string> take_warnings();

 private:
  friend class CheckpointWriter;
  void lock();
  void clean();
  void prune();
  bool is_whole(uint64_t generation);
  void warn_once(const std::string& what);

  std::filesystem::path directory_;
  CheckpointPolicy policy_;
  int64_t best_after_ = -1;
  int lock_fd_ = -1;
  bool writing_ = false;
  std::set<uint64_t> whole_;    // verified, or written by this store
  std::set<uint64_t> damaged_;  // do not count among those kept
  std::vector<std::string> warnings_;
  std::set<std::string> warned_of_;  // what the file system lacks
};

}  // namespace rondo
