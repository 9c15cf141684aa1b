// PBM, PGM and PPM, plain and raw (P1 to P6), as netpbm's manual pages pbm(5), pgm(5) and ppm(5)
// define them. Of several pictures in a file the first is read.
#include <algorithm>
#include <string_view>

#include "engine/data/image/decoders.h"
#include "kernels/base/error.h"

namespace rondo::image {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class Reader {
 public:
  Reader(Bytes bytes, const std::string& name)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), name_(name) {}

  ImageInfo header();
  GreyImage pixels();
  // Pictures from here on, as far as their headers tell: of plain ones the first alone.
  int32_t count();

 private:
  [[noreturn]] void fail_truncated() const {
    fail_input(name_, ": is truncated: it ends after ", text_.size(), " bytes");
  }
  // White space, and comments from # to the end of the line.
  void skip() {
    while (at_ < text_.size() && (is_space(text_[at_]) || text_[at_] == '#')) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size() - 1);
      ++at_;
    }
  }
  uint32_t number(const char* what) {
    skip();
    if (at_ >= text_.size()) fail_truncated();
    uint32_t value = 0;
    const size_t begin = at_;
    constexpr size_t most_digits = 9;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (at_ - begin == most_digits) fail_input(name_, ": ", what, " has more than 9 digits");
      value = value * 10 + static_cast<uint32_t>(text_[at_++] - '0');
    }
    if (at_ == begin) fail_input(name_, ": expected ", what, ", a number, at byte ", at_);
    return value;
  }
  // Of a plain bitmap, whose digits need no space between them.
  uint32_t plain_bit() {
    skip();
    if (at_ >= text_.size()) fail_truncated();
    const char c = text_[at_];
    if (c != '0' && c != '1') fail_input(name_, ": expected 0 or 1 at byte ", at_);
    ++at_;
    return c == '1';
  }
  uint32_t raw_sample() {
    const auto byte = [&] { return static_cast<uint32_t>(static_cast<uint8_t>(text_[at_++])); };
    const uint32_t high = byte();
    return most_ > 255 ? high << 8 | byte() : high;
  }
  bool is_plain() const { return kind_ <= '3'; }
  bool is_bitmap() const { return kind_ == '1' || kind_ == '4'; }
  bool is_colour() const { return kind_ == '3' || kind_ == '6'; }
  uint64_t raster_bytes() const;
  void require_bytes() const;
  void raw_bits(GreyImage& out);

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  char kind_ = 0;
  uint32_t most_ = 1;  // the sample that is white
  ImageInfo size_;
};

ImageInfo Reader::header() {
  kind_ = text_[1];
  at_ = 2;
  const uint32_t width = number("the width"), height = number("the height");
  size_ = require_image_size(width, height, name_);
  if (!is_bitmap()) {
    most_ = number("the largest sample");
    if (most_ < 1 || most_ > 65535) {
      fail_input(name_, ": its largest sample is ", most_, ", expected 1 to 65535");
    }
  }
  // One white space, whatever follows.
  if (at_ >= text_.size()) fail_truncated();
  if (!is_space(text_[at_]))
    fail_input(name_, ": expected a space after the header, at byte ", at_);
  ++at_;
  return size_;
}

// At least: a plain sample takes a byte or more.
uint64_t Reader::raster_bytes() const {
  const auto width = static_cast<uint64_t>(size_.width);
  uint64_t row = width * (is_colour() ? 3 : 1);
  if (kind_ == '4') row = (width + 7) / 8;
  if (!is_plain() && !is_bitmap() && most_ > 255) row *= 2;
  return row * static_cast<uint64_t>(size_.height);
}

int32_t Reader::count() {
  int32_t pictures = 0;
  for (;;) {
    header();
    ++pictures;
    if (is_plain() || text_.size() - at_ <= raster_bytes()) return pictures;
    text_.remove_prefix(at_ + raster_bytes());
    if (!is_pnm(std::as_bytes(std::span(text_)))) return pictures;
  }
}

// Before memory is taken for the pixels.
void Reader::require_bytes() const {
  const uint64_t needed = raster_bytes(), have = text_.size() - at_;
  if (have >= needed) return;
  fail_input(name_, ": is truncated: ", size_.width, " x ", size_.height, " pixels take ", needed,
             " bytes, it has ", have);
}

void Reader::raw_bits(GreyImage& out) {
  for (int32_t y = 0; y < size_.height; ++y) {
    for (int32_t x = 0; x < size_.width; ++x) {
      const auto byte = static_cast<uint8_t>(text_[at_ + static_cast<size_t>(x / 8)]);
      out.row(y)[x] = (byte >> (7 - x % 8) & 1) ? 0 : 255;
    }
    at_ += static_cast<size_t>((size_.width + 7) / 8);
  }
}

GreyImage Reader::pixels() {
  require_bytes();
  GreyImage out(size_.width, size_.height);
  if (kind_ == '4') {
    raw_bits(out);
    return out;
  }
  const auto read = [&] { return is_plain() ? number("a sample") : raw_sample(); };
  uint32_t white = most_;
  if (most_ == 65535) {
    // Whoever has fewer bits ought to say so in the header, and often does not.
    const size_t begin = at_, count = out.pixels.size() * (is_colour() ? 3 : 1);
    uint32_t largest = 0;
    for (size_t i = 0; i < count; ++i) largest = std::max(largest, read());
    white = white_of_16_bits(largest);
    at_ = begin;
  }
  const auto sample = [&] { return grey_of(read(), white); };
  for (uint8_t& pixel : out.pixels) {
    if (kind_ == '1') {
      pixel = plain_bit() ? 0 : 255;
    } else if (is_colour()) {
      const uint8_t r = sample(), g = sample(), b = sample();
      pixel = luminance(r, g, b);
    } else {
      pixel = sample();
    }
  }
  return out;
}

}  // namespace

bool is_pnm(Bytes start) {
  if (start.size() < 3 || start[0] != std::byte{'P'}) return false;
  const char kind = static_cast<char>(start[1]), next = static_cast<char>(start[2]);
  return kind >= '1' && kind <= '6' && (is_space(next) || next == '#');
}

ImageInfo pnm_info(Bytes bytes, const std::string& name) { return Reader(bytes, name).header(); }

int32_t pnm_pages(Bytes bytes) {
  const std::string name;
  Reader reader(bytes, name);
  int32_t pictures = 1;
  try {
    pictures = reader.count();
  } catch (const InputError&) {
    // What is behind the first picture is none.
  }
  return pictures;
}

GreyImage decode_pnm(Bytes bytes, const std::string& name) {
  Reader reader(bytes, name);
  reader.header();
  return reader.pixels();
}

}  // namespace rondo::image
