// The host's own, by a name that rondo's sources have too.
#pragma once

#include <string>

namespace host {

inline std::string file_extension(const std::string& name) { return name.substr(name.rfind('.')); }

}  // namespace host
