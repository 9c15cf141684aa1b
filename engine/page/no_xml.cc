#include "engine/page/page_file.h"
#include "engine/page/page_writers.h"
#include "kernels/base/error.h"

// In place of what reads and writes XML, in a build without pugixml.
namespace rondo {
namespace {

[[noreturn]] void fail(const std::string& path) {
  fail_input(path.empty() ? "a page" : path,
             ": a build without pugixml reads and writes no PAGE-XML, ALTO and hOCR");
}

}  // namespace

PageFile parse_page(std::string_view, const std::string& path) { fail(path); }
std::string to_hocr(const PageFile& page, std::span<const ReadLine>, const std::string&) {
  fail(page.path);
}
std::string to_alto(const PageFile& page, std::span<const ReadLine>, const std::string&) {
  fail(page.path);
}
std::string to_page_xml(const PageFile& page, std::span<const ReadLine>, const std::string&) {
  fail(page.path);
}

}  // namespace rondo
