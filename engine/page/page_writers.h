// What a recogniser has read on a page, as hOCR, ALTO and PAGE-XML.
//
// A page that was read from a file of the same format is that file with its texts filled in:
// regions, ids, outlines and what else stands in it stay, the texts of its lines are replaced. It
// is UTF-8, whatever the file was. Otherwise a new document is made, of one block with all lines.
//
// - hOCR 1.2: ocr_page, ocr_carea, ocr_line, ocrx_word with x_wconf, ocrx_cinfo with x_bboxes and
//   x_confs
// - ALTO 4: TextBlock, TextLine, String with WC, SP; a Glyph with GC for each code point, which
//   version 2 does not have. A line read as nothing has an empty String.
// - PAGE 2019: TextLine with TextEquiv and its conf, and the text of the whole region. Where a file
//   has Words and as many are read, they keep their places and get the new texts; other Words are
//   those of the reading.
// New ALTO and PAGE-XML have the baselines of lines that have one, and ids that XML allows.
//
// Confidences of words and lines are means of their characters', 0 to 1 (hOCR: to 100); that of a
// character is the model's probability, or the least where it consists of several labels.
// Characters that XML 1.0 cannot hold become U+FFFD. Errors: InputError, for a file that has
// changed since it was read. Thread safety: pure functions, but for the time of day in the metadata
// of new PAGE-XML.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/page/page_file.h"

namespace rondo {

struct ReadCharacter {
  std::string text;  // with its combining marks
  // Pixels of the image from its left edge, or from its top in a line that is written downwards; of
  // a line with a baseline, from its beginning along it (LinePlaces).
  double first = 0, last = 0;
  double confidence = 0;
};

struct ReadLine {
  std::string text;  // the words with a space between
  std::vector<std::vector<ReadCharacter>> words;
  double confidence = 0;
  bool downwards = false;
};

// Where a recogniser saw a label: a short stretch within what it stands for.
struct SeenLabel {
  std::string text;
  double begin = 0, end = 0;  // as ReadCharacter's
  double probability = 0;
};

// From labels in the order of the text, spaces among them; where they were seen need not be in that
// order. Labels that readers see as one character, as a letter and its combining marks, are one,
// which was seen where any of them was. A character reaches half-way to its neighbours in the
// image, those at the ends as far to the other side, within the line from `first` to `last`.
ReadLine arrange(std::span<const SeenLabel> seen, double first, double last);

// `lines`: as many as the page has, in its order. `page.image`, `page.size` and the regions must be
// set; a page of an empty path was read from no file. `program`: who has read them, for the
// metadata.
std::string to_hocr(const PageFile& page, std::span<const ReadLine> lines,
                    const std::string& program);
std::string to_alto(const PageFile& page, std::span<const ReadLine> lines,
                    const std::string& program);
std::string to_page_xml(const PageFile& page, std::span<const ReadLine> lines,
                        const std::string& program);

}  // namespace rondo
