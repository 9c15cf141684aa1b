// Pages whose lines other programs, or people, have found: PAGE-XML (2009 to 2019) and ALTO (2 to
// 4).
//
// Elements and attributes are told by their local names, whatever their prefix and the version of
// the schema; UTF-16 and ISO-8859-1 are read as UTF-8 is. Entities that a document declares for
// itself are expanded, to at most 1 MB; one that it does not declare, or that is in another file,
// is an error: nothing is fetched.
//
// What is taken of a page: its lines in reading order, each with the polygon or box around it, its
// baseline where it has one, and its text.
// - PAGE: all TextLines of the page's regions: Coords/@points, Baseline/@points (of 2010 and before
//   their Points), and the Unicode
//   (or PlainText) of the TextEquiv with the smallest @index; one without an index comes first,
//   equal ones as they stand. A line without one has the texts of its Words, with spaces between
//   them. Regions that the ReadingOrder names stand in its order, then the others as they are
//   written.
// - ALTO: all TextLines: Shape/Polygon/@POINTS, else HPOS, VPOS, WIDTH, HEIGHT; @BASELINE, if it is
//   more than a height; the CONTENT of its Strings with a space between any two, and that of a HYP
//   behind them.
// A baseline of one point says nothing. A line with a baseline and no outline, or one that reaches
// no further across than the baseline, gets the stripe along it that its neighbours leave to it
// (set_regions).
// White space around a text is taken away. Coordinates are in the unit of the page's own size (of
// ALTO any MeasurementUnit), and scaled to the pixels of the image where that is larger or smaller.
//
// An image is turned as it is to be shown (orientation.h). Programs that do not know this write
// places on the image as it is stored: the size of the page says which of them is meant. Where it
// fits both, places are of the image as it is shown, and the page has a warning.
//
// Errors: InputError that names the file, and its line where it is no XML.
// Thread safety: plain data and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/data/image/image_region.h"

namespace rondo {

enum class PageFormat : uint8_t { page, alto };

struct PagePoint {
  double x = 0, y = 0;
};

struct PageLine {
  std::string id;     // as in the file; else "line_3", counted as they are written from 1
  std::string block;  // the id of the region it is in, may be empty
  size_t number = 0;  // as they are written, from 0
  std::vector<PagePoint> outline;   // as in the file: three corners or more, or none
  std::vector<PagePoint> baseline;  // as in the file: two points or more, or none
  ImageRegion region;               // in pixels of the image: set by set_regions
  std::string text;
  bool has_text = false;  // false: there is no element of one, which is not an empty text
  std::string problem;    // why it cannot be read, a clause; mostly empty: it has no outline, or,
                          // after set_regions, nothing of it is on the image
};

struct PageFile {
  std::string path;
  PageFormat format = PageFormat::page;
  double width = 0, height = 0;  // as in the file; 0: not said
  bool in_pixels = true;         // what these are, and the coordinates
  std::string image_name;        // as in the file, may be empty
  std::vector<PageLine> lines;   // in reading order
  std::string image;             // where it was found: set by open_page, as all below
  ImageInfo size;                // of the image
  bool is_as_stored = false;     // places are of the image before it is turned
  // Pixels of the image in a unit of the file, along its own x and y.
  double x_scale = 1, y_scale = 1;
  std::string warning;  // a sentence about the whole page, mostly empty
  // Sentence: it is in an encoding that is not read, so that what lies beyond ASCII in it cannot be
  // kept. Empty for nearly all pages.
  std::string encoding_problem;
};

inline constexpr uint64_t most_page_bytes = uint64_t{1} << 26;

// Whether a file is called .xml and begins like PAGE-XML or ALTO: there is other XML in folders.
bool is_page_file(const std::string& path);

// What the file says. `path` stands for it in messages.
PageFile parse_page(std::string_view xml, const std::string& path);

// The same, with the image of the page. It is looked for by the name that the file gives, seen from
// its own folder and the one above, with the folders in the name and without; then under the name
// of the file itself. Throws InputError where it is not there, is unreadable, or has another shape
// than the page.
PageFile open_page(const std::string& path, const ImageReader& images);

// The outlines and baselines of lines as regions of an image of this size. Where there is a
// baseline alone, the line reaches up 0.7 of the distance to the next baseline and down 0.3 of it;
// at most one and a half times the median distance of such lines on the page. Throws InputError for
// a page of another shape.
void set_regions(PageFile& page, ImageInfo image);

// "scans/0001.xml:l17", to name a line by.
std::string name_of(const PageFile& page, const PageLine& line);

}  // namespace rondo
