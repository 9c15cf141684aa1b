// hOCR 1.2 (http://kba.github.io/hocr-spec/1.2/), as XHTML.
#include <cmath>
#include <pugixml.hpp>

#include "engine/page/page_writers.h"
#include "engine/page/xml.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

std::string bbox(const char* name, const ImageBox& b) {
  return str(name, " ", b.left, " ", b.top, " ", b.left + b.width, " ", b.top + b.height);
}

pugi::xml_node element(pugi::xml_node parent, const char* name, const char* css,
                       const std::string& title) {
  pugi::xml_node node = parent.append_child(name);
  page::set(node, "class", css);
  page::set(node, "title", title);
  return node;
}

void add_text(pugi::xml_node node, const std::string& text) {
  node.append_child(pugi::node_pcdata).set_value(page::xml_text(text).c_str());
}

// Whose quotes end at the next one.
std::string quoted(const std::string& path) {
  std::string out = "\"";
  for (const char c : path) out += c == '"' || c == '\\' ? str("\\", c) : std::string(1, c);
  return out + "\"";
}

void add_word(pugi::xml_node node, const page::CharacterPlaces& places,
              const std::vector<ReadCharacter>& word, const std::string& id) {
  const ImageBox box = places.box_of(word);
  pugi::xml_node span =
      element(node, "span", "ocrx_word",
              str(bbox("bbox", box), "; x_wconf ", std::lround(100 * page::confidence_of(word))));
  page::set(span, "id", id);
  for (const ReadCharacter& c : word) {
    const ImageBox of_one = places.box_of(std::span(&c, 1));
    add_text(element(span, "span", "ocrx_cinfo",
                     str(bbox("x_bboxes", of_one), "; x_confs ",
                         page::confidence_text(c.confidence, 100))),
             c.text);
  }
}

void add_line(pugi::xml_node block, const PageFile& p, size_t number, const std::string& id,
              const ReadLine& line) {
  const PageLine& of = p.lines[number];
  pugi::xml_node node =
      element(block, "span", "ocr_line", bbox("bbox", box_on(of.region, p.size, p.image)));
  page::set(node, "id", id);
  add_text(block, "\n");
  if (line.words.empty()) return;
  const page::CharacterPlaces places(p, of, line);
  for (size_t i = 0; i < line.words.size(); ++i) {
    if (i > 0) add_text(node, " ");
    add_word(node, places, line.words[i], str("word_", number + 1, "_", i + 1));
  }
}

}  // namespace

std::string to_hocr(const PageFile& p, std::span<const ReadLine> lines,
                    const std::string& program) {
  RONDO_CHECK(lines.size() == p.lines.size(), lines.size(), " lines of ", p.lines.size());
  pugi::xml_document document;
  pugi::xml_node html = document.append_child("html");
  page::set(html, "xmlns", "http://www.w3.org/1999/xhtml");
  pugi::xml_node head = html.append_child("head");
  add_text(head.append_child("title"), p.image);
  const auto meta = [&](const char* key, const char* name, const std::string& content) {
    pugi::xml_node node = head.append_child("meta");
    page::set(node, key, name);
    page::set(node, "content", content);
  };
  meta("http-equiv", "Content-Type", "text/html;charset=utf-8");
  meta("name", "ocr-system", program);
  meta("name", "ocr-capabilities", "ocr_page ocr_carea ocr_line ocrx_word ocrx_cinfo");
  pugi::xml_node body = html.append_child("body");
  add_text(body, "\n");
  pugi::xml_node sheet =
      element(body, "div", "ocr_page",
              str("image ", quoted(p.image), "; ",
                  bbox("bbox", {0, 0, p.size.width, p.size.height}), "; ppageno 0"));
  add_text(sheet, "\n");
  for (const page::Block& b : page::blocks_of(p)) {
    pugi::xml_node block = element(sheet, "div", "ocr_carea", bbox("bbox", b.box));
    page::set(block, "id", b.id);
    add_text(block, "\n");
    for (size_t i = b.first; i < b.end; ++i) {
      if (p.lines[i].problem.empty()) add_line(block, p, i, b.line_ids[i - b.first], lines[i]);
    }
    add_text(sheet, "\n");
  }
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
         "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Transitional//EN\" "
         "\"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd\">\n" +
         page::document_text(document, false) + "\n";
}

}  // namespace rondo
