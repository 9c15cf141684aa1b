// Drawing primitives of the charts (internal to engine/report).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::svg {

struct Point {
  double x = 0, y = 0;
};

// At most two decimals, no "-0", no exponent.
std::string number(double x);
std::string escape(std::string_view text);
std::string base64(std::string_view bytes);
// About how wide a text is in the size of labels, in pixels, rather more than less.
double text_width(std::string_view text);

// Elements are appended in painting order. Colours come from classes: s0…s7 the palette (stroke),
// f0…f7 the same as fill, "axis", "grid", "faint" lines, "label", "strong" text, "on" text that
// stands on one of f0…f3.
class Picture {
 public:
  Picture(double width, double height, std::string_view title);
  void line(Point from, Point to, std::string_view css);
  void polyline(std::span<const Point> points, std::string_view css);
  void polygon(std::span<const Point> points, std::string_view css);
  void rect(double x, double y, double width, double height, std::string_view css);
  void circle(Point centre, double radius, std::string_view css);
  // anchor: "start", "middle", "end"
  void text(Point at, std::string_view text, std::string_view css,
            std::string_view anchor = "start", double rotate = 0);
  // A grey image [rows, columns], row 0 on top, 0 black to 255 white, stretched without smoothing.
  void image(double x, double y, double width, double height, std::span<const unsigned char> grey,
             int columns, int rows);
  std::string finish() const;

 private:
  std::string body_;
};

inline constexpr int palette_size = 8;

// 4 to 8 round numbers that cover [low, high].
std::vector<double> ticks(double low, double high);
// Powers of ten within [low, high], low > 0; where these are few, 2 and 5 times them too, and
// then 1.5, 3 and 7 times them.
std::vector<double> log_ticks(double low, double high);
// The greatest of the latter that is clearly below the value, which is positive.
double log_tick_below(double value);
std::string tick_text(double value, double step);

}  // namespace rondo::svg
