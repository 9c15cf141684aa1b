// Matrices as Kaldi's binary archives hold them, one after another.
//
// Format: "\0B", then one of
//   "FM " or "DM "           rows and columns as "\4" and an int32 each, then f32 or f64 by rows
//   "CM ", "CM2 ", "CM3 "    compressed: minimum and range (f32), rows and columns (int32), then
//     CM    for each column the 0th, 25th, 75th and 100th percentile as u16, then for each column
//           a byte per row, between these piecewise linear: 0 to 64, 64 to 192, 192 to 255
//     CM2   u16 by rows: minimum + range x / 65535
//     CM3   bytes by rows: minimum + range x / 255
// Little-endian. (Kaldi: src/matrix/kaldi-matrix.cc, compressed-matrix.cc.)
// Errors: InputError that names the file and what is wrong with it.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace rondo::data {

enum class KaldiMatrixKind { f32, f64, bytes_by_columns, two_bytes, bytes };

struct KaldiHeader {
  KaldiMatrixKind kind = KaldiMatrixKind::f32;
  int32_t rows = 0, columns = 0;
  float minimum = 0, range = 0;  // of compressed ones
  uint64_t data_offset = 0;      // from the "\0"

  // All bytes of the matrix, its header's among them.
  uint64_t total_bytes() const;
};

// The longest header.
inline constexpr size_t needed_kaldi_header_bytes = 2 + 4 + 16;

// Whether it begins like a binary object of Kaldi's.
bool is_kaldi_binary(std::span<const std::byte> start);
KaldiHeader parse_kaldi_header(std::span<const std::byte> start, std::string_view name);
// InputError unless so many bytes hold the matrix; what comes behind it is another one.
void check_kaldi_size(uint64_t bytes, const KaldiHeader& header, std::string_view name);
// By rows: [rows, columns].
std::vector<float> kaldi_floats(std::span<const std::byte> bytes, const KaldiHeader& header,
                                std::string_view name);

}  // namespace rondo::data
