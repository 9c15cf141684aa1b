#include "engine/data/features/kaldi_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "kernels/base/error.h"

namespace rondo::data {
namespace {

using Kind = KaldiMatrixKind;

struct Token {
  std::string_view text;
  Kind kind;
};
constexpr std::array tokens = {Token{"FM ", Kind::f32}, Token{"DM ", Kind::f64},
                               Token{"CM ", Kind::bytes_by_columns}, Token{"CM2 ", Kind::two_bytes},
                               Token{"CM3 ", Kind::bytes}};

template <class T>
T value_at(std::span<const std::byte> bytes, uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Takes one value after another.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  uint64_t at() const { return at_; }

  template <class T>
  T next() {
    if (bytes_.size() - at_ < sizeof(T)) fail_input(name_, ": ends within the matrix's header");
    const T value = value_at<T>(bytes_, at_);
    at_ += sizeof(T);
    return value;
  }
  // Kaldi writes how many bytes an integer has before it.
  int32_t sized_integer() {
    if (next<uint8_t>() != 4) fail_input(name_, ": the matrix's size is no integer of four bytes");
    return next<int32_t>();
  }
  Kind kind() {
    for (const Token& token : tokens) {
      const size_t n = token.text.size();
      if (bytes_.size() - at_ < n || std::memcmp(bytes_.data() + at_, token.text.data(), n) != 0)
        continue;
      at_ += n;
      return token.kind;
    }
    fail_input(name_, ": holds no matrix (FM, DM, CM, CM2 or CM3 expected)");
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view name_;
  uint64_t at_ = 2;  // behind "\0B"
};

// What the bytes of a column stand for.
struct Percentiles {
  float values[4];

  Percentiles(std::span<const std::byte> bytes, uint64_t at, const KaldiHeader& h) {
    for (uint64_t i = 0; i < 4; ++i) {
      const auto stored = static_cast<float>(value_at<uint16_t>(bytes, at + 2 * i));
      values[i] = h.minimum + h.range * (1.0f / 65535) * stored;
    }
  }
  float of(uint8_t byte) const {
    const auto [p0, p25, p75, p100] = values;
    const auto x = static_cast<float>(byte);
    if (byte <= 64) return p0 + (p25 - p0) * x * (1.0f / 64);
    if (byte <= 192) return p25 + (p75 - p25) * (x - 64) * (1.0f / 128);
    return p75 + (p100 - p75) * (x - 192) * (1.0f / 63);
  }
};

void decompress_columns(std::span<const std::byte> bytes, const KaldiHeader& h,
                        std::vector<float>& out) {
  const auto rows = static_cast<size_t>(h.rows), columns = static_cast<size_t>(h.columns);
  const std::byte* stored = bytes.data() + h.data_offset + 8 * columns;
  for (size_t c = 0; c < columns; ++c, stored += rows) {
    const Percentiles column(bytes, h.data_offset + 8 * c, h);
    for (size_t r = 0; r < rows; ++r)
      out[r * columns + c] = column.of(std::to_integer<uint8_t>(stored[r]));
  }
}

// value = scale x + offset for each of the stored elements.
template <class T>
void convert(const std::byte* stored, float scale, float offset, std::vector<float>& out) {
  for (float& v : out) {
    T element;
    std::memcpy(&element, stored, sizeof element);
    stored += sizeof element;
    v = offset + scale * static_cast<float>(element);
  }
}

}  // namespace

uint64_t KaldiHeader::total_bytes() const {
  const auto columns_u = static_cast<uint64_t>(columns);
  const uint64_t elements = static_cast<uint64_t>(rows) * columns_u;
  switch (kind) {
    case Kind::f32:
      return data_offset + 4 * elements;
    case Kind::f64:
      return data_offset + 8 * elements;
    case Kind::bytes_by_columns:
      return data_offset + 8 * columns_u + elements;
    case Kind::two_bytes:
      return data_offset + 2 * elements;
    case Kind::bytes:
      return data_offset + elements;
  }
  return data_offset;
}

bool is_kaldi_binary(std::span<const std::byte> start) {
  return start.size() >= 2 && start[0] == std::byte{0} && start[1] == std::byte{'B'};
}

KaldiHeader parse_kaldi_header(std::span<const std::byte> start, std::string_view name) {
  if (!is_kaldi_binary(start))
    fail_input(name, ": is not binary as Kaldi writes it, expected \"\\0B\" and a matrix");
  Reader reader(start, name);
  KaldiHeader header;
  header.kind = reader.kind();
  if (header.kind == Kind::f32 || header.kind == Kind::f64) {
    header.rows = reader.sized_integer();
    header.columns = reader.sized_integer();
  } else {
    header.minimum = reader.next<float>();
    header.range = reader.next<float>();
    header.rows = reader.next<int32_t>();
    header.columns = reader.next<int32_t>();
  }
  header.data_offset = reader.at();
  if (header.rows < 0 || header.columns < 0)
    fail_input(name, ": has a matrix of ", header.rows, " x ", header.columns);
  constexpr int64_t most_elements = int64_t{1} << 40;  // sizes are far from overflowing
  if (int64_t{header.rows} * header.columns > most_elements)
    fail_input(name, ": has a matrix of ", header.rows, " x ", header.columns,
               ", which is too large");
  return header;
}

void check_kaldi_size(uint64_t bytes, const KaldiHeader& header, std::string_view name) {
  if (bytes < header.total_bytes())
    fail_input(name, ": is truncated: its matrix has ", header.total_bytes(), " bytes, there are ",
               bytes);
}

std::vector<float> kaldi_floats(std::span<const std::byte> bytes, const KaldiHeader& h,
                                std::string_view name) {
  check_kaldi_size(bytes.size(), h, name);
  std::vector<float> out(static_cast<size_t>(h.rows) * static_cast<size_t>(h.columns));
  const std::byte* stored = bytes.data() + h.data_offset;
  switch (h.kind) {
    case Kind::f32:
      convert<float>(stored, 1, 0, out);
      break;
    case Kind::f64:
      convert<double>(stored, 1, 0, out);
      break;
    case Kind::bytes_by_columns:
      decompress_columns(bytes, h, out);
      break;
    case Kind::two_bytes:
      convert<uint16_t>(stored, h.range * (1.0f / 65535), h.minimum, out);
      break;
    case Kind::bytes:
      convert<uint8_t>(stored, h.range * (1.0f / 255), h.minimum, out);
      break;
  }
  return out;
}

}  // namespace rondo::data
