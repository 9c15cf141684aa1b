// Texts of utterances from files of several programs, and which of two files belong together.
//
// Errors: InputError that names file and line. Thread safety: pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Which of two texts a line of JSON may have is meant.
enum class TextRole { reference, hypothesis };

struct NamedText {
  std::string name;  // empty in a file of lines without names
  std::string text;
  size_t line = 0;                            // of the file, from 1
  std::map<std::string, std::string> fields;  // of a line of JSON, as text: "speaker", ...
};

struct NamedTexts {
  std::string file;
  bool named = false;
  bool named_by_tabs = false;    // nobody said that there are names, but they are there
  std::vector<NamedText> texts;  // no two with one name
};

// By the file's ending:
//   .jsonl, .json  a manifest, or what `transcribe --format jsonl` and `eval --hypotheses` write.
//                  Text: of a reference "reference", else "text"; of a hypothesis "hypothesis",
//                  "pred_text", else "text". Name: "id", else the path of what was read with the
//                  part of it. Utterances of one recording ("begin") are joined.
//   .trn           NIST's: the text, then the name in parentheses
//   .ctm           NIST's: name, channel, begin, duration, word
//   .stm           NIST's: name, channel, speaker, begin, end, <labels>, text; joined as .ctm is
//   .srt, .vtt     subtitles, one text without a name
//   else           a text in each line; with `ids` behind its name, as Kaldi's text. Where each
//                  line has a tab, and what stands before it is in no other line, these are the
//                  names, as `transcribe` and `decode` write them
// Any of them as text files come (tools/corpus/read_text.h).
NamedTexts read_named_texts(const std::string& file, bool ids, TextRole role);
// The same of what the file has in it.
NamedTexts parse_named_texts(std::string_view content, const std::string& file, bool ids,
                             TextRole role);

// Each text of `references` with its hypothesis, nullptr where there is none: by name, or line by
// line where neither has names; so too where only one has them, before tabs. If no name is in both,
// names of files count without folder and ending. Whose name is not in `references` is in
// `left_over`.
struct TextPairs {
  std::vector<const NamedText*> hypotheses;  // of each reference
  std::vector<const NamedText*> left_over;
  bool by_file_names = false;
  bool names_left_out = false;  // one of the two had some
};
TextPairs pair_texts(const NamedTexts& references, const NamedTexts& hypotheses);

// Kaldi's utt2spk: the speaker of each utterance.
std::map<std::string, std::string> read_speakers(const std::string& file);

}  // namespace rondo
