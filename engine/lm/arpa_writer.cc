#include "engine/lm/arpa_writer.h"

#include <zlib.h>

#include <array>
#include <charconv>
#include <new>

#include "kernels/base/error.h"

namespace rondo::lm {
namespace {

constexpr size_t piece_bytes = size_t{1} << 16;

// The shortest number that is read as the same float.
void append_number(std::string& text, float value) {
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  RONDO_CHECK(error == std::errc{});
  text.append(digits.data(), end);
}

}  // namespace

struct ArpaWriter::Deflater {
  Deflater() {
    constexpr int gzip_header = 16;
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + gzip_header, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~Deflater() { deflateEnd(&stream); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void write(std::string& text, bool last, FileWriter& file) {
    stream.next_in = reinterpret_cast<Bytef*>(text.data());
    stream.avail_in = static_cast<uInt>(text.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
      file.write(std::string_view(out.data(), out.size() - stream.avail_out));
    } while (stream.avail_out == 0);
  }

  z_stream stream{};
  std::array<char, piece_bytes> out;
};

ArpaWriter::ArpaWriter(const Vocabulary& vocabulary, FileWriter& file, bool compressed)
    : vocabulary_(vocabulary), file_(file) {
  if (compressed) deflater_ = std::make_unique<Deflater>();
}

ArpaWriter::~ArpaWriter() = default;

void ArpaWriter::flush() {
  if (deflater_) {
    deflater_->write(text_, false, file_);
  } else {
    file_.write(text_);
  }
  text_.clear();
}

void ArpaWriter::begin(std::span<const uint64_t> counts) {
  orders_ = counts.size();
  text_ = "\\data\\\n";
  for (size_t k = 0; k < counts.size(); ++k) text_ += str("ngram ", k + 1, "=", counts[k], "\n");
}

void ArpaWriter::header(size_t order) {
  while (open_ < order) text_ += str("\n\\", ++open_, "-grams:\n");
}

bool ArpaWriter::add(std::span<const Word> words, float probability, float backoff) {
  header(words.size());
  append_number(text_, probability);
  for (size_t i = 0; i < words.size(); ++i) {
    text_ += i == 0 ? '\t' : ' ';
    text_ += vocabulary_.text(words[i]);
  }
  if (backoff != 0) {
    text_ += '\t';
    append_number(text_, backoff);
  }
  text_ += '\n';
  if (text_.size() >= piece_bytes) flush();
  return true;
}

void ArpaWriter::end() {
  header(orders_);
  text_.append("\n\\end\\\n");
  if (deflater_) {
    deflater_->write(text_, true, file_);
  } else {
    flush();
  }
}

}  // namespace rondo::lm
