// What the build says of itself.
#pragma once

namespace rondo {

// Which sources the program was built from: a hash of them, in hexadecimal. The version number
// stays while sources change; ranks of one job are to run the same (tools/sources/build_id.py).
extern const char* const build_id;
// "libsndfile 1.2.0, MPI", and "Gloo": the optional libraries that it was built with, and without.
extern const char* const built_with;
extern const char* const built_without;

}  // namespace rondo
