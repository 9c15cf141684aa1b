#include "engine/page/page_writers.h"

#include <algorithm>
#include <cmath>
#include <pugixml.hpp>
#include <set>
#include <sstream>

#include "engine/data/features/files.h"
#include "engine/data/image/orientation.h"
#include "engine/page/xml.h"
#include "engine/text/characters.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace page {

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char32_t c : code_points(text)) {
    const bool allowed = c == '\t' || c == '\n' || (c >= 0x20 && c != 0xfffe && c != 0xffff);
    out += to_utf8(allowed ? c : U'\ufffd');
  }
  return out;
}

void set(pugi::xml_node node, const char* name, std::string_view value) {
  pugi::xml_attribute attribute = node.attribute(name);
  if (!attribute) attribute = node.append_attribute(name);
  attribute.set_value(xml_text(value).c_str());
}

std::string document_text(const pugi::xml_document& document, bool indented) {
  std::ostringstream out;
  document.save(out, "  ",
                (indented ? pugi::format_indent : pugi::format_raw) | pugi::format_no_declaration,
                pugi::encoding_utf8);
  return out.str();
}

void reread(pugi::xml_document& document, const PageFile& page) {
  parse_xml(document, data::read_regular_file(page.path), page.path);
  // Whatever it was, it is written as UTF-8.
  for (pugi::xml_node node : document.children()) {
    pugi::xml_attribute encoding = node.attribute("encoding");
    if (node.type() == pugi::node_declaration && encoding) encoding.set_value("UTF-8");
  }
}

std::vector<pugi::xml_node> text_lines(const pugi::xml_node& top, const PageFile& page) {
  std::vector<pugi::xml_node> nodes;
  for_each_below(top, [&](const pugi::xml_node& node) {
    if (is_named(node, "TextLine")) nodes.push_back(node);
  });
  if (nodes.size() != page.lines.size()) {
    fail_input(page.path, ": has changed since it was read: now ", nodes.size(), " lines, ",
               page.lines.size(), " before");
  }
  return nodes;
}

void add_declaration(pugi::xml_document& document) {
  pugi::xml_node declaration = document.prepend_child(pugi::node_declaration);
  declaration.append_attribute("version") = "1.0";
  declaration.append_attribute("encoding") = "UTF-8";
}

std::string name_like(const pugi::xml_node& node, const std::string& name) {
  const std::string_view full = node.name();
  const size_t colon = full.rfind(':');
  return std::string(colon == full.npos ? "" : full.substr(0, colon + 1)) + name;
}

std::string word_text(const std::vector<ReadCharacter>& word) {
  std::string text;
  for (const ReadCharacter& c : word) text += c.text;
  return text;
}

double confidence_of(const std::vector<ReadCharacter>& word) {
  double sum = 0;
  for (const ReadCharacter& c : word) sum += c.confidence;
  return word.empty() ? 0 : sum / static_cast<double>(word.size());
}

std::string confidence_text(double confidence, double scale) {
  return short_text(scale * std::clamp(confidence, 0.0, 1.0), 4);
}

FileBox in_units_of_file(const PageFile& page, const ImageBox& shown) {
  FileBox box{static_cast<double>(shown.left), static_cast<double>(shown.top),
              static_cast<double>(shown.width), static_cast<double>(shown.height)};
  if (page.is_as_stored) {
    const auto at = [&](double x, double y) {
      return shown_at(x, y, page.size.width, page.size.height, inverse(page.size.orientation));
    };
    const ShownPoint p = at(box.left, box.top), q = at(box.left + box.width, box.top + box.height);
    box = {std::min(p.x, q.x), std::min(p.y, q.y), std::abs(p.x - q.x), std::abs(p.y - q.y)};
  }
  return {box.left / page.x_scale, box.top / page.y_scale, box.width / page.x_scale,
          box.height / page.y_scale};
}

std::string points_text(std::span<const ImagePoint> points) {
  std::string text;
  for (const ImagePoint& p : points) text += str(text.empty() ? "" : " ", p.x, ",", p.y);
  return text;
}

CharacterPlaces::CharacterPlaces(const PageFile& page, const PageLine& of, const ReadLine& line)
    : places_(line.downwards ? ImageRegion{of.region.corners} : of.region, page.size, page.image),
      box_(box_on(of.region, page.size, page.image)),
      downwards_(line.downwards) {}

ImageBox CharacterPlaces::box_of(std::span<const ReadCharacter> part) const {
  double first = part.front().first, last = part.front().last;
  for (const ReadCharacter& c : part) {
    first = std::min(first, c.first);
    last = std::max(last, c.last);
  }
  if (!downwards_) return places_.between(first, last);
  ImageBox box = box_;
  const int32_t end = box.top + box.height;
  box.top = static_cast<int32_t>(std::lround(std::clamp<double>(first, box.top, end - 1)));
  box.height =
      static_cast<int32_t>(std::lround(std::clamp<double>(last, box.top + 1, end))) - box.top;
  return box;
}

namespace {

// What XML allows as an ID: other characters become '_', and it begins with a letter or '_'.
std::string as_id(const std::string& name) {
  std::string id;
  for (const char32_t c : code_points(name)) {
    const bool is_inner = (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (id.empty() && is_inner) id += '_';
    id += is_inner || is_letter(c) ? to_utf8(c) : "_";
  }
  return id;
}

// Names that no two elements of a document have. `wanted`: by those that have names already.
class Ids {
 public:
  explicit Ids(const PageFile& page) {
    for (const PageLine& line : page.lines) wanted_.insert({as_id(line.id), as_id(line.block)});
  }
  // The name, or one of this kind where there is none or another has it.
  std::string take(const std::string& name, const char* kind, size_t number) {
    std::string id = as_id(name);
    if (id.empty() || taken_.contains(id)) {
      do {
        id = str(kind, number++);
      } while (wanted_.contains(id) || taken_.contains(id));
    }
    taken_.insert(id);
    return id;
  }

 private:
  std::set<std::string> wanted_, taken_;
};

}  // namespace

std::vector<Block> blocks_of(const PageFile& page) {
  std::vector<Block> blocks;
  Ids ids(page);
  for (size_t first = 0, end = 0; first < page.lines.size(); first = end) {
    while (end < page.lines.size() && page.lines[end].block == page.lines[first].block) ++end;
    Block block{ids.take(page.lines[first].block, "block_", blocks.size() + 1), {}, first, end, {}};
    int32_t left = page.size.width, top = page.size.height, right = 0, bottom = 0;
    for (size_t i = first; i < end; ++i) {
      block.line_ids.push_back(ids.take(page.lines[i].id, "line_", i + 1));
      if (!page.lines[i].problem.empty()) continue;
      const ImageBox b = box_on(page.lines[i].region, page.size, page.image);
      left = std::min(left, b.left), top = std::min(top, b.top);
      right = std::max(right, b.left + b.width), bottom = std::max(bottom, b.top + b.height);
    }
    block.box = {left, top, right - left, bottom - top};
    if (left < right) blocks.push_back(block);
  }
  return blocks;
}

}  // namespace page

}  // namespace rondo
