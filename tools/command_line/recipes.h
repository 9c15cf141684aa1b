// The configurations that come with the program, by their names: `rondo train lines-small`.
#pragma once

#include <string>

namespace rondo {

// The configuration file that a word of the command line names: itself, where there is such a path
// or it looks like one (a slash or a dot in it); else the recipe of that name. Recipes lie where
// `meson install` puts them, ../share/rondo/recipes from the program's folder, or in the sources
// that hold the build folder. Throws InputError with the names of all recipes for a name that is
// none. An empty word stays empty.
std::string configuration_file(const std::string& word);

}  // namespace rondo
