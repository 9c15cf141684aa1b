// ALTO 4 (https://www.loc.gov/standards/alto/v4/), or the ALTO file that a page is from.
#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "engine/page/page_writers.h"
#include "engine/page/xml.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

// Writes texts in the unit of the file.
class AltoText {
 public:
  AltoText(const PageFile& page, bool has_glyphs) : page_(page), has_glyphs_(has_glyphs) {}

  void place(pugi::xml_node node, const ImageBox& shown) const {
    const page::FileBox b = page::in_units_of_file(page_, shown);
    const auto number = [](double value) { return short_text(value, 6); };
    page::set(node, "HPOS", number(b.left));
    page::set(node, "VPOS", number(b.top));
    page::set(node, "WIDTH", number(b.width));
    page::set(node, "HEIGHT", number(b.height));
  }

  // Into a TextLine without texts. The schema wants a String even of an empty one, and Glyphs of
  // one code point.
  void fill(pugi::xml_node node, const PageLine& of, const ReadLine& line) const {
    if (line.words.empty()) {
      pugi::xml_node string = node.append_child(page::name_like(node, "String").c_str());
      if (of.problem.empty()) place(string, box_on(of.region, page_.size, page_.image));
      page::set(string, "CONTENT", "");
      return;
    }
    const page::CharacterPlaces places(page_, of, line);
    const auto add = [&](pugi::xml_node to, const char* name, std::span<const ReadCharacter> part) {
      pugi::xml_node child = to.append_child(page::name_like(node, name).c_str());
      if (!part.empty()) place(child, places.box_of(part));
      return child;
    };
    for (size_t i = 0; i < line.words.size(); ++i) {
      const std::vector<ReadCharacter>& word = line.words[i];
      if (i > 0) add(node, "SP", {});
      pugi::xml_node string = add(node, "String", word);
      page::set(string, "CONTENT", page::word_text(word));
      page::set(string, "WC", page::confidence_text(page::confidence_of(word)));
      if (!has_glyphs_) continue;
      for (const ReadCharacter& c : word) {
        for (const char32_t point : code_points(c.text)) {
          pugi::xml_node glyph = add(string, "Glyph", std::span(&c, 1));
          page::set(glyph, "CONTENT", to_utf8(point));
          page::set(glyph, "GC", page::confidence_text(c.confidence));
        }
      }
    }
  }

 private:
  const PageFile& page_;
  bool has_glyphs_;
};

bool knows_glyphs(const pugi::xml_node& root) {
  for (const pugi::xml_attribute& a : root.attributes()) {
    const std::string_view value = a.value();
    if (value.find("alto/ns-v3") != value.npos || value.find("alto/ns-v4") != value.npos)
      return true;
  }
  return false;
}

std::string filled_in(const PageFile& page, std::span<const ReadLine> lines) {
  pugi::xml_document document;
  page::reread(document, page);
  const AltoText text(page, knows_glyphs(document.document_element()));
  const std::vector<pugi::xml_node> nodes = page::text_lines(document.document_element(), page);
  for (size_t i = 0; i < lines.size(); ++i) {
    pugi::xml_node node = nodes.at(page.lines[i].number);
    for (const char* name : {"String", "SP", "HYP"}) {
      while (pugi::xml_node old = page::child_of(node, name)) node.remove_child(old);
    }
    text.fill(node, page.lines[i], page.lines[i].problem.empty() ? lines[i] : ReadLine{});
  }
  return page::document_text(document, true);
}

pugi::xml_node add_description(pugi::xml_node root, const std::string& image,
                               const std::string& program) {
  pugi::xml_node description = root.append_child("Description");
  description.append_child("MeasurementUnit").text().set("pixel");
  description.append_child("sourceImageInformation")
      .append_child("fileName")
      .text()
      .set(page::xml_text(image).c_str());
  pugi::xml_node processing = description.append_child("Processing");
  page::set(processing, "ID", "processing_1");
  processing.append_child("processingSoftware")
      .append_child("softwareName")
      .text()
      .set(program.c_str());
  return root;
}

}  // namespace

std::string to_alto(const PageFile& page, std::span<const ReadLine> lines,
                    const std::string& program) {
  RONDO_CHECK(lines.size() == page.lines.size(), lines.size(), " lines of ", page.lines.size());
  if (!page.path.empty() && page.format == PageFormat::alto) return filled_in(page, lines);
  PageFile in_pixels = page;
  in_pixels.x_scale = in_pixels.y_scale = 1;
  in_pixels.is_as_stored = false;
  const AltoText text(in_pixels, true);
  pugi::xml_document document;
  page::add_declaration(document);
  pugi::xml_node root = document.append_child("alto");
  page::set(root, "xmlns", "http://www.loc.gov/standards/alto/ns-v4#");
  page::set(root, "SCHEMAVERSION", "4.4");
  add_description(root, page.image, program);
  pugi::xml_node sheet = root.append_child("Layout").append_child("Page");
  page::set(sheet, "ID", "rondo_page");
  page::set(sheet, "PHYSICAL_IMG_NR", "1");
  page::set(sheet, "WIDTH", std::to_string(page.size.width));
  page::set(sheet, "HEIGHT", std::to_string(page.size.height));
  pugi::xml_node space = sheet.append_child("PrintSpace");
  text.place(space, {0, 0, page.size.width, page.size.height});
  for (const page::Block& b : page::blocks_of(page)) {
    pugi::xml_node block = space.append_child("TextBlock");
    page::set(block, "ID", b.id);
    text.place(block, b.box);
    for (size_t i = b.first; i < b.end; ++i) {
      const PageLine& of = page.lines[i];
      if (!of.problem.empty()) continue;
      pugi::xml_node line = block.append_child("TextLine");
      page::set(line, "ID", b.line_ids[i - b.first]);
      text.place(line, box_on(of.region, page.size, page.image));
      if (!of.region.baseline.empty())
        page::set(line, "BASELINE", page::points_text(of.region.baseline));
      if (!of.region.is_whole() && !of.region.is_box()) {
        page::set(line.append_child("Shape").append_child("Polygon"), "POINTS",
                  page::points_text(of.region.corners));
      }
      text.fill(line, of, lines[i]);
    }
  }
  return page::document_text(document, true);
}

}  // namespace rondo
