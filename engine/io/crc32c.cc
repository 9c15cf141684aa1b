#include "engine/io/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rondo {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? 0x82f63b78u : 0u);
    t[0][i] = c;
  }
  for (size_t i = 0; i < 256; ++i) {
    for (size_t k = 1; k < 8; ++k) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xff];
  }
  return t;
}

constexpr Tables tables = make_tables();

uint64_t load64(const std::byte* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2,crc32"))) uint32_t crc32c_sse42(const std::byte* p, size_t n,
                                                              uint32_t crc) {
  uint64_t c = ~crc;
  for (; n >= 8; n -= 8, p += 8) c = __builtin_ia32_crc32di(c, load64(p));
  auto c32 = static_cast<uint32_t>(c);
  for (; n > 0; --n, ++p) c32 = __builtin_ia32_crc32qi(c32, static_cast<unsigned char>(*p));
  return ~c32;
}
#endif

}  // namespace

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc) {
  const std::byte* p = bytes.data();
  size_t n = bytes.size();
  uint32_t c = ~crc;
  if constexpr (std::endian::native == std::endian::little) {
    // Eight bytes at a time: one table per byte position.
    for (; n >= 8; n -= 8, p += 8) {
      const uint64_t v = load64(p) ^ c;
      c = 0;
      for (size_t k = 0; k < 8; ++k) c ^= tables[7 - k][(v >> (8 * k)) & 0xff];
    }
  }
  for (; n > 0; --n, ++p) c = (c >> 8) ^ tables[0][(c ^ static_cast<uint32_t>(*p)) & 0xff];
  return ~c;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_sse42 = [] {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_2) != 0;
  }();
  if (has_sse42) return crc32c_sse42(bytes.data(), bytes.size(), crc);
#endif
  return crc32c_portable(bytes, crc);
}

uint32_t crc32c(std::string_view bytes, uint32_t crc) {
  return crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())), crc);
}

std::string hex32(uint32_t value) {
  static const char digits[] = "0123456789abcdef";
  std::string s(8, '0');
  for (int i = 7; i >= 0; --i, value >>= 4) s[static_cast<size_t>(i)] = digits[value & 15];
  return s;
}

}  // namespace rondo
