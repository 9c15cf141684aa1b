// PAGE-XML of 2019, or the PAGE file that a page is from.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <map>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <string_view>

#include "engine/page/page_writers.h"
#include "engine/page/xml.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

void remove_children(pugi::xml_node node, std::string_view name) {
  while (pugi::xml_node old = page::child_of(node, name)) node.remove_child(old);
}

// Its place is behind the outline and the words, before styles and the user's own.
void set_text(pugi::xml_node node, const std::string& text, double confidence) {
  remove_children(node, "TextEquiv");
  const std::string name = page::name_like(node, "TextEquiv");
  constexpr std::array behind =
      std::to_array<std::string_view>({"TextStyle", "UserDefined", "Labels"});
  pugi::xml_node before;
  if (!page::is_named(node, "TextRegion")) {
    for (const pugi::xml_node& child : node.children()) {
      const bool is_behind =
          std::find(behind.begin(), behind.end(), page::local_name(child)) != behind.end();
      if (!before && is_behind) before = child;
    }
  } else {
    before = page::child_of(node, "TextStyle");
  }
  pugi::xml_node equiv =
      before ? node.insert_child_before(name.c_str(), before) : node.append_child(name.c_str());
  if (confidence >= 0) page::set(equiv, "conf", page::confidence_text(confidence));
  equiv.append_child(page::name_like(node, "Unicode").c_str())
      .text()
      .set(page::xml_text(text).c_str());
}

void add_line(std::string& text, const std::string& line) {
  if (!line.empty()) text += (text.empty() ? "" : "\n") + line;
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// Corners on the page: the schema has no others.
std::string on_page(std::vector<ImagePoint> points, const PageFile& page) {
  for (ImagePoint& p : points) {
    p = {std::clamp(p.x, 0, page.size.width), std::clamp(p.y, 0, page.size.height)};
  }
  return page::points_text(points);
}

// Words of a line that had others, where the model has seen them.
class NewWords {
 public:
  NewWords(const PageFile& page, pugi::xml_node sheet) : page_(page) {
    page::for_each_below(
        sheet, [&](const pugi::xml_node& node) { ids_.insert(node.attribute("id").value()); });
  }

  void add(pugi::xml_node node, const PageLine& of, const ReadLine& line) {
    remove_children(node, "Word");
    if (line.words.empty()) return;
    pugi::xml_node last;  // of what stands before them
    for (const char* name : {"AlternativeImage", "Coords", "Baseline"}) {
      for (const pugi::xml_node& child : node.children())
        if (page::is_named(child, name)) last = child;
    }
    const page::CharacterPlaces places(page_, of, line);
    for (size_t i = 0; i < line.words.size(); ++i) {
      const std::string name = page::name_like(node, "Word");
      last = last ? node.insert_child_after(name.c_str(), last) : node.prepend_child(name.c_str());
      page::set(last, "id", unused_id(str("word_", of.number + 1, "_", i + 1)));
      page::set(last.append_child(page::name_like(node, "Coords").c_str()), "points",
                corners_in_file(places.box_of(line.words[i])));
      set_text(last, page::word_text(line.words[i]), page::confidence_of(line.words[i]));
    }
  }

 private:
  std::string corners_in_file(const ImageBox& shown) const {
    const page::FileBox b = page::in_units_of_file(page_, shown);
    const auto whole = [](double at) { return std::max(static_cast<int32_t>(std::lround(at)), 0); };
    const int32_t right = whole(b.left + b.width), bottom = whole(b.top + b.height);
    return page::points_text(ImageRegion::of_box({whole(b.left), whole(b.top),
                                                  right - whole(b.left), bottom - whole(b.top)})
                                 .corners);
  }
  std::string unused_id(std::string id) {
    while (!ids_.insert(id).second) id += "_";
    return id;
  }

  const PageFile& page_;
  std::set<std::string> ids_;
};

// A Word that is read anew where it was keeps its place. Those without a place have none to keep.
void set_words(pugi::xml_node node, const PageLine& of, const ReadLine& line, NewWords& anew) {
  std::vector<pugi::xml_node> words, without_place;
  for (const pugi::xml_node& child : node.children()) {
    if (!page::is_named(child, "Word")) continue;
    (page::child_of(child, "Coords") ? words : without_place).push_back(child);
  }
  for (const pugi::xml_node& word : without_place) node.remove_child(word);
  if (words.empty()) return;
  if (words.size() != line.words.size()) return anew.add(node, of, line);
  for (size_t i = 0; i < words.size(); ++i) {
    remove_children(words[i], "Glyph");  // of another reading
    set_text(words[i], page::word_text(line.words[i]), page::confidence_of(line.words[i]));
  }
}

std::string filled_in(const PageFile& page, std::span<const ReadLine> lines) {
  pugi::xml_document document;
  page::reread(document, page);
  const pugi::xml_node sheet = page::child_of(document.document_element(), "Page");
  const std::vector<pugi::xml_node> nodes = page::text_lines(sheet, page);
  std::vector<std::string> texts(nodes.size());
  NewWords anew(page, sheet);
  for (size_t i = 0; i < lines.size(); ++i) {
    pugi::xml_node node = nodes.at(page.lines[i].number);
    texts[page.lines[i].number] = lines[i].text;
    const bool is_read = page.lines[i].problem.empty();
    set_words(node, page.lines[i], is_read ? lines[i] : ReadLine{}, anew);
    remove_children(node, "TextEquiv");
    if (is_read) set_text(node, lines[i].text, lines[i].confidence);
  }
  // A region's text is that of its own lines, between which others may lie that are of regions
  // within it. One without lines of its own has none.
  const auto is_region = [](pugi::xml_node node) { return page::is_named(node, "TextRegion"); };
  std::map<pugi::xml_node, std::string> regions;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const pugi::xml_node parent = nodes[i].parent();
    if (is_region(parent)) add_line(regions[parent], texts[i]);
  }
  for (const pugi::xml_node& node : nodes) {
    for (pugi::xml_node p = node.parent(); p; p = p.parent())
      if (is_region(p) && !regions.contains(p)) remove_children(p, "TextEquiv");
  }
  for (const auto& [region, text] : regions) set_text(region, text, -1);
  return page::document_text(document, true);
}

void add_place(pugi::xml_node node, const ImageRegion& region, const PageFile& page) {
  const ImageRegion whole = ImageRegion::of_box({0, 0, page.size.width, page.size.height});
  page::set(node.append_child("Coords"), "points",
            on_page((region.is_whole() ? whole : region).corners, page));
  if (!region.baseline.empty())
    page::set(node.append_child("Baseline"), "points", on_page(region.baseline, page));
}

}  // namespace

std::string to_page_xml(const PageFile& page, std::span<const ReadLine> lines,
                        const std::string& program) {
  RONDO_CHECK(lines.size() == page.lines.size(), lines.size(), " lines of ", page.lines.size());
  if (!page.path.empty() && page.format == PageFormat::page) return filled_in(page, lines);
  pugi::xml_document document;
  page::add_declaration(document);
  pugi::xml_node root = document.append_child("PcGts");
  page::set(root, "xmlns", "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15");
  pugi::xml_node metadata = root.append_child("Metadata");
  metadata.append_child("Creator").text().set(program.c_str());
  for (const char* name : {"Created", "LastChange"})
    metadata.append_child(name).text().set(now().c_str());
  pugi::xml_node sheet = root.append_child("Page");
  page::set(sheet, "imageFilename", page.image);
  page::set(sheet, "imageWidth", std::to_string(page.size.width));
  page::set(sheet, "imageHeight", std::to_string(page.size.height));
  for (const page::Block& b : page::blocks_of(page)) {
    pugi::xml_node region = sheet.append_child("TextRegion");
    page::set(region, "id", b.id);
    add_place(region, ImageRegion::of_box(b.box), page);
    std::string text;
    for (size_t i = b.first; i < b.end; ++i) {
      if (!page.lines[i].problem.empty()) continue;
      pugi::xml_node line = region.append_child("TextLine");
      page::set(line, "id", b.line_ids[i - b.first]);
      add_place(line, page.lines[i].region, page);
      set_text(line, lines[i].text, lines[i].confidence);
      add_line(text, lines[i].text);
    }
    set_text(region, text, -1);
  }
  return page::document_text(document, true);
}

}  // namespace rondo
