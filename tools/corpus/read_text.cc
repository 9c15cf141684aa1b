#include "tools/corpus/read_text.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "engine/data/features/files.h"
#include "engine/io/file.h"
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

}  // namespace

std::string decoded_text(std::string content, const std::string& name) {
  if (content.starts_with(gzip_mark)) content = expanded(content, name);
  return as_utf8(std::move(content));
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
