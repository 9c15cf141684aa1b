#include "tools/command_line/recipes.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// Empty where the system does not say what runs.
fs::path folder_of_program() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).parent_path();
}

// The first that is there; empty: none.
fs::path folder_of_recipes() {
  const fs::path program = folder_of_program();
  if (program.empty()) return {};
  for (const char* from_there : {"../share/rondo/recipes", "../../tools/recipes"}) {
    const fs::path folder = (program / from_there).lexically_normal();
    std::error_code none;
    if (fs::is_directory(folder, none)) return folder;
  }
  return {};
}

std::string names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::string configuration_file(const std::string& word) {
  std::error_code none;
  if (word.empty() || word.find_first_of("/.") != std::string::npos || fs::exists(word, none)) {
    return word;
  }
  const fs::path folder = folder_of_recipes();
  if (folder.empty()) return word;
  const fs::path file = folder / (word + ".toml");
  if (fs::exists(file, none)) return file.string();
  fail_input("'", word, "' is neither a file nor a recipe; those in ", folder.string(), " are ",
             names_in(folder));
}

}  // namespace rondo
