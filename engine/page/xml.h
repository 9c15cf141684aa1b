// What the readers and writers of pages ask of XML (internal to engine/page). Sources that use it
// include pugixml's header themselves.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/page/page_file.h"
#include "engine/page/page_writers.h"

namespace pugi {
class xml_attribute;
class xml_document;
class xml_node;
}  // namespace pugi

namespace rondo::page {

// Deeper ones are refused: real pages have a dozen levels.
inline constexpr int most_levels = 128;

// References are resolved, as far as the document declares what they are to (entities.cc). Throws
// InputError that names the file and the line in it. Returns false where the document is in an
// encoding that is not read, and so was taken for UTF-8 that it is not.
bool parse_xml(pugi::xml_document& document, std::string_view xml, const std::string& path);

// In texts and attributes of a document that was parsed without it. `fail` gets the place of what
// cannot be resolved, and what is wrong with it.
void expand_references(pugi::xml_document& document,
                       const std::function<void(ptrdiff_t, const std::string&)>& fail);

// The name without its prefix.
std::string_view local_name(const pugi::xml_node& node);
bool is_named(const pugi::xml_node& node, std::string_view name);
// The first of that name, or none.
pugi::xml_node child_of(const pugi::xml_node& node, std::string_view name);
// All that is below, in the order in which it is written.
void for_each_below(const pugi::xml_node& top, const std::function<void(pugi::xml_node)>& visit);
// The innermost one around it of that name, or none.
pugi::xml_node around(const pugi::xml_node& node, std::string_view name);
std::string text_of(const pugi::xml_node& node);

// "x,y x,y ..." or "x y x y ...", into the outline or the baseline. A problem is set otherwise.
void read_outline(PageLine& line, const char* what, std::string_view points);
void read_baseline(PageLine& line, const char* what, std::string_view points);
// Whether they are more than white space: some programs write an empty outline where a line has
// another place.
bool has_points(std::string_view points);
// Where there is neither outline nor baseline, sets the problem: what the file should have.
void require_place(PageLine& line, const char* what);
// Digits as XML has them. NaN: it is no number.
double number_of(const pugi::xml_attribute& attribute);

// The formats; `root` is the document's.
void read_page_xml(const pugi::xml_node& root, PageFile& page);
void read_alto(const pugi::xml_node& root, PageFile& page);

// Gives lines that have a baseline and no outline of their own the stripe along it
// (page_file.h).
void outline_baselines(std::vector<PageLine>& lines, ImageInfo image);

// For writers. Text without the characters that XML 1.0 cannot hold.
std::string xml_text(std::string_view text);
// Sets the attribute, which is added where there is none.
void set(pugi::xml_node node, const char* name, std::string_view value);
// As UTF-8; with line breaks for people, or without those that would be text.
std::string document_text(const pugi::xml_document& document, bool indented);
void add_declaration(pugi::xml_document& document);
// The file that the page is from, once more.
void reread(pugi::xml_document& document, const PageFile& page);
// As they are written: what PageLine::number counts. Throws InputError for another number of them.
std::vector<pugi::xml_node> text_lines(const pugi::xml_node& top, const PageFile& page);
// With the prefix of a node.
std::string name_like(const pugi::xml_node& node, const std::string& name);

// Lines of one region that follow each other.
struct Block {
  std::string id;                     // no two blocks or lines have the same,
  std::vector<std::string> line_ids;  // and all are as XML wants them
  size_t first = 0, end = 0;
  ImageBox box;  // around the lines
};
std::vector<Block> blocks_of(const PageFile& page);

// A box of the image as its page file has it.
struct FileBox {
  double left = 0, top = 0, width = 0, height = 0;
};
FileBox in_units_of_file(const PageFile& page, const ImageBox& shown);

// "x,y x,y ..."
std::string points_text(std::span<const ImagePoint> points);

// Around some characters of a line, one after the other.
class CharacterPlaces {
 public:
  CharacterPlaces(const PageFile& page, const PageLine& of, const ReadLine& line);
  ImageBox box_of(std::span<const ReadCharacter> part) const;

 private:
  LinePlaces places_;
  ImageBox box_;
  bool downwards_;
};

std::string word_text(const std::vector<ReadCharacter>& word);
double confidence_of(const std::vector<ReadCharacter>& word);
// 0 to `scale`, in four digits: "0.9312".
std::string confidence_text(double confidence, double scale = 1);

}  // namespace rondo::page
