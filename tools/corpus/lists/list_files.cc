#include "tools/corpus/lists/list_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>

#include "engine/data/audio/sound_format.h"
#include "engine/data/features/files.h"
#include "engine/io/descriptor.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tools/corpus/read_text.h"

namespace rondo::corpus {

namespace fs = std::filesystem;

fs::path existing_folder(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error) {
    fail_input(folder, ": cannot be read as a folder: ", error.message(),
               error == std::errc::no_such_file_or_directory ? looked_for(folder) : std::string());
  }
  if (!fs::is_directory(path)) fail_input(folder, ": is not a folder");
  return path;
}

namespace {

class Walk {
 public:
  Walk(const std::function<void(const fs::path&)>& take, std::vector<NotWalked>* others)
      : take_(take), others_(others) {}

  // First what lies in the folder itself, then where its links lead, and theirs: what can be
  // reached in several ways has its shortest name, in whatever order the disk tells the entries.
  void all_below(const fs::path& folder) {
    for (std::vector<fs::path> folders{folder}; !folders.empty();) {
      links_.clear();
      for (const fs::path& top : folders) walk(top);
      std::sort(links_.begin(), links_.end());
      folders = std::move(links_);
    }
    if (others_)
      std::sort(others_->begin(), others_->end(),
                [](const NotWalked& a, const NotWalked& b) { return a.path < b.path; });
  }

 private:
  void walk(const fs::path& folder) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    if (error) return tell_folder(folder, error);
    if (!walked_.insert(real).second) return;
    fs::directory_iterator at(folder, error), end;
    std::vector<fs::path> below;
    for (; !error && at != end; at.increment(error)) {
      std::error_code broken;
      const bool is_folder = at->is_directory(broken);
      if (is_folder) {
        (at->is_symlink() ? links_ : below).push_back(at->path());
      } else if (at->is_regular_file(broken)) {
        take_(at->path());
      } else {
        tell_other(*at);
      }
    }
    if (error) tell_folder(folder, error);
    for (const fs::path& path : below) walk(path);
  }

  void tell_folder(const fs::path& folder, const std::error_code& error) {
    const std::string what = folder.string() + ": cannot be read as a folder: " + error.message();
    if (!others_) fail_input(what);
    others_->push_back({NotWalked::Kind::unreadable, folder, what});
  }

  void tell_other(const fs::directory_entry& entry) {
    if (!others_) return;
    std::error_code ignored;
    const fs::path& path = entry.path();
    if (!entry.is_symlink(ignored)) {
      others_->push_back({NotWalked::Kind::no_file, path,
                          path.string() + ": is a pipe, a socket or a device, expected a file"});
      return;
    }
    const fs::path to = fs::read_symlink(path, ignored);
    others_->push_back({NotWalked::Kind::dangling_link, path,
                        str(path.string(), ": leads to '", to.string(), "', where no file is")});
  }

  const std::function<void(const fs::path&)>& take_;
  std::vector<NotWalked>* const others_;
  std::vector<fs::path> links_;
  std::set<fs::path> walked_;
};

}  // namespace

void for_each_file_below(const fs::path& folder, const std::function<void(const fs::path&)>& take,
                         std::vector<NotWalked>* others) {
  Walk(take, others).all_below(folder);
}

std::vector<fs::path> files_below(const fs::path& folder,
                                  const std::function<bool(const fs::path&)>& wanted,
                                  std::vector<NotWalked>* others) {
  std::vector<fs::path> files;
  const auto take = [&](const fs::path& file) {
    if (wanted(file)) files.push_back(file);
  };
  for_each_file_below(folder, take, others);
  std::sort(files.begin(), files.end());
  return files;
}

void add_not_walked(const std::vector<NotWalked>& others, std::vector<ListedUtterance>& list) {
  for (const NotWalked& other : others) {
    ListedUtterance& u = list.emplace_back();
    u.file.path = other.path.string();
    u.problem = other.what;
    u.finding = other.kind == NotWalked::Kind::dangling_link ? Finding::dangling_link
                : other.kind == NotWalked::Kind::no_file     ? Finding::no_file
                                                             : Finding::unreadable;
  }
}

namespace {

// In lower case and without "_", "-" and blanks.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z')
      plain += static_cast<char>(c - 'A' + 'a');
    else if (c != '_' && c != '-' && c != ' ')
      plain += c;
  }
  return plain;
}

constexpr std::array names_of_recordings = {
    "path",      "file",          "filename", "filepath", "audio",     "audiofile",
    "audiopath", "audiofilepath", "wav",      "wavpath",  "wavfile",   "wavfilename",
    "recording", "clip",          "image",    "img",      "imagepath", "imagefilepath"};
constexpr std::array names_of_texts = {"text", "sentence", "transcript", "transcription"};

}  // namespace

bool is_usual_of_recordings(std::string_view name) {
  return std::ranges::find(names_of_recordings, plain_name(name)) != names_of_recordings.end();
}

bool is_usual_of_texts(std::string_view name) {
  return std::ranges::find(names_of_texts, plain_name(name)) != names_of_texts.end();
}

std::string recording_called(const std::string& path) {
  const bool of_windows = path.find('\\') != std::string::npos;
  std::error_code ignored;
  std::string found = path_in_any_form(path);
  if ((!of_windows && is_recording_file(path)) || fs::exists(found, ignored)) return found;
  std::vector<std::string> names = {path};
  if (of_windows) {
    std::replace(names.front().begin(), names.front().end(), '\\', '/');
    names = {path, fs::path(names.front()).lexically_normal().string()};
  }
  for (const std::string& name : names) {
    for (const char* ending :
         {"", ".wav", ".WAV", ".flac", ".FLAC", ".mp3", ".MP3", ".ogg", ".opus", ".m4a"}) {
      std::string other = path_in_any_form(name + ending);
      if (fs::is_regular_file(other, ignored)) return other;
    }
  }
  return found;
}

std::string split_called(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name == "train" || name == "dev" || name == "test") return name;
  return name == "valid" || name == "validation" || name == "val" ? "dev" : "";
}

std::string split_of(const fs::path& file, const fs::path& root) {
  const fs::path below = file.parent_path().lexically_relative(root);
  return below.empty() ? std::string() : split_called(below.begin()->string());
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(space) - begin + 1));
}

size_t sample_numbers(std::string_view text) {
  constexpr size_t fewest_digits = 4;  // a quarter of a second, and more than a number that is said
  if (!text.starts_with("0 ")) return 0;
  const size_t end = text.find_first_not_of("0123456789", 2);
  const bool is_so = end != std::string_view::npos && end >= 2 + fewest_digits &&
                     text[end] == ' ' && text[2] != '0' && end + 1 < text.size() &&
                     (text[end + 1] < '0' || text[end + 1] > '9');
  return is_so ? end + 1 : 0;
}

std::string text_of_file(const fs::path& file) { return trimmed(read_text(file.string())); }

std::vector<KeyedLine> keyed_lines(const fs::path& file) {
  const std::string text = read_text(file.string());
  const char line_end = text.find('\n') == std::string::npos ? '\r' : '\n';
  std::vector<KeyedLine> lines;
  lines.reserve(static_cast<size_t>(std::count(text.begin(), text.end(), line_end)) + 1);
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(line_end, at), text.size());
    const std::string line = trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    const size_t space = std::min(line.find_first_of(" \t"), line.size());
    lines.push_back({number, line.substr(0, space), trimmed(line.substr(space))});
  }
  return lines;
}

}  // namespace rondo::corpus
