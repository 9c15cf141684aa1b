// What a model has read of lines, as documents of pages: hOCR, ALTO, PAGE-XML.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/data/image/line_features.h"
#include "engine/page/page_writers.h"
#include "tools/recognition/predictions.h"

namespace rondo {

// How many pages these are; lines of one page follow each other.
size_t count_pages(const std::vector<ModelInput>& inputs);

// Takes what was read line by line. When a page's last line is there, the page is for standard
// output, or is written into a file of the style's folder, whose name is. An image of one line is a
// page of one line. Borrows what it is made of.
class PageOutput {
 public:
  PageOutput(const PredictionStyle& style, const std::vector<ModelInput>& inputs,
             const ImageReader& images, LineDirection direction)
      : style_(style),
        inputs_(inputs),
        images_(images),
        downwards_(direction == LineDirection::downwards) {}

  // The next of the inputs. Its labels have their places in pixels of the line. nullptr: it could
  // not be read, and stays without a text. Returns what there is to say on standard output. Throws
  // InputError for a file that cannot be written or has changed.
  std::string take(const Transcript* transcript);

 private:
  std::string write(std::span<const ModelInput> inputs,
                    const std::vector<std::vector<SeenLabel>>& labels) const;
  std::pair<double, double> columns_of(const ImageRegion& region, const PageFile& page) const;

  const PredictionStyle& style_;
  const std::vector<ModelInput>& inputs_;
  const ImageReader& images_;
  const bool downwards_;
  size_t first_ = 0;                            // input of the page that is being read
  std::vector<std::vector<SeenLabel>> labels_;  // of the inputs from there on
  std::vector<bool> is_read_;
};

}  // namespace rondo
