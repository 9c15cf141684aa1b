// The host's own, by a name that rondo's sources have too.
#pragma once

namespace host {

enum class LineError { none, busy };

}  // namespace host
