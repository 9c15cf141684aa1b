#include "tools/command_line/recipes.h"

#include <algorithm>
#include <filesystem>

#include "engine/io/descriptor.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

const Recipe* find_recipe(std::string_view name) {
  const std::span<const Recipe> all = recipes();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Recipe& r) { return r.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string names_of_recipes() {
  std::string text;
  for (const Recipe& r : recipes()) text += str(text.empty() ? "" : ", ", r.name);
  return text;
}

}  // namespace

const Recipe* recipe_named(const std::string& word) {
  std::error_code none;
  if (word.empty() || word.find_first_of("/.") != std::string::npos ||
      std::filesystem::exists(word, none)) {
    return nullptr;
  }
  if (const Recipe* const recipe = find_recipe(word)) return recipe;
  fail_input("'", word, "' is neither a file nor a folder", looked_for(word),
             ", and no recipe; the recipes are ", names_of_recipes());
}

const Recipe& require_recipe(const std::string& name) {
  if (const Recipe* const recipe = find_recipe(name)) return *recipe;
  fail_input("'", name, "' is no recipe; the recipes are ", names_of_recipes());
}

std::string list_of_recipes() {
  size_t width = 0;
  for (const Recipe& r : recipes()) width = std::max(width, r.name.size());
  std::string text;
  for (const Recipe& r : recipes()) {
    text += str(r.name, std::string(width + 2 - r.name.size(), ' '), r.purpose, "\n");
  }
  return text;
}

Config load_file_or_recipe(const std::string& word, std::span<const std::string> overrides,
                           const Config& base) {
  if (const Recipe* const recipe = recipe_named(word))
    return parse_config(recipe->text, str("recipe ", recipe->name), overrides, base);
  return load_config(word, overrides, base);
}

}  // namespace rondo
