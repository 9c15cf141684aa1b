#include "tools/prepare/line_preview.h"

#include <algorithm>
#include <cmath>

#include "engine/data/features/endings.h"
#include "engine/data/image/image.h"
#include "engine/io/file.h"
#include "engine/report/charts.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr size_t lines_shown = 6;
constexpr uint64_t epochs_shown = 3;

// Ink [columns, rows] as a picture: black on white, and not in a mirror.
LineSheet::Row row_of(const Matrix& ink, LineDirection direction, std::string caption) {
  LineSheet::Row row;
  row.caption = std::move(caption);
  row.columns = static_cast<int>(ink.frames);
  row.rows = static_cast<int>(ink.dim);
  const bool leftwards = direction == LineDirection::leftwards;
  for (int32_t y = 0; y < ink.dim; ++y)
    for (int64_t x = 0; x < ink.frames; ++x)
      row.grey.push_back(static_cast<uint8_t>(
          std::lround(255 * (1 - ink.row(leftwards ? ink.frames - 1 - x : x)[y]))));
  return row;
}

std::string png_of(const LineSheet& sheet) {
  constexpr int32_t margin = 10, gap = 4, between_lines = 16;
  int32_t width = 0, height = 2 * margin;
  for (const LineSheet::Row& row : sheet.rows) {
    width = std::max(width, row.columns + 2 * margin);
    height += row.rows + (row.caption.empty() ? gap : between_lines);
  }
  GreyImage page(width, height);
  std::fill(page.pixels.begin(), page.pixels.end(), uint8_t{225});
  int32_t top = margin;
  for (const LineSheet::Row& row : sheet.rows) {
    top += row.caption.empty() ? gap : between_lines;
    for (int32_t y = 0; y < row.rows; ++y) {
      const auto columns = static_cast<ptrdiff_t>(row.columns);
      std::copy_n(row.grey.begin() + y * columns, columns, page.row(top + y) + margin);
    }
    top += row.rows;
  }
  return make_png(page);
}

}  // namespace

void require_preview_name(const std::string& file) {
  if (has_ending(file, ".svg") || has_ending(file, ".png")) return;
  fail_input("--preview: '", file, "' ends with neither .svg nor .png");
}

void draw_line_preview(const Config& config, const std::string& manifest, const std::string& file) {
  require_preview_name(file);
  const ImageFileReader images;
  const Alphabet alphabet = make_alphabet(config, read_texts(config, manifest));
  const auto data =
      open_dataset(config, manifest, DataUse::training, {nullptr, &images}, &alphabet, lines_shown);
  LineSheet sheet;
  sheet.title = str("Lines of ", manifest, ": as they are, and in ", epochs_shown, " epochs");
  for (int64_t i = 0; i < data->size(); ++i) {
    sheet.rows.push_back(
        row_of(data->raw_features(i), config.features.direction, data->entry(i).text.value_or("")));
    for (uint64_t epoch = 0; epoch < epochs_shown; ++epoch)
      sheet.rows.push_back(row_of(data->distorted_line(i, epoch), config.features.direction, ""));
  }
  if (has_ending(file, ".svg")) return replace_text_file(file, line_sheet_svg(sheet));
  replace_text_file(file, png_of(sheet));
}

}  // namespace rondo
