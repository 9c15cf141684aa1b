// Marks in transcripts: <unk>, [noise], {laugh}, (()). They stand for what is heard and is no word.
//
// A mark is what stands in angle, square or curly brackets, or in double round ones, if it is plain
// that no words are meant: at most 32 characters and four words of letters, digits, spaces and
// signs as in "vocalized-noise", with two letters or more (one in angle brackets, or of Chinese or
// Japanese), and no letter or digit touches the brackets from outside (it may touch angle ones, and
// letters of a script without spaces may touch any). In double round brackets there is one word at
// most, or nothing: more are what somebody was not sure to have heard.
//
// Thread safety: pure functions. Errors: InputError when the text is not valid UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// A part of a text: a mark by its name, or what stands before, between or behind marks.
struct TextPiece {
  std::string text;  // of a mark as it is called: no spaces, "_" between words
  bool is_mark = false;
};

// In order; none is empty.
std::vector<TextPiece> pieces_of(std::string_view text);

// Whether a text is one mark, by its name.
bool is_mark(std::string_view text);

// The text with its marks called by their names, and without them.
std::string with_named_marks(std::string_view text);
std::string without_marks(std::string_view text);

}  // namespace rondo
