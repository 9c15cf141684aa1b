#include "engine/train/model/shared_lengths.h"

#include "engine/data/length_cache.h"
#include "engine/io/json.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "kernels/base/hash.h"

namespace rondo {

void SharedLengths::look_at(const Manifest& manifest, const Ranks& ranks, int threads) {
  const LengthCache kept(manifest.path + ".lengths", reader_);
  std::vector<const ManifestEntry*> mine;
  for (const ManifestEntry& e : manifest.entries) {
    if (e.kind != InputKind::recording) continue;
    const uint64_t key = fnv1a(str(e.path_as_written, '\n', e.first_byte));
    const auto number = keys_.size();
    if (!keys_.emplace(e.file().name(), key).second) continue;
    if (number % static_cast<size_t>(ranks.size()) == static_cast<size_t>(ranks.rank()))
      mine.push_back(&e);
  }
  std::vector<Found> found(mine.size());
  ThreadPool pool(threads);
  pool.for_each(static_cast<int64_t>(mine.size()), [&](int64_t i) {
    const auto n = static_cast<size_t>(i);
    try {
      found[n].info = kept.info(mine[n]->file());
    } catch (const InputError& e) {
      found[n].error = e.what();
    }
  });
  for (size_t n = 0; n < mine.size(); ++n) {
    found_[keys_.at(mine[n]->file().name())] = std::move(found[n]);
  }
}

void SharedLengths::exchange(const Ranks& ranks) {
  Json mine = Json::array();
  for (const auto& [key, f] : found_) {
    mine.push_back(Json::array({key, f.info.sample_rate, f.info.channels, f.info.frames, f.error}));
  }
  Json all = Json::array();
  for (std::string& text : ranks.gather(mine.dump_replacing())) all.push_back(std::move(text));
  const Json parts = Json::parse(ranks.broadcast(all.dump_replacing()));
  for (const Json& part : parts.elements()) {
    const Json theirs = Json::parse(part.get<std::string>());
    for (const Json& f : theirs.elements()) {
      found_[f.at(0).get<uint64_t>()] = {
          {f.at(1).get<int32_t>(), f.at(2).get<int32_t>(), f.at(3).get<int64_t>()},
          f.at(4).get<std::string>()};
    }
  }
}

AudioInfo SharedLengths::info(const FilePart& file) const {
  const auto key = keys_.find(file.name());
  const auto found = key == keys_.end() ? found_.end() : found_.find(key->second);
  if (found == found_.end()) return reader_.info(file);
  if (!found->second.error.empty()) throw InputError(found->second.error);
  return found->second.info;
}

}  // namespace rondo
