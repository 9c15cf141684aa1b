#include "engine/data/length_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "engine/data/features/files.h"
#include "engine/io/crc32c.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"
#include "kernels/base/hash.h"

namespace rondo {
namespace {

constexpr std::string_view magic = "rondo lengths 1\n";

struct Stamp {
  int64_t size = 0, modified_ns = 0;
};

// Nothing for what is no regular file.
std::optional<Stamp> stamp_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return Stamp{status.st_size,
               int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + int64_t{status.st_mtim.tv_nsec}};
}

template <class T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

LengthCache::LengthCache(std::string file, const AudioReader& reader)
    : file_(std::move(file)), reader_(reader) {
  static_assert(sizeof(Record) == 40, "records are written as they are in memory");
  if (stamp_of(file_)) load();
}

void LengthCache::load() {
  const std::string bytes = data::read_regular_file(file_);
  uint64_t count = 0;
  uint32_t checksum = 0;
  const size_t least = magic.size() + sizeof count + sizeof checksum;
  if (bytes.size() < least || !bytes.starts_with(magic)) return;
  std::memcpy(&count, bytes.data() + magic.size(), sizeof count);
  const size_t content = bytes.size() - sizeof checksum;
  std::memcpy(&checksum, bytes.data() + content, sizeof checksum);
  if (count != (bytes.size() - least) / sizeof(Record)) return;
  if (crc32c(std::string_view(bytes).substr(0, content)) != checksum) return;
  kept_.resize(count);
  copy_bytes(kept_.data(), bytes.data() + magic.size() + sizeof count, count * sizeof(Record));
}

AudioInfo LengthCache::info(const FilePart& file) const {
  const std::optional<Stamp> stamp = stamp_of(file.path);
  const uint64_t key = fnv1a(file.name());
  if (stamp) {
    const auto at = std::lower_bound(kept_.begin(), kept_.end(), key,
                                     [](const Record& r, uint64_t k) { return r.key < k; });
    if (at != kept_.end() && at->key == key && at->size == stamp->size &&
        at->modified_ns == stamp->modified_ns) {
      return {at->sample_rate, at->channels, at->frames};
    }
  }
  const AudioInfo info = reader_.info(file);
  if (stamp) {
    const std::lock_guard lock(mutex_);
    asked_.push_back(
        {key, stamp->size, stamp->modified_ns, info.frames, info.sample_rate, info.channels});
  }
  return info;
}

int64_t LengthCache::asked() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(asked_.size());
}

void LengthCache::save() const {
  std::vector<Record> all;
  {
    const std::lock_guard lock(mutex_);
    all = asked_;
  }
  // What was asked for anew goes before what was kept.
  all.insert(all.end(), kept_.begin(), kept_.end());
  const auto by_key = [](const Record& a, const Record& b) { return a.key < b.key; };
  std::stable_sort(all.begin(), all.end(), by_key);
  all.erase(std::unique(all.begin(), all.end(),
                        [](const Record& a, const Record& b) { return a.key == b.key; }),
            all.end());
  std::string bytes(magic);
  append(bytes, uint64_t{all.size()});
  bytes.append(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(Record));
  append(bytes, crc32c(std::string_view(bytes)));
  data::write_whole_file(file_, bytes);
}

}  // namespace rondo
