// What the speech demo says: digit strings and commands of a small grammar.
#pragma once

#include <string>
#include <vector>

#include "engine/data/features/random.h"

namespace rondo::corpus {

// "three one four"; `length` digits.
std::string digit_words(int length, data::Random& random);

// Every command of the grammar, once each, in a fixed order. Every word is in many of them.
std::vector<std::string> all_commands();

}  // namespace rondo::corpus
