// What a command does to texts: options for the rules of engine/text/text_rules.h.
#pragma once

#include <string>

#include "engine/text/text_rules.h"
#include "tools/command_line/command_line.h"

namespace rondo {

struct TextOptions {
  bool lowercase = false, strip_punctuation = false, drop_invisible = false;
  std::string locale, marks = "keep";

  TextRules rules() const;
};

// --lowercase, --locale, --strip-punctuation, --drop-invisible and --marks.
void add_text_options(Command& command, TextOptions* options);

}  // namespace rondo
