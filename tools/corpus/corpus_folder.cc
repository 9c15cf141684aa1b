#include "tools/corpus/corpus_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "engine/data/features/files.h"
#include "engine/io/crc32c.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

constexpr const char* description_file = "corpus.json";
constexpr const char* settings_file = "train.toml";

// What a folder says that it holds; null where it says nothing.
Json description_of(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_regular_file(folder / description_file, ignored)) return {};
  try {
    return Json::parse(data::read_whole_file((folder / description_file).string()));
  } catch (const JsonError&) {
    return {};
  }
}

// The kind of corpus that it describes, or an empty string.
std::string kind_of(const Json& description) {
  const Json* kind = description.find("kind");
  return kind && kind->is_string() ? kind->get<std::string>() : std::string();
}

constexpr std::array splits = {"train", "dev", "test"};

std::string manifest_of(const char* split) { return std::string(split) + ".jsonl"; }

int64_t checksum_of(const fs::path& file) { return crc32c(data::read_regular_file(file.string())); }

// Whether somebody has changed a manifest since it was written, or put one there.
bool is_edited(const fs::path& folder, const std::string& name, const Json& description) {
  const fs::path file = folder / name;
  if (const Json* sums = description.find("checksums")) {
    const Json* sum = sums->find(name);
    return !sum || !sum->is_integer() || sum->get<int64_t>() != checksum_of(file);
  }
  // Corpora of before have no sums. The description was written after the manifests.
  std::error_code error;
  const auto written = fs::last_write_time(folder / description_file, error);
  return error || fs::last_write_time(file, error) > written || error;
}

// Where a manifest is kept: "train.jsonl.bak", or ".bak-2" where that is taken.
std::string name_to_keep(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  for (int i = 1;; ++i) {
    const std::string kept = str(name, ".bak", i == 1 ? std::string() : str("-", i));
    if (!fs::exists(folder / kept, ignored)) return kept;
  }
}

bool is_kept_manifest(const std::string& name) {
  return std::any_of(splits.begin(), splits.end(), [&](const char* split) {
    return name.starts_with(manifest_of(split) + ".bak");
  });
}

// What is below "wav" and "lines", sorted.
std::vector<std::string> made_files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const char* made : {"wav", "lines"}) {
    std::error_code error;
    if (!fs::exists(folder / made, error)) continue;
    fs::recursive_directory_iterator at(folder / made, error), end;
    for (; !error && at != end; at.increment(error))
      names.push_back(at->path().lexically_relative(folder).string());
    if (error) fail_input((folder / made).string(), ": cannot be read: ", error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

int64_t checksum_of(const std::vector<std::string>& names) {
  uint32_t sum = 0;
  for (const std::string& name : names) sum = crc32c(name + "\n", sum);
  return sum;
}

// What the manifests name, as they write it.
std::set<std::string> files_of_manifests(const fs::path& folder) {
  std::set<std::string> files;
  std::error_code ignored;
  for (const char* split : splits) {
    const fs::path file = folder / manifest_of(split);
    if (!fs::exists(file, ignored)) continue;
    try {
      for (const ManifestEntry& e : read_manifest(file.string()).entries)
        files.insert(fs::path(e.path_as_written).lexically_normal().string());
    } catch (const InputError&) {
      continue;  // edited, and nobody knows what it said
    }
  }
  return files;
}

fs::path resolve(const std::string& out) {
  if (out.empty()) fail_input("the folder to write the corpus to has no name");
  std::error_code error;
  fs::path path = fs::weakly_canonical(fs::absolute(out), error);
  if (error) fail_input(out, ": cannot be resolved: ", error.message());
  if (!path.has_filename()) path = path.parent_path();
  if (!path.has_filename() || path == fs::current_path(error)) {
    fail_input(out, ": cannot be replaced by a corpus, expected the name of a new folder");
  }
  return path;
}

// The earlier corpus at `out` goes when the new one is there, and what is in it with it.
void require_outside(const std::string& read_from, const fs::path& out) {
  std::error_code error;
  const fs::path source = fs::canonical(read_from, error);
  if (error) return;  // whoever reads there says so
  const fs::path relative = source.lexically_relative(out);
  if (relative.empty() || *relative.begin() == "..") return;
  fail_input(out.string(), ": holds the recordings to read, '", read_from,
             "', which would be lost; expected another folder for the corpus");
}

}  // namespace

CorpusFolder::CorpusFolder(const std::string& out, std::string_view kind,
                           const std::string& read_from, bool overwrite)
    : overwrite_(overwrite), kind_(kind), given_(out), out_(resolve(out)) {
  if (!read_from.empty()) require_outside(read_from, out_);
  check_replaceable();
  temporary_ = out_;
  temporary_ += str(".partial-", ::getpid());
  std::error_code error;
  fs::create_directories(out_.parent_path(), error);
  if (error) fail_input(out_.parent_path().string(), ": cannot be made: ", error.message());
  unfinished_.emplace(temporary_);
  fs::remove_all(temporary_, error);
  if (!error) fs::create_directories(temporary_, error);
  if (error) fail_input(out_.string(), ": cannot be made: ", error.message());
}

CorpusFolder::~CorpusFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

std::string CorpusFolder::path_of(std::string_view relative) const {
  return (temporary_ / relative).string();
}

void CorpusFolder::make_folder(const char* name) const {
  std::error_code error;
  fs::create_directories(temporary_ / name, error);
  if (error) fail_input(temporary_.string(), ": cannot be written: ", error.message());
}

std::vector<std::pair<std::string, std::string>> CorpusFolder::check_replaceable() const {
  std::error_code error;
  if (!fs::exists(out_, error)) return {};
  if (!fs::is_directory(out_, error)) {
    fail_input(out_.string(), ": is not a folder, expected a new one");
  }
  // Whoever forbade writing in it did not mean it to be replaced, though the folder around allows
  // it.
  if (::access(out_.c_str(), W_OK | X_OK) != 0) {
    fail_input(out_.string(), ": cannot be written: ", std::strerror(errno));
  }
  fs::directory_iterator entries(out_, error);
  if (error) fail_input(out_.string(), ": cannot be read: ", error.message());
  if (entries == fs::directory_iterator()) return {};
  const Json description = description_of(out_);
  if (const std::string kind = kind_of(description); kind != kind_) {
    fail_input(out_.string(), ": is not empty and holds ",
               kind.empty() ? "no corpus" : "a corpus of the kind '" + kind + "'",
               "; expected a new folder, or an earlier corpus of the kind '", kind_, "'");
  }
  std::set<std::string> own = {"wav", "lines", "lengths.svg", settings_file, description_file};
  for (const char* split : splits) {
    own.insert(manifest_of(split));
    own.insert(manifest_of(split) + ".lengths");  // which training keeps beside a manifest
  }
  require_own_files(description);
  std::vector<std::pair<std::string, std::string>> kept;
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (is_kept_manifest(name)) {
      kept.emplace_back(name, name);
    } else if (!own.contains(name)) {
      fail_foreign(name);
    } else if (name.ends_with(".jsonl") && is_edited(out_, name, description)) {
      if (!overwrite_)
        fail_input((out_ / name).string(),
                   ": was edited since it was written, and would be lost; --overwrite replaces it "
                   "and keeps it as ",
                   name_to_keep(out_, name), ", or choose a new folder");
      kept.emplace_back(name, name_to_keep(out_, name));
    }
  }
  return kept;
}

void CorpusFolder::fail_foreign(const std::string& name) const {
  fail_input(out_.string(), ": holds '", printable(name),
             "', which is no part of the corpus and would be lost; move it or choose a new folder");
}

// Recordings and images that were made with the manifests: either they are all that was there, or
// the manifests name them.
void CorpusFolder::require_own_files(const Json& description) const {
  const std::vector<std::string> names = made_files(out_);
  const Json* sum = description.find("made_files");
  if (names.empty() || (sum && sum->is_integer() && sum->get<int64_t>() == checksum_of(names)))
    return;
  const std::set<std::string> own = files_of_manifests(out_);
  for (const std::string& name : names)
    if (!own.contains(name)) fail_foreign(name);
}

void CorpusFolder::write_split(const std::string& name, int64_t count,
                               const std::function<ManifestEntry(int64_t)>& entry) {
  SplitReport& report = written_.emplace_back(SplitReport{name, count, 0});
  const std::string manifest = name + ".jsonl";
  replace_file(path_of(manifest), [&](FileWriter& file) {
    for (int64_t i = 0; i < count; ++i) {
      const ManifestEntry e = entry(i);
      report.seconds += e.duration.value_or(0);
      file.write(to_json_line(e) + "\n");
    }
    checksums_[manifest] = file.crc();
  });
}

void CorpusFolder::write_settings(const TrainingFacts& facts) const {
  replace_text_file(path_of(settings_file), fitted_settings(facts));
}

void CorpusFolder::write_settings(const Split& train, int32_t rate) const {
  TrainingFacts facts;
  facts.rate = rate;
  for (const ManifestEntry& e : train.entries)
    facts.add(e.duration.value_or(0), e.text.value_or(""));
  write_settings(facts);
}

CorpusReport CorpusFolder::commit(const std::vector<Split>& splits_made,
                                  const std::string& description) {
  for (const Split& split : splits_made) {
    const auto count = static_cast<int64_t>(split.entries.size());
    // A manifest without a line is no manifest.
    if (count == 0)
      written_.push_back({split.name, 0, 0});
    else
      write_split(split.name, count,
                  [&](int64_t i) { return split.entries[static_cast<size_t>(i)]; });
  }
  return commit(description);
}

CorpusReport CorpusFolder::commit(const std::string& description) {
  const Json j = Json::object({{"checksums", Json(checksums_)},
                               {"kind", kind_},
                               {"made_files", checksum_of(made_files(temporary_))},
                               {"options", Json::parse(description)},
                               {"version", 1}});
  data::write_whole_file(path_of(description_file), j.dump(1) + "\n");
  std::error_code error;
  for (const auto& [from, to] : check_replaceable()) {
    fs::copy_file(out_ / from, temporary_ / to, error);
    if (error) fail_input((out_ / from).string(), ": cannot be kept: ", error.message());
  }
  fs::path old;
  {
    const StopWaits whole;
    if (fs::exists(out_, error)) {
      old = out_;
      old += str(".old-", ::getpid());
      rename_path(out_, old);
    }
    rename_path(temporary_, out_);
    temporary_.clear();
    unfinished_.reset();
    if (!old.empty()) unfinished_.emplace(old);
  }
  if (!old.empty()) {
    fs::remove_all(old, error);
    if (error)
      fail_input(old.string(), ": the earlier corpus cannot be removed: ", error.message());
  }
  return {given_, written_};
}

}  // namespace rondo::corpus
