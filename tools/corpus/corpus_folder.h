// The folder of a corpus while it is made: a temporary one beside its final place.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/data/manifest.h"
#include "engine/io/json.h"
#include "engine/io/signals.h"
#include "tools/corpus/corpus.h"
#include "tools/corpus/fitted_settings.h"

namespace rondo::corpus {

// One split as it grows: the lines of its manifest.
struct Split {
  std::string name;
  std::vector<ManifestEntry> entries;
};

class CorpusFolder {
 public:
  // `kind` goes into corpus.json. Throws InputError if `out` is there and may not be replaced, or
  // the folder `read_from` lies in it: if it holds what is no part of a corpus of this kind, or a
  // manifest that was edited since it was written. With `overwrite` such a manifest is replaced,
  // and kept as train.jsonl.bak, .bak-2, ...; later corpora leave those where they are.
  CorpusFolder(const std::string& out, std::string_view kind, const std::string& read_from = "",
               bool overwrite = false);
  // Removes what was not committed, as a signal does that ends the process.
  ~CorpusFolder();
  CorpusFolder(const CorpusFolder&) = delete;
  CorpusFolder& operator=(const CorpusFolder&) = delete;

  // Where "wav/name.wav" goes for now; a folder in it, "wav" or "lines", is there once it was asked
  // for.
  std::string path_of(std::string_view relative) const;
  void make_folder(const char* name) const;
  // Where the corpus will be, absolute.
  const std::filesystem::path& final_path() const { return out_; }

  // Writes the manifest of a split, which may be too long to be in memory: entry(i) for each i
  // below `count`, which is not 0.
  void write_split(const std::string& name, int64_t count,
                   const std::function<ManifestEntry(int64_t)>& entry);
  // Writes train.toml, the settings that fit (fitted_settings.h): of any data, or of recordings of
  // one rate that are to train on.
  void write_settings(const TrainingFacts& facts) const;
  void write_settings(const Split& train, int32_t rate) const;
  // Writes corpus.json (`description`: a JSON object) and renames. An earlier corpus at this place
  // is gone afterwards. Recordings are not synced to the disk one by one: after a power failure,
  // make the corpus again.
  CorpusReport commit(const std::string& description);
  // The same with these manifests; one without an entry is not written.
  CorpusReport commit(const std::vector<Split>& splits, const std::string& description);

 private:
  // The names of what has to be kept, as it is or under another name.
  std::vector<std::pair<std::string, std::string>> check_replaceable() const;

  [[noreturn]] void fail_foreign(const std::string& name) const;
  void require_own_files(const Json& description) const;

  bool overwrite_ = false;
  std::string kind_, given_;  // `out` as it was given
  std::filesystem::path out_, temporary_;
  std::vector<SplitReport> written_;
  std::map<std::string, int64_t> checksums_;  // of the manifests
  std::optional<RemovedIfStopped> unfinished_;
};

// Fisher and Yates.
template <class T, class Random>
void shuffle(std::vector<T>& items, Random& random) {
  for (size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
}

}  // namespace rondo::corpus
