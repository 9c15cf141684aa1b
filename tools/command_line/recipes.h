// The configurations that come with the program, by their names: `rondo train lines-small`. They
// are inside of it (tools/recipes/embed.py).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/config/config.h"

namespace rondo {

struct Recipe {
  std::string_view name;
  std::string_view purpose;  // a line
  std::string_view text;     // TOML
};

// By name.
std::span<const Recipe> recipes();

// nullptr where the word is empty, names a path that is there, or looks like one (a slash or a dot
// in it); else the recipe of that name. Throws InputError with the names of all recipes, and where
// a file was looked for, for a name that is none.
const Recipe* recipe_named(const std::string& word);
// The same of a word that must be a recipe's name.
const Recipe& require_recipe(const std::string& name);

// A line for each: its name and what it is for.
std::string list_of_recipes();

// load_config() of a file or a recipe.
Config load_file_or_recipe(const std::string& word, std::span<const std::string> overrides = {},
                           const Config& base = {});

}  // namespace rondo
