// Any field of a manifest's line by its name, for who is told which one to take: weights, classes,
// groups.
#pragma once

#include <string_view>

#include "engine/data/manifest.h"
#include "engine/io/json.h"

namespace rondo {

// The value of any field of a line, by its name, as the manifest has it; null where the line does
// not have it. (A target of one number is that number, and the offset of a recording 0 unless it
// says.)
Json field_value(const ManifestEntry& entry, std::string_view name);

}  // namespace rondo
