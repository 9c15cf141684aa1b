#include "engine/report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo::svg {
namespace {

// Colours that differ for colour-blind readers too (after Okabe and Ito), for either background.
constexpr std::array<const char*, palette_size> light = {
    "#0072b2", "#d55e00", "#008f6b", "#b4559a", "#8a6d00", "#2a9fd6", "#7b4bb5", "#666666"};
constexpr std::array<const char*, palette_size> dark = {"#56b4e9", "#ff9150", "#2fd1a5", "#e79cc9",
                                                        "#e8d44d", "#9ad4f5", "#bfa0f0", "#a8a8a8"};

std::string palette_css(const std::array<const char*, palette_size>& colours) {
  std::string s;
  for (size_t i = 0; i < colours.size(); ++i) {
    const std::string n = std::to_string(i), c = colours[i];
    s += str(".s", n, "{stroke:", c, "}.f", n, "{fill:", c, "}");
  }
  return s;
}

std::string style() {
  return "<style>"
         "text{font:12px system-ui,'DejaVu "
         "Sans',Arial,sans-serif}.strong{font-weight:600;font-size:14px}"
         "polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}polyline.thin{stroke-width:1}"
         ".wash{opacity:.3}.band{opacity:.18}"
         ".bg{fill:#fff}.label,.strong{fill:#24292f}.note{fill:#57606a}"
         ".axis{stroke:#57606a}.grid{stroke:#d8dee4}.dashed{stroke-dasharray:4 3}"
         ".end{font-weight:600}.on{fill:#fff}" +
         palette_css(light) +
         "@media(prefers-color-scheme:dark){.bg,.on{fill:#0d1117}.label,.strong{fill:#e6edf3}"
         ".note{fill:#9da7b3}.axis{stroke:#9da7b3}.grid{stroke:#30363d}image{filter:invert(1)}" +
         palette_css(dark) + "}</style>\n";
}

std::string attribute(const char* name, double value) {
  return std::string(" ") + name + "=\"" + number(value) + "\"";
}
std::string class_of(std::string_view css) { return " class=\"" + std::string(css) + "\""; }

std::string points_attribute(std::span<const Point> points) {
  std::string s = " points=\"";
  for (size_t i = 0; i < points.size(); ++i) {
    s += str(i ? " " : "", number(points[i].x), ",", number(points[i].y));
  }
  return s + "\"";
}

void put32(std::string& s, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) s += static_cast<char>(v >> shift);
}

uint32_t crc32(std::string_view bytes) {
  uint32_t c = ~0u;
  for (char b : bytes) {
    c ^= static_cast<unsigned char>(b);
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) ? 0xedb88320u : 0u);
  }
  return ~c;
}

uint32_t adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (char c : bytes) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

void chunk(std::string& png, const std::string& type, const std::string& data) {
  put32(png, static_cast<uint32_t>(data.size()));
  png += type + data;
  put32(png, crc32(type + data));
}

// PNG with stored (uncompressed) deflate blocks: no library, and the pictures are small.
std::string grey_png(std::span<const unsigned char> grey, int columns, int rows) {
  std::string scanlines;
  for (int r = 0; r < rows; ++r) {
    scanlines += '\0';
    const auto row = grey.subspan(static_cast<size_t>(r) * static_cast<size_t>(columns),
                                  static_cast<size_t>(columns));
    scanlines.append(reinterpret_cast<const char*>(row.data()), row.size());
  }
  std::string zlib = "\x78\x01";
  constexpr size_t block = 65535;
  for (size_t at = 0; at < scanlines.size(); at += block) {
    const size_t n = std::min(block, scanlines.size() - at);
    zlib += static_cast<char>(at + n == scanlines.size());
    for (const size_t v : {n, ~n}) {
      zlib += static_cast<char>(v & 0xff);
      zlib += static_cast<char>(v >> 8 & 0xff);
    }
    zlib.append(scanlines, at, n);
  }
  put32(zlib, adler32(scanlines));
  std::string header;
  put32(header, static_cast<uint32_t>(columns));
  put32(header, static_cast<uint32_t>(rows));
  header += std::string("\x08\x00\x00\x00\x00", 5);  // 8 bits, grey, no interlace
  std::string png = "\x89PNG\r\n\x1a\n";
  chunk(png, "IHDR", header);
  chunk(png, "IDAT", zlib);
  chunk(png, "IEND", "");
  return png;
}

}  // namespace

std::string base64(std::string_view bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string s;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t v = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k)
      v = v << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) s += k <= n ? digits[v >> (18 - 6 * k) & 63] : '=';
  }
  return s;
}

double text_width(std::string_view text) {
  double width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c & 0xc0) == 0x80) continue;  // goes on
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool combining = c == 0xcc || (c == 0xcd && next < 0xb0);  // U+0300 to U+036F
    if (combining) continue;
    const bool wide =
        c >= 0xe3 || std::string_view("mwMW@%").find(text[i]) != std::string_view::npos;
    const bool narrow = std::string_view("ijlt.,;:'|! ").find(text[i]) != std::string_view::npos;
    width += wide ? 12.5 : narrow ? 5 : 8;
  }
  return width;
}

std::string number(double x) {
  std::string s = fixed_text(x, 2);
  while (s.back() == '0') s.pop_back();
  if (s.back() == '.') s.pop_back();
  if (s == "-0") s.erase(0, 1);
  return s;
}

std::string escape(std::string_view text) {
  std::string s;
  for (char c : text) {
    switch (c) {
      case '&':
        s += "&amp;";
        break;
      case '<':
        s += "&lt;";
        break;
      case '>':
        s += "&gt;";
        break;
      case '"':
        s += "&quot;";
        break;
      // XML 1.0 has no way to spell other control characters.
      default:
        s += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return s;
}

Picture::Picture(double width, double height, std::string_view title) {
  const std::string w = number(width), h = number(height);
  body_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h +
          "\" viewBox=\"0 0 " + w + " " + h + "\" role=\"img\">\n<title>" + escape(title) +
          "</title>\n" + style();
  rect(0, 0, width, height, "bg");
}

void Picture::line(Point from, Point to, std::string_view css) {
  body_ += "<line" + attribute("x1", from.x) + attribute("y1", from.y) + attribute("x2", to.x) +
           attribute("y2", to.y) + class_of(css) + "/>\n";
}

void Picture::polyline(std::span<const Point> points, std::string_view css) {
  body_ += "<polyline" + points_attribute(points) + class_of(css) + "/>\n";
}

void Picture::polygon(std::span<const Point> points, std::string_view css) {
  body_ += "<polygon" + points_attribute(points) + class_of(css) + "/>\n";
}

void Picture::rect(double x, double y, double width, double height, std::string_view css) {
  body_ += "<rect" + attribute("x", x) + attribute("y", y) + attribute("width", width) +
           attribute("height", height) + class_of(css) + "/>\n";
}

void Picture::circle(Point centre, double radius, std::string_view css) {
  body_ += "<circle" + attribute("cx", centre.x) + attribute("cy", centre.y) +
           attribute("r", radius) + class_of(css) + "/>\n";
}

void Picture::text(Point at, std::string_view text, std::string_view css, std::string_view anchor,
                   double rotate) {
  body_ += str("<text", attribute("x", at.x), attribute("y", at.y), " text-anchor=\"", anchor, "\"",
               class_of(css));
  if (rotate != 0) {
    body_ +=
        str(" transform=\"rotate(", number(rotate), " ", number(at.x), " ", number(at.y), ")\"");
  }
  body_ += str(">", escape(text), "</text>\n");
}

void Picture::image(double x, double y, double width, double height,
                    std::span<const unsigned char> grey, int columns, int rows) {
  RONDO_CHECK(columns > 0 && rows > 0 &&
                  grey.size() == static_cast<size_t>(columns) * static_cast<size_t>(rows),
              "an image of ", columns, " x ", rows, " from ", grey.size(), " bytes");
  body_ += "<image" + attribute("x", x) + attribute("y", y) + attribute("width", width) +
           attribute("height", height) +
           " preserveAspectRatio=\"none\" href=\"data:image/png;base64," +
           base64(grey_png(grey, columns, rows)) + "\"/>\n";
}

std::string Picture::finish() const { return body_ + "</svg>\n"; }

std::vector<double> ticks(double low, double high) {
  if (!(high > low)) return {low};
  const double raw = (high - low) / 6;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double ratio = raw / power;
  const double step = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
  std::vector<double> result;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k)
    result.push_back(k * step + 0.0);  // -0 becomes 0
  return result;
}

std::vector<double> log_ticks(double low, double high) {
  constexpr size_t enough = 5;
  const std::vector<double> sets[] = {{1}, {1, 2, 5}, {1, 1.5, 2, 3, 5, 7}};
  std::vector<double> result;
  for (const std::vector<double>& factors : sets) {
    result.clear();
    for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10) {
      for (double factor : factors) {
        const double v = power * factor;
        if (v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)) result.push_back(v);
      }
    }
    if (result.size() >= enough) break;
  }
  return result;
}

double log_tick_below(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (double factor : {7.0, 5.0, 3.0, 2.0, 1.5, 1.0}) {
    if (power * factor < value * 0.97) return power * factor;
  }
  return power * 0.7;
}

std::string tick_text(double value, double step) {
  if (std::abs(value) >= 1e6 && std::fmod(value, 1e5) == 0) return short_text(value / 1e6, 6) + "M";
  if (std::abs(value) >= 1e4 && std::fmod(value, 100) == 0) return short_text(value / 1e3, 6) + "k";
  const int digits = step >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  return fixed_text(value, std::min(digits, 9));
}

}  // namespace rondo::svg
