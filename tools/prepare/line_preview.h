// What a network sees of images of lines: `rondo prepare lines --preview`.
#pragma once

#include <string>

#include "engine/config/config.h"

namespace rondo {

// A few lines of the manifest, from all over it, as `config` scales them, and below each how its
// distortions make it look in three epochs. `file` ends with .svg, with the texts as captions, or
// .png. Throws InputError for other endings, before all else, and for what cannot be read or
// written.
void draw_line_preview(const Config& config, const std::string& manifest, const std::string& file);
void require_preview_name(const std::string& file);

}  // namespace rondo
