// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for the few dozen bytes with which ranks prove
// to each other that they belong to the same job. Not tuned for bulk data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view data);
Digest hmac_sha256(std::string_view key, std::string_view data);

// Takes the same time wherever the two differ.
bool equal_digests(const Digest& a, const Digest& b);

inline std::string_view bytes_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// From the operating system's generator; throws Error when there is none.
std::string random_bytes(size_t n);
// 256 random bits as 64 hexadecimal digits: a job's secret.
std::string random_token();

}  // namespace rondo
