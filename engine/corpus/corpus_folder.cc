#include "engine/corpus/corpus_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "engine/data/features/files.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

constexpr const char* description_file = "corpus.json";

void rename_folder(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    fail_input(to.string(), ": cannot be put in place: ", std::strerror(errno));
  }
}

// The kind of corpus that a folder says it holds, or an empty string.
std::string kind_of(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_regular_file(folder / description_file, ignored)) return {};
  try {
    const Json j = Json::parse(data::read_whole_file((folder / description_file).string()));
    return j.at("kind").get<std::string>();
  } catch (const JsonError&) {
    return {};
  }
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
                           const std::string& read_from)
    : kind_(kind), given_(out), out_(resolve(out)) {
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

void CorpusFolder::check_replaceable() const {
  std::error_code error;
  if (!fs::exists(out_, error)) return;
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
  if (entries == fs::directory_iterator()) return;
  if (const std::string kind = kind_of(out_); kind != kind_) {
    fail_input(out_.string(), ": is not empty and holds ",
               kind.empty() ? "no corpus" : "a corpus of the kind '" + kind + "'",
               "; expected a new folder, or an earlier corpus of the kind '", kind_, "'");
  }
  std::set<std::string> own = {"wav", "lines", "lengths.svg", description_file};
  for (const char* split : {"train.jsonl", "dev.jsonl", "test.jsonl"}) {
    own.insert(split);
    own.insert(std::string(split) + ".lengths");  // which training keeps beside a manifest
  }
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (!own.contains(name)) {
      fail_input(out_.string(), ": holds '", name,
                 "', which is no part of the corpus and would be lost; move it or choose a new "
                 "folder");
    }
  }
}

CorpusReport CorpusFolder::commit(const std::vector<Split>& splits,
                                  const std::string& description) {
  const Json j =
      Json::object({{"kind", kind_}, {"options", Json::parse(description)}, {"version", 1}});
  CorpusReport report;
  for (const Split& split : splits) {
    SplitReport r{split.name, static_cast<int64_t>(split.entries.size()), 0};
    for (const ManifestEntry& entry : split.entries) r.seconds += entry.duration.value_or(0);
    // A manifest without a line is no manifest.
    if (!split.entries.empty()) {
      write_manifest(path_of(split.name + ".jsonl"), split.entries);
    }
    report.splits.push_back(r);
  }
  data::write_whole_file(path_of(description_file), j.dump(1) + "\n");
  check_replaceable();
  std::error_code error;
  fs::path old;
  {
    const StopWaits whole;
    if (fs::exists(out_, error)) {
      old = out_;
      old += str(".old-", ::getpid());
      rename_folder(out_, old);
    }
    rename_folder(temporary_, out_);
    temporary_.clear();
    unfinished_.reset();
    if (!old.empty()) unfinished_.emplace(old);
  }
  if (!old.empty()) {
    fs::remove_all(old, error);
    if (error)
      fail_input(old.string(), ": the earlier corpus cannot be removed: ", error.message());
  }
  report.path = given_;
  return report;
}

}  // namespace rondo::corpus
