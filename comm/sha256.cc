#include "comm/sha256.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr size_t block_bytes = 64;
using State = std::array<uint32_t, 8>;

constexpr State initial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

constexpr std::array<uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

void compress(State& state, const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = big_endian(block + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t choice = (e & f) ^ (~e & g);
    const uint32_t t1 = h + sum1 + choice + round_constants[t] + w[t];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + sum0 + majority;
  }
  const State change = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += change[i];
}

}  // namespace

Digest sha256(std::string_view data) {
  State state = initial;
  const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
  size_t left = data.size();
  for (; left >= block_bytes; left -= block_bytes, bytes += block_bytes) compress(state, bytes);

  // The rest, a one bit, zeros, and the length in bits in the last eight bytes.
  std::array<uint8_t, 2 * block_bytes> tail{};
  copy_bytes(tail.data(), bytes, left);
  tail[left] = 0x80;
  const size_t tail_bytes = left < block_bytes - 8 ? block_bytes : 2 * block_bytes;
  const uint64_t bits = uint64_t{data.size()} * 8;
  for (size_t i = 0; i < 8; ++i) {
    tail[tail_bytes - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  }
  for (size_t at = 0; at < tail_bytes; at += block_bytes) compress(state, tail.data() + at);

  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view data) {
  const Digest short_key = sha256(key);
  if (key.size() > block_bytes) key = bytes_of(short_key);
  std::string inner(block_bytes, '\x36'), outer(block_bytes, '\x5c');
  for (size_t i = 0; i < key.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ key[i]);
    outer[i] = static_cast<char>(outer[i] ^ key[i]);
  }
  outer += bytes_of(sha256(inner.append(data)));
  return sha256(outer);
}

bool equal_digests(const Digest& a, const Digest& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = difference | (a[i] ^ b[i]);
  return difference == 0;
}

std::string random_bytes(size_t n) {
  std::string bytes(n, '\0');
  for (size_t at = 0; at < n;) {
    const ssize_t got = getrandom(bytes.data() + at, n - at, 0);
    RONDO_CHECK(got > 0 || errno == EINTR, "getrandom: ", std::strerror(errno));
    if (got > 0) at += static_cast<size_t>(got);
  }
  return bytes;
}

std::string random_token() {
  constexpr char digits[] = "0123456789abcdef";
  std::string token;
  for (const char c : random_bytes(32)) {
    token += digits[static_cast<uint8_t>(c) >> 4];
    token += digits[static_cast<uint8_t>(c) & 15];
  }
  return token;
}

}  // namespace rondo
