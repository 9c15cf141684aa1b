// What the readers of lists have in common: folders, and text files of "KEY VALUE" lines.
//
// Errors: InputError that names the file and the line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::corpus {

// Without what leads through links; InputError unless it is a folder.
std::filesystem::path existing_folder(const std::string& folder);

// Regular files at any depth for which `wanted` is true, sorted. Links to folders are followed;
// each folder is walked once, however many ways lead to it.
std::vector<std::filesystem::path> files_below(
    const std::filesystem::path& folder,
    const std::function<bool(const std::filesystem::path&)>& wanted);

// Without blanks and line breaks around it.
std::string trimmed(std::string_view text);

// What a text file holds, without those and a byte order mark.
std::string text_of_file(const std::filesystem::path& file);

// "KEY VALUE" lines, as Kaldi's files and LibriSpeech's transcripts are.
struct KeyedLine {
  int64_t number = 0;  // from 1
  std::string key, value;
};
std::vector<KeyedLine> keyed_lines(const std::filesystem::path& file);
// The same where each key may be there once.
std::map<std::string, std::string> keyed_map(const std::filesystem::path& file);

}  // namespace rondo::corpus
