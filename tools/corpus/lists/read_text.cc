#include "tools/corpus/lists/read_text.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "engine/data/features/files.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

constexpr std::string_view gzip_mark = "\x1f\x8b";
// A small file may say that it is a very long one.
constexpr size_t most_expanded_bytes = size_t{1} << 30;

struct EndInflate {
  void operator()(z_stream* stream) const { ::inflateEnd(stream); }
};

// Of one or several parts, as gzip and pigz write them.
std::string expanded(std::string_view packed, const std::string& name) {
  z_stream stream{};
  constexpr int gzip_alone = 16 + MAX_WBITS;
  if (::inflateInit2(&stream, gzip_alone) != Z_OK) fail_input(name, ": cannot be decompressed");
  const std::unique_ptr<z_stream, EndInflate> end(&stream);
  std::string text;
  size_t taken = 0;
  for (int status = Z_OK;;) {
    char buffer[1 << 16];
    const size_t piece = std::min<size_t>(packed.size() - taken, 1 << 20);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + taken));
    stream.avail_in = static_cast<uInt>(piece);
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof buffer;
    status = ::inflate(&stream, Z_NO_FLUSH);
    taken += piece - stream.avail_in;
    const size_t written = sizeof buffer - stream.avail_out;
    text.append(buffer, written);
    if (text.size() > most_expanded_bytes)
      fail_input(name, ": expands to more than ", most_expanded_bytes, " bytes");
    if (status == Z_STREAM_END) {
      // What follows is another part, or padding.
      if (!packed.substr(taken).starts_with(gzip_mark)) return text;
      if (::inflateReset(&stream) != Z_OK) fail_input(name, ": cannot be decompressed");
    } else if (status == Z_BUF_ERROR && taken == packed.size()) {
      fail_input(name, ": the compressed file ends too early");
    } else if (status != Z_OK) {
      fail_input(name, ": its compression is damaged (", stream.msg ? stream.msg : "no cause given",
                 ")");
    }
  }
}

void append_utf8(char32_t c, std::string& text) {
  const auto byte = [&](char32_t value) { text += static_cast<char>(value); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) {
    byte(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      byte(0xe0 | c >> 12);
    } else {
      byte(0xf0 | c >> 18);
      byte(0x80 | (c >> 12 & 0x3f));
    }
    byte(0x80 | (c >> 6 & 0x3f));
  }
  byte(0x80 | (c & 0x3f));
}

enum class Order { none, low_first, high_first };

Order utf16_order(std::string_view text) {
  if (text.starts_with("\xff\xfe")) return Order::low_first;
  if (text.starts_with("\xfe\xff")) return Order::high_first;
  if (text.size() < 4) return Order::none;
  const auto is_zero = [&](size_t i) { return text[i] == '\0'; };
  if (!is_zero(0) && is_zero(1) && !is_zero(2) && is_zero(3)) return Order::low_first;
  if (is_zero(0) && !is_zero(1) && is_zero(2) && !is_zero(3)) return Order::high_first;
  return Order::none;
}

std::string from_utf16(std::string_view bytes, Order order) {
  const auto unit = [&](size_t at) {
    const auto a = static_cast<unsigned char>(bytes[at]);
    const auto b = static_cast<unsigned char>(bytes[at + 1]);
    return static_cast<char32_t>(order == Order::low_first ? a | b << 8 : a << 8 | b);
  };
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at + 1 < bytes.size(); at += 2) {
    char32_t c = unit(at);
    if (c >= 0xd800 && c < 0xdc00 && at + 3 < bytes.size()) {
      const char32_t low = unit(at + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
        at += 2;
      }
    }
    append_utf8(c, text);
  }
  // Half a unit is none.
  if (bytes.size() % 2 != 0) text += '\xff';
  return text;
}

}  // namespace

std::string decoded_text(std::string content, const std::string& name) {
  if (content.starts_with(gzip_mark)) content = expanded(content, name);
  const Order order = utf16_order(content);
  if (order != Order::none) content = from_utf16(content, order);
  const size_t mark = content.size() - data::without_byte_order_mark(content).size();
  content.erase(0, mark);
  return content;
}

std::string read_text(const std::string& path) {
  std::error_code ignored;
  const std::string packed = path + ".gz";
  const bool is_packed =
      !std::filesystem::exists(path, ignored) && std::filesystem::exists(packed, ignored);
  const std::string& file = is_packed ? packed : path;
  return decoded_text(data::read_regular_file(file), file);
}

}  // namespace rondo::corpus
