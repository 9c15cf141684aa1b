#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/io/checkpoint.h"
#include "engine/io/checkpoint_manifest.h"
#include "engine/io/moving.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr const char* writing_prefix = ".writing-";
constexpr const char* removing_prefix = ".removing-";
constexpr const char* lock_file = ".lock";

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

}  // namespace

void CheckpointPart::require_new(const std::string& file) const {
  RONDO_CHECK(valid_checkpoint_file(file), "'", file, "' is not a plain file name");
  for (const CheckpointFile& f : files_) {
    RONDO_CHECK(f.name != file, "'", file, "' is added twice");
  }
}

FileWriter CheckpointPart::create(const std::string& file) const {
  require_new(file);
  return FileWriter(directory_ / file);
}

void CheckpointPart::close(const std::string& file, FileWriter& writer) {
  writer.close();
  files_.push_back({file, writer.size(), writer.crc()});
}

void CheckpointPart::add_tensors(const std::string& file, std::span<const TensorToWrite> tensors,
                                 const StringMap& metadata) {
  FileWriter writer = create(file);
  write_safetensors(writer, tensors, metadata);
  close(file, writer);
}

void CheckpointPart::add_text(const std::string& file, std::string_view content) {
  FileWriter writer = create(file);
  writer.write(content);
  close(file, writer);
}

CheckpointWriter::CheckpointWriter(CheckpointStore& store, fs::path temporary)
    : store_(&store), part_(std::move(temporary)) {}

CheckpointWriter::CheckpointWriter(CheckpointWriter&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)), part_(std::move(other.part_)) {}

CheckpointWriter::~CheckpointWriter() {
  if (!store_) return;
  store_->writing_ = false;
  try {
    remove_tree(directory());
  } catch (const std::exception& error) {
    // The next writer tries again; nothing is lost.
    store_->warnings_.emplace_back(error.what());
  }
}

void CheckpointWriter::require_open() const {
  RONDO_CHECK(store_, "the checkpoint is committed already");
}

void CheckpointWriter::add_tensors(const std::string& file, std::span<const TensorToWrite> tensors,
                                   const StringMap& metadata) {
  require_open();
  part_.add_tensors(file, tensors, metadata);
}

void CheckpointWriter::add_text(const std::string& file, std::string_view content) {
  require_open();
  part_.add_text(file, content);
}

void CheckpointWriter::adopt(const CheckpointFile& file) {
  require_open();
  part_.require_new(file.name);
  const fs::path path = directory() / file.name;
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) {
    fail_input("checkpoint file '", path.string(), "', which another rank has written, is not ",
               "there (", error.message(), "): do all ranks see the same directory?");
  }
  if (size != file.size) {
    fail_input("checkpoint file '", path.string(), "' is ", size, " bytes, the rank that wrote it ",
               "says ", file.size, ": do all ranks see the same directory?");
  }
  part_.files_.push_back(file);
}

fs::path CheckpointWriter::commit(int64_t step, std::optional<Score> score) {
  require_open();
  const std::vector<uint64_t> existing = checkpoint_generations(store_->directory_);
  CheckpointManifest manifest;
  manifest.info = {existing.empty() ? 1 : existing.back() + 1, step, score};
  manifest.files = part_.files();
  {
    FileWriter file(directory() / checkpoint_manifest_file);
    file.write(format_checkpoint_manifest(manifest));
    file.close();
  }
  sync_directory(directory());
  const fs::path committed = checkpoint_path(store_->directory_, manifest.info.generation);
  if (!move_directory(directory(), committed, checkpoint_manifest_file)) {
    store_->warn_once(
        "its file system cannot rename directories: a checkpoint is moved into its "
        "place file by file, and counts once its manifest is there");
  }
  CheckpointStore* store = std::exchange(store_, nullptr);
  store->writing_ = false;
  sync_directory(store->directory_);
  store->whole_.insert(manifest.info.generation);
  try {
    store->prune();
  } catch (const InputError& error) {
    store->warnings_.push_back(str("old checkpoints could not be removed: ", error.what()));
  }
  return committed;
}

CheckpointStore::CheckpointStore(fs::path directory, CheckpointPolicy policy)
    : directory_(std::move(directory)), policy_(policy) {
  RONDO_CHECK(policy.keep_last >= 1 && policy.keep_best >= 0, "keep_last ", policy.keep_last,
              ", keep_best ", policy.keep_best);
  make_directories(directory_);
  lock();
  try {
    if (!sync_if_possible(lock_fd_, directory_ / lock_file)) {
      warn_once(
          "its file system does not sync files: after a power failure checkpoints may be "
          "damaged");
    } else if (!sync_if_possible(directory_)) {
      warn_once(
          "its file system does not sync directories: after a power failure the last "
          "checkpoints may be missing");
    }
    clean();
  } catch (...) {
    ::close(lock_fd_);
    throw;
  }
}

CheckpointStore::~CheckpointStore() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

void CheckpointStore::lock() {
  const fs::path path = directory_ / lock_file;
  lock_fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_fd_ < 0) fail_input(path.string(), ": cannot be created: ", reason(errno));
  const auto give_up = std::chrono::steady_clock::now() + policy_.patience;
  int rc;
  while ((rc = ::flock(lock_fd_, LOCK_EX | LOCK_NB)) != 0) {
    const bool waits = errno == EWOULDBLOCK && std::chrono::steady_clock::now() < give_up;
    if (!waits && errno != EINTR) break;
    if (waits) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (rc == 0) return;
  const int error = errno;
  if (error == EWOULDBLOCK) {
    ::close(std::exchange(lock_fd_, -1));
    fail_input("the checkpoint directory '", directory_.string(),
               "' is being written by another process; choose another one or stop that process");
  }
  warn_once(str("it cannot be locked (", reason(error), "): do not let two processes write there"));
}

void CheckpointStore::clean() {
  std::error_code error;
  std::vector<fs::path> leftovers;
  fs::directory_iterator it(directory_, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(writing_prefix) || name.starts_with(removing_prefix) ||
        (generation_of(name) && is_half_moved(it->path()))) {
      leftovers.push_back(it->path());
    }
  }
  if (error) fail_input(directory_.string(), ": cannot be listed: ", error.message());
  for (const fs::path& path : leftovers) {
    try {
      const bool was_moved = path.filename().string().front() != '.';
      if (was_moved && !is_uncommitted(path)) {
        declare_moved(path);
      } else {
        was_moved ? remove_half_moved(path) : remove_tree(path);
      }
    } catch (const InputError& e) {
      // New writers use other names, so a leftover wastes space but blocks nothing.
      warnings_.push_back(str("a leftover of an earlier run stays: ", e.what()));
    }
  }
}

CheckpointWriter CheckpointStore::begin() {
  RONDO_CHECK(!writing_, "a checkpoint is being written already");
  clean();
  const std::string prefix = writing_prefix + std::to_string(::getpid());
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const fs::path temporary = directory_ / (prefix + "-" + std::to_string(attempt));
    if (::mkdir(temporary.c_str(), 0777) == 0) {
      writing_ = true;
      return CheckpointWriter(*this, temporary);
    }
    if (errno != EEXIST) {
      fail_input(temporary.string(), ": cannot be created: ", reason(errno));
    }
  }
  fail_input("cannot save in '", directory_.string(), "': it is full of leftovers named '", prefix,
             "-…' that cannot be removed");
}

bool CheckpointStore::is_whole(uint64_t generation) {
  if (whole_.contains(generation)) return true;
  if (damaged_.contains(generation)) return false;
  try {
    open_checkpoint(checkpoint_path(directory_, generation));
    whole_.insert(generation);
    return true;
  } catch (const InputError&) {
    // Not this store's to report: open_latest names the damage to whoever reads it.
    damaged_.insert(generation);
    return false;
  }
}

// Only generations known to be whole count as kept: a damaged one must never push out a good one.
void CheckpointStore::prune() {
  const std::vector<uint64_t> generations = checkpoint_generations(directory_);
  std::vector<uint64_t> older;
  int kept = 0;
  for (auto g = generations.rbegin(); g != generations.rend(); ++g) {
    if (kept >= policy_.keep_last) {
      older.push_back(*g);
    } else if (is_whole(*g)) {
      ++kept;
    }
  }
  std::vector<CheckpointInfo> whole;
  for (uint64_t g : generations) {
    if (policy_.keep_best == 0 || !is_whole(g)) continue;
    whole.push_back(read_checkpoint_manifest(checkpoint_path(directory_, g)).info);
  }
  std::vector<CheckpointInfo> best = best_of(std::move(whole), best_after_);
  if (best.size() > static_cast<size_t>(policy_.keep_best))
    best.resize(static_cast<size_t>(policy_.keep_best));
  for (uint64_t g : older) {
    if (std::any_of(best.begin(), best.end(), [&](const auto& b) { return b.generation == g; }))
      continue;
    remove_directory(checkpoint_path(directory_, g),
                     directory_ / (removing_prefix + std::to_string(g)), checkpoint_manifest_file);
  }
}

void CheckpointStore::warn_once(const std::string& what) {
  if (!warned_of_.insert(what).second) return;
  warnings_.push_back(str("the checkpoint directory '", directory_.string(), "': ", what));
}

std::vector<std::string> CheckpointStore::take_warnings() { return std::exchange(warnings_, {}); }

}  // namespace rondo
