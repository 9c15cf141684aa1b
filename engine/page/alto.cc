// ALTO, versions 2 to 4: https://www.loc.gov/standards/alto/ (the meaning of String, SP, HYP, Shape
// and MeasurementUnit is from its schemas).
#include <pugixml.hpp>

#include <cmath>
#include <string>
#include <string_view>

#include "engine/page/xml.h"
#include "kernels/base/error.h"

namespace rondo::page {
namespace {

// Without one the line has neither an outline nor a problem.
void read_box(PageLine& line, const pugi::xml_node& node) {
  const double left = number_of(node.attribute("HPOS")), top = number_of(node.attribute("VPOS"));
  const double width = number_of(node.attribute("WIDTH"));
  const double height = number_of(node.attribute("HEIGHT"));
  constexpr double most = greatest_corner / 2;
  if (!(std::abs(left) <= most && std::abs(top) <= most && width > 0 && width <= most &&
        height > 0 && height <= most)) {
    return;
  }
  line.outline = {
      {left, top}, {left + width, top}, {left + width, top + height}, {left, top + height}};
}

void read_content(PageLine& line, const pugi::xml_node& node) {
  for (const pugi::xml_node& child : node.children()) {
    const auto content = child.attribute("CONTENT");
    if (is_named(child, "String")) {
      line.has_text = true;
      if (!line.text.empty()) line.text += ' ';
      line.text += content.value();
    } else if (is_named(child, "HYP")) {
      line.text += content ? content.value() : "-";
    }
  }
}

}  // namespace

void read_alto(const pugi::xml_node& root, PageFile& page) {
  const pugi::xml_node description = child_of(root, "Description");
  page.image_name = text_of(child_of(child_of(description, "sourceImageInformation"), "fileName"));
  const std::string unit = text_of(child_of(description, "MeasurementUnit"));
  page.in_pixels = unit.empty() || unit == "pixel";
  const pugi::xml_node layout = child_of(root, "Layout");
  const pugi::xml_node top = child_of(layout, "Page");
  if (!top) fail_input("has no Layout with a Page");
  int pages = 0;
  for (const pugi::xml_node& child : layout.children()) pages += is_named(child, "Page");
  if (pages > 1) fail_input("has ", pages, " pages, expected a file for each");
  page.width = number_of(top.attribute("WIDTH"));
  page.height = number_of(top.attribute("HEIGHT"));
  for_each_below(top, [&](const pugi::xml_node& node) {
    if (!is_named(node, "TextLine")) return;
    PageLine line;
    line.number = page.lines.size();
    line.id = node.attribute("ID").value();
    line.block = node.parent().attribute("ID").value();
    const auto points = child_of(child_of(node, "Shape"), "Polygon").attribute("POINTS");
    // Up to version 4.1 it is a single number, the height of a line that is level.
    const auto baseline = node.attribute("BASELINE");
    if (baseline && std::isnan(number_of(baseline)))
      read_baseline(line, "BASELINE", baseline.value());
    if (has_points(points.value())) {
      read_outline(line, "Polygon", points.value());
    } else {
      read_box(line, node);
    }
    require_place(line, "has neither a Shape/Polygon nor HPOS, VPOS, WIDTH and HEIGHT of a box");
    read_content(line, node);
    page.lines.push_back(std::move(line));
  });
}

}  // namespace rondo::page
