// Which sources the program was built from: a hash of them, in hexadecimal. The version number
// stays while sources change; ranks of one job are to run the same (tools/sources/build_id.py).
#pragma once

namespace rondo {

extern const char* const build_id;

}  // namespace rondo
