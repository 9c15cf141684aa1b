// NumPy's .npy files.
//
// Format: the magic string, version 1.0, 2.0 or 3.0, a Python dictionary with descr, fortran_order
// and shape, then the elements. Read: f2, f4, f8, signed and unsigned integers, of either order of
// bytes, in C's order of elements or Fortran's. Written: version 1.0, '<f4', data aligned to 64
// bytes, as NumPy does. Errors: InputError that names the file and what is wrong with it. Thread
// safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::data {

struct NpyHeader {
  char kind = 'f';         // f, i or u
  int32_t item_bytes = 4;  // 1, 2, 4 or 8
  bool big_endian = false, fortran_order = false;
  std::vector<int64_t> shape;
  uint64_t data_offset = 0;  // from the file's start

  int64_t numel() const;
};

// The header of a file, given at least its first `needed_npy_header_bytes` (or the whole file, if
// shorter).
inline constexpr size_t needed_npy_header_bytes = 65536 + 12;
NpyHeader parse_npy_header(std::span<const std::byte> start, std::string_view name);

// InputError unless a file of so many bytes is exactly as long as its header says.
void check_npy_size(uint64_t file_bytes, const NpyHeader& header, std::string_view name);

// The elements, converted, in C's order. The file must be exactly as long as its header says.
// Numbers that do not fit, and elements of the wrong kind, are errors.
std::vector<float> npy_floats(std::span<const std::byte> file, const NpyHeader& header,
                              std::string_view name);
std::vector<int32_t> npy_integers(std::span<const std::byte> file, const NpyHeader& header,
                                  std::string_view name);

// A 64-bit float as one of 32 bits; InputError that names the frame and the column if it is too
// large. `index`: of the element in [frames, columns].
float to_float(double value, size_t index, size_t columns, std::string_view name);

// A whole .npy file in memory. The product of `shape` must be values.size().
std::string make_npy(std::span<const int64_t> shape, std::span<const float> values);

}  // namespace rondo::data
