// Which lines of pages are on the same image, and which of them are the same line: corpora come
// with several descriptions of a page, and with copies of its image in several folders.
//
// Thread safety: pure functions that read files.
#pragma once

#include <string>
#include <vector>

#include "tools/corpus/lists/layouts.h"

namespace rondo::corpus {

// For each line of a page the least path of a file that has its image's name and is the same, byte
// for byte; of all others nothing. Files are read only where several have one name and size.
std::vector<std::string> images_of_pages(const std::vector<ListedUtterance>& list);

// Of lines that are listed several times, on one image with nearly the same outline or baseline,
// one stays: the first that has a text. The others get their problem.
void mark_doubles(std::vector<ListedUtterance>& list);

// Adds the text that lies beside the image of a page: a double of the page's own lines.
void add_double_of_page(const std::string& image, const std::string& text_file,
                        std::vector<ListedUtterance>& list);

}  // namespace rondo::corpus
