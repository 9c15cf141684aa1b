// Files in which other programs keep the tokens of their models: Vocabulary::open() says which.
//
// Errors: InputError that names the file and what is wrong. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

struct VocabularyFile {
  std::vector<std::string> tokens = {};  // tokens[i] is class i
  std::optional<int32_t> blank = {};     // where the format says it
  std::string border = {};               // what separates words, where the format says it
  std::string name = {};                 // of the file that has the tokens
};

// A file, or a folder of Hugging Face.
VocabularyFile open_vocabulary_file(const std::string& path);
// The same of a file's content; `name` stands for the file in messages, and for its ending.
VocabularyFile parse_vocabulary_file(std::string_view content, const std::string& name);

// What the blank is usually called, but for <pad>.
bool is_blank_name(std::string_view name);
bool is_padding_name(std::string_view name);
// <pad>, <s>, </s>, <unk>, [UNK] and the like are nothing that is said.
bool is_special_name(std::string_view name);

}  // namespace rondo
