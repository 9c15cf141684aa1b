// What the readers of lists have in common: folders, and text files of "KEY VALUE" lines.
//
// Errors: InputError that names the file and the line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/corpus/lists/layouts.h"

namespace rondo::corpus {

// Without what leads through links; InputError unless it is a folder.
std::filesystem::path existing_folder(const std::string& folder);

// What a walk could not take, and why: "a link that leads nowhere".
struct NotWalked {
  enum class Kind { dangling_link, no_file, unreadable };
  Kind kind;
  std::filesystem::path path;
  std::string what;  // a sentence that names the path
};

// Regular files at any depth for which `wanted` is true, sorted. Links to folders are followed;
// each folder is walked once, however many ways lead to it. Links that lead nowhere, pipes, sockets
// and devices, and folders that cannot be read are added to `others`, where it is given; otherwise
// the last are an InputError.
std::vector<std::filesystem::path> files_below(
    const std::filesystem::path& folder,
    const std::function<bool(const std::filesystem::path&)>& wanted,
    std::vector<NotWalked>* others = nullptr);

// The same, one by one as they come, for who keeps less of them than a path.
void for_each_file_below(const std::filesystem::path& folder,
                         const std::function<void(const std::filesystem::path&)>& take,
                         std::vector<NotWalked>* others);

// As entries of a list, each with its problem.
void add_not_walked(const std::vector<NotWalked>& others, std::vector<ListedUtterance>& list);

// The split that a folder's name stands for: "train", "dev" or "test"; empty: it is called
// otherwise. Only the bare word counts, in capitals or not; valid, validation and val are "dev".
std::string split_called(std::string name);

// The split that the topmost folder of a file below `root` is called by.
std::string split_of(const std::filesystem::path& file, const std::filesystem::path& root);

// A recording that a list names, as the file system has it: with accents in another form, '/' for
// '\\', the ending that was left out. The path itself where nothing of that is there.
std::string recording_called(const std::string& path);

// Where no recording or image below `root` has its text beside it, texts are found by their names:
// in another folder, or in a list of lines "NAME TEXT" among the texts (Finding::text_alone) and
// `others`, which loses such lists. What stands between is a tab, a bar or a blank; "NAME|TEXT|TEXT
// AS IT IS READ", a table of two columns and the lines of the IAM database are lists, too. A name
// is a path, or is compared without folders and ending, and decides if one entry has it.
void find_texts_elsewhere(const std::filesystem::path& root, std::vector<std::string>& others,
                          std::vector<ListedUtterance>& list);
// Where no text was found: sentences about tables among `others` that may hold them, with the
// commands that read them; empty: there are none.
std::string tables_that_may_hold_texts(const std::vector<std::string>& others,
                                       const std::vector<ListedUtterance>& list);

// Whether a column or a member is called as those usually are that hold recordings, or texts.
bool is_usual_of_recordings(std::string_view name);
bool is_usual_of_texts(std::string_view name);

// Without blanks and line breaks around it.
std::string trimmed(std::string_view text);

// TIMIT writes from which sample to which a text goes, "0 46797 She had": how many bytes that
// takes, 0 where it is not so.
size_t sample_numbers(std::string_view text);

// What a text file holds as UTF-8 (read_text.h), without those.
std::string text_of_file(const std::filesystem::path& file);

// "KEY VALUE" lines, as Kaldi's files and LibriSpeech's transcripts are.
struct KeyedLine {
  int64_t number = 0;  // from 1
  std::string key, value;
};
std::vector<KeyedLine> keyed_lines(const std::filesystem::path& file);

}  // namespace rondo::corpus
