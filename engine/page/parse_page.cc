#include <optional>
#include <pugixml.hpp>
#include <set>

#include "engine/page/page_file.h"
#include "engine/page/xml.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// A page may be called for by any of these.
std::optional<PageFormat> format_of(std::string_view root) {
  if (root == "PcGts") return PageFormat::page;
  if (root == "alto") return PageFormat::alto;
  return std::nullopt;
}

// Lines without a name get one by their number, which no other line has.
void name_lines(std::vector<PageLine>& lines) {
  std::set<std::string> taken;
  for (const PageLine& line : lines) taken.insert(line.id);
  for (PageLine& line : lines) {
    if (!line.id.empty()) continue;
    line.id = str("line_", line.number + 1);
    for (int again = 2; !taken.insert(line.id).second; ++again)
      line.id = str("line_", line.number + 1, "_", again);
  }
}

}  // namespace

PageFile parse_page(std::string_view xml, const std::string& path) {
  pugi::xml_document document;
  const bool is_read = page::parse_xml(document, xml, path);
  const pugi::xml_node root = document.document_element();
  const std::optional<PageFormat> format = format_of(page::local_name(root));
  if (!format) {
    fail_input(path, ": is XML of '", page::local_name(root).substr(0, 60),
               "', expected a page: PAGE-XML (PcGts) or ALTO (alto)");
  }
  PageFile page;
  page.path = path;
  page.format = *format;
  try {
    *format == PageFormat::page ? page::read_page_xml(root, page) : page::read_alto(root, page);
    // What goes into manifests and other files is UTF-8.
    code_points(page.image_name);
    for (const PageLine& line : page.lines) {
      code_points(line.id);
      code_points(line.block);
    }
  } catch (const InputError& e) {
    fail_input(path, ": ", e.what());
  }
  if (!(page.width > 0 && page.height > 0)) page.width = page.height = 0;
  name_lines(page.lines);
  if (!is_read) {
    const std::string declared = document.first_child().attribute("encoding").value();
    page.encoding_problem =
        str(path, ": is not UTF-8", declared.empty() ? "" : str(", and declares '", declared, "'"),
            "; expected UTF-8, UTF-16 or ISO-8859-1, which 'iconv -t UTF-8' makes of others");
  }
  return page;
}

}  // namespace rondo
