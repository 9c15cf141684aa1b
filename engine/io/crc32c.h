// CRC-32C (Castagnoli), the checksum of checkpoints and TFRecord files.
//
// Chosen for checkpoints over a cryptographic hash: the enemy is a bad disk or a torn write, not a
// forger (who could rewrite the manifest as well). It finds every burst of up to 32 bits, and runs
// at memory speed with SSE 4.2, so verifying costs about as much as reading. Algorithm: reflected
// polynomial 0x82f63b78, initial value and final inversion all ones (RFC 3720, B.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rondo {

// The checksum of `bytes` appended to what `crc` already covers; start with 0. Thread safe.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
uint32_t crc32c(std::string_view bytes, uint32_t crc = 0);

// The same without the CPU's instruction, for other machines and to check the one against the
// other.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc = 0);

// Eight lowercase hexadecimal digits.
std::string hex32(uint32_t value);

}  // namespace rondo
