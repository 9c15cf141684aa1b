#include "tools/command_line/text_options.h"

#include "kernels/base/error.h"

namespace rondo {

TextRules TextOptions::rules() const {
  TextRules rules;
  rules.lowercase = lowercase;
  rules.strip_punctuation = strip_punctuation;
  rules.drop_invisible = drop_invisible;
  rules.marks = marks == "drop" ? Marks::drop : marks == "token" ? Marks::token : Marks::keep;
  rules.locale = TextLocale::parse(locale).value_or(TextLocale());
  return rules;
}

void add_text_options(Command& command, TextOptions* o) {
  command.add_flag("--lowercase", o->lowercase, "texts in lower case");
  command
      .add_option("--locale", o->locale,
                  "the language of lower case; tr and az have an I of their own")
      .check([](const std::string& text) {
        return TextLocale::parse(text) ? "" : str("'", text, "', expected a language, as tr");
      });
  command.add_flag("--strip-punctuation", o->strip_punctuation,
                   "texts without punctuation; dashes become spaces, apostrophes in words and all "
                   "of numbers stay");
  command.add_flag("--drop-invisible", o->drop_invisible,
                   "texts without what has no picture: zero-width spaces, soft hyphens");
  command
      .add_option("--marks", o->marks,
                  "<unk>, [noise], {laugh}: characters as others, left out, or each a symbol")
      .one_of({"keep", "drop", "token"})
      .show_default();
}

}  // namespace rondo
