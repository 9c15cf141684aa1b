#include "tools/recognition/page_output.h"

#include <rondo/version.h>

#include <algorithm>

#include "engine/io/file.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// The page that lines of no page file are on.
PageFile page_around(std::span<const ModelInput> lines, const ImageReader& images) {
  PageFile page;
  page.image = lines.front().file.path;
  page.size = images.info(lines.front().file);
  for (const ModelInput& input : lines) {
    PageLine line;
    line.number = page.lines.size();
    line.id = str("line_", line.number + 1);
    line.region = input.region;
    if (!is_on(line.region, page.size)) line.problem = "lies beyond its image";
    page.lines.push_back(std::move(line));
  }
  return page;
}

std::string document_of(PredictionFormat format, const PageFile& page,
                        std::span<const ReadLine> lines) {
  const std::string program = "rondo " RONDO_VERSION;
  if (format == PredictionFormat::hocr) return to_hocr(page, lines, program);
  if (format == PredictionFormat::alto) return to_alto(page, lines, program);
  return to_page_xml(page, lines, program);
}

}  // namespace

size_t count_pages(const std::vector<ModelInput>& inputs) {
  size_t pages = inputs.empty() ? 0 : 1;
  for (size_t i = 1; i < inputs.size(); ++i) pages += !are_of_one_page(inputs[i - 1], inputs[i]);
  return pages;
}

std::string PageOutput::take(const Transcript* transcript) {
  labels_.emplace_back();
  is_read_.push_back(transcript != nullptr);
  if (transcript) {
    for (const Transcript::Token& t : transcript->characters) {
      labels_.back().push_back({t.text, t.begin, t.end, t.probability});
    }
  }
  const size_t end = first_ + labels_.size();
  if (end < inputs_.size() && are_of_one_page(inputs_[end - 1], inputs_[end])) return {};
  const size_t first = first_;
  const std::vector<std::vector<SeenLabel>> labels = std::move(labels_);
  const bool any = std::find(is_read_.begin(), is_read_.end(), true) != is_read_.end();
  first_ = end;
  labels_.clear();
  is_read_.clear();
  return any ? write(std::span(inputs_).subspan(first, end - first), labels) : std::string();
}

// What the places of a line's labels are between.
std::pair<double, double> PageOutput::columns_of(const ImageRegion& region,
                                                 const PageFile& page) const {
  if (downwards_) {
    const ImageBox box = box_on(region, page.size, page.image);
    return {box.top, box.top + box.height};
  }
  const LinePlaces places(region, page.size, page.image);
  return {places.first(), places.end()};
}

std::string PageOutput::write(std::span<const ModelInput> inputs,
                              const std::vector<std::vector<SeenLabel>>& labels) const {
  const PageFile page = inputs.front().page ? *inputs.front().page : page_around(inputs, images_);
  std::vector<ReadLine> lines;
  for (size_t i = 0; i < labels.size(); ++i) {
    // Nothing to be placed; a line that was not read may have no place.
    if (!page.lines[i].problem.empty() || labels[i].empty()) {
      lines.emplace_back();
      continue;
    }
    const auto [first, end] = columns_of(page.lines[i].region, page);
    std::vector<SeenLabel> placed = labels[i];
    for (SeenLabel& l : placed) l.begin += first, l.end += first;
    lines.push_back(arrange(placed, first, end));
    lines.back().downwards = downwards_;
  }
  const std::string document = document_of(style_.format, page, lines);
  if (style_.folder.empty()) return document;
  const std::string path = output_path(style_, inputs.front());
  replace_text_file(path, document);
  return path + "\n";
}

}  // namespace rondo
