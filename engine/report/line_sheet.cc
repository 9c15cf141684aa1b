#include <algorithm>

#include "engine/report/charts.h"
#include "engine/report/svg.h"

namespace rondo {

std::string line_sheet_svg(const LineSheet& sheet) {
  constexpr double margin = 20, caption = 18, gap = 8;
  double width = 640, height = 44;
  for (const LineSheet::Row& row : sheet.rows) {
    width = std::max(width, row.columns + 2 * margin);
    height += row.rows + gap + (row.caption.empty() ? 0 : caption + gap);
  }
  svg::Picture picture(width, height + margin, sheet.title);
  picture.text({margin, 24}, sheet.title, "strong");
  double y = 44;
  for (const LineSheet::Row& row : sheet.rows) {
    if (!row.caption.empty()) {
      y += caption + gap;
      picture.text({margin, y - 6}, row.caption, "label");
    }
    picture.image(margin, y, row.columns, row.rows, row.grey, row.columns, row.rows);
    y += row.rows + gap;
  }
  return picture.finish();
}

}  // namespace rondo
