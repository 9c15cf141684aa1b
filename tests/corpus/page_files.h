// Pages as PAGE-XML and ALTO, and their images, as tests want them.
#pragma once

#include <filesystem>
#include <string>

#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "kernels/base/error.h"

namespace rondo::test {

inline std::string page_xml(const std::string& content,
                            const std::string& attributes = "imageFilename=\"p.png\"") {
  return "<?xml version=\"1.0\"?>\n<PcGts "
         "xmlns=\"http://schema.primaresearch.org/PAGE/gts/pagecontent/"
         "2013-07-15\"><Page " +
         attributes + ">" + content + "</Page></PcGts>";
}

inline std::string region(const std::string& id, const std::string& lines) {
  return "<TextRegion id=\"" + id + "\">" + lines + "</TextRegion>";
}

inline std::string line(const std::string& id, const std::string& text,
                        const std::string& points = "0,0 200,0 200,40 0,40") {
  return "<TextLine id=\"" + id + "\"><Coords points=\"" + points + "\"/><TextEquiv><Unicode>" +
         text + "</Unicode></TextEquiv></TextLine>";
}

inline std::string alto(const std::string& lines, const std::string& size = "",
                        const std::string& unit = "pixel", const std::string& image = "p.png") {
  return "<alto xmlns=\"http://www.loc.gov/standards/alto/ns-v3#\"><Description><MeasurementUnit>" +
         unit + "</MeasurementUnit><sourceImageInformation><fileName>" + image +
         "</fileName></sourceImageInformation></Description><Layout><Page " + size +
         "><PrintSpace><TextBlock ID=\"b\">" + lines +
         "</TextBlock></PrintSpace></Page></Layout></alto>";
}

// Upright strokes in rows of 40 pixels.
inline void save_page_image(const std::string& path, int32_t rows) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  GreyImage image(220, 40 * rows);
  for (int32_t y = 0; y < image.height; ++y)
    for (int32_t x = 0; x < image.width; ++x)
      image.row(y)[x] = x % 20 < 4 && y % 40 > 8 && y % 40 < 32 ? 0 : 255;
  data::write_whole_file(path, make_png(image));
}

}  // namespace rondo::test
