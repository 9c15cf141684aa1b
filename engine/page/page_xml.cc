// PAGE-XML: Pletschacher and Antonacopoulos, "The PAGE (Page Analysis and Ground-Truth Elements)
// Format Framework", ICPR 2010; schemas of 2009 to 2019.
#include <pugixml.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/page/xml.h"
#include "kernels/base/error.h"

namespace rondo::page {
namespace {

// The ids of regions in reading order. A group may have the id of a region itself.
void collect_order(const pugi::xml_node& group, int level, std::vector<std::string>& ids) {
  if (level > most_levels) fail_input("has a ReadingOrder more than ", most_levels, " deep");
  std::vector<pugi::xml_node> members;
  for (const pugi::xml_node& child : group.children()) {
    if (child.type() == pugi::node_element) members.push_back(child);
  }
  if (local_name(group).starts_with("Ordered")) {
    const auto index = [](const pugi::xml_node& n) { return n.attribute("index").as_int(); };
    std::stable_sort(members.begin(), members.end(),
                     [&](const auto& a, const auto& b) { return index(a) < index(b); });
  }
  for (const pugi::xml_node& member : members) {
    if (const auto id = member.attribute("regionRef")) ids.emplace_back(id.value());
    collect_order(member, level + 1, ids);
  }
}

// The text of a line, a word: false where it has none.
bool read_text_equiv(const pugi::xml_node& node, std::string& text) {
  pugi::xml_node best;
  int least = 0;
  for (const pugi::xml_node& child : node.children()) {
    if (!is_named(child, "TextEquiv")) continue;
    const int index = child.attribute("index").as_int(-1);
    if (best && index >= least) continue;
    best = child;
    least = index;
  }
  if (!best) return false;
  const pugi::xml_node unicode = child_of(best, "Unicode");
  text = text_of(unicode ? unicode : child_of(best, "PlainText"));
  return true;
}

// Of Coords or a Baseline: "x,y x,y ...", or of 2010 and before a Point for each.
std::optional<std::string> points_of(const pugi::xml_node& node) {
  if (const auto points = node.attribute("points")) return points.value();
  std::optional<std::string> all;
  for (const pugi::xml_node& child : node.children()) {
    if (!is_named(child, "Point")) continue;
    all = str(all.value_or(""), all ? " " : "", child.attribute("x").value(), ",",
              child.attribute("y").value());
  }
  return all;
}

bool read_words(const pugi::xml_node& node, std::string& text) {
  bool any = false;
  for (const pugi::xml_node& child : node.children()) {
    std::string word;
    if (!is_named(child, "Word") || !read_text_equiv(child, word)) continue;
    any = true;
    if (!word.empty()) text += (text.empty() ? "" : " ") + word;
  }
  return any;
}

}  // namespace

void read_page_xml(const pugi::xml_node& root, PageFile& page) {
  const pugi::xml_node top = child_of(root, "Page");
  if (!top) fail_input("has no Page");
  page.image_name = top.attribute("imageFilename").value();
  page.width = number_of(top.attribute("imageWidth"));
  page.height = number_of(top.attribute("imageHeight"));
  std::vector<std::string> order;
  collect_order(child_of(top, "ReadingOrder"), 0, order);
  std::map<std::string, size_t> place;
  for (size_t i = 0; i < order.size(); ++i) place.try_emplace(order[i], i);
  // Of the innermost region that has one; the others come last.
  const auto place_of = [&](const pugi::xml_node& node) {
    for (pugi::xml_node at = node.parent(); at && at != top; at = at.parent()) {
      const auto found = place.find(at.attribute("id").value());
      if (found != place.end()) return found->second;
    }
    return std::numeric_limits<size_t>::max();
  };
  std::vector<std::pair<size_t, PageLine>> lines;
  for_each_below(top, [&](const pugi::xml_node& node) {
    if (!is_named(node, "TextLine")) return;
    PageLine line;
    line.number = lines.size();
    line.id = node.attribute("id").value();
    line.block = node.parent().attribute("id").value();
    const auto baseline = points_of(child_of(node, "Baseline"));
    if (baseline) read_baseline(line, "Baseline", *baseline);
    const auto points = points_of(child_of(node, "Coords"));
    const bool is_outline = points && (line.baseline.empty() || has_points(*points));
    if (is_outline) read_outline(line, "Coords", *points);
    require_place(line, "has no Coords with points, expected a polygon, nor a Baseline");
    line.has_text = read_text_equiv(node, line.text) || read_words(node, line.text);
    lines.emplace_back(place_of(node), std::move(line));
  });
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [where, line] : lines) page.lines.push_back(std::move(line));
}

}  // namespace rondo::page
