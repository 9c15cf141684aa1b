// How two ranks that meet over TCP prove to each other that they belong to the same job, before
// anything else is read. No sockets here, so that tests and fuzzing reach all of it. Internal to
// the TCP transport.
//
//   listener:  "RNDOTCP1", 32 bytes of challenge
//   connector: "RNDOTCP1", its rank, the listener's rank (32 bits each, little-endian), 32 bytes of
//              challenge, 32 bytes of proof
//   listener:  32 bytes of proof, or 32 zeros: "that was no proof"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/sha256.h"

namespace rondo::tcp_transport {

constexpr std::string_view handshake_magic = "RNDOTCP1";
constexpr size_t nonce_bytes = 32;
constexpr size_t greeting_bytes = handshake_magic.size() + nonce_bytes;
constexpr size_t answer_bytes = handshake_magic.size() + 8 + nonce_bytes + sizeof(Digest);

// What both sides know.
struct Job {
  std::string token, rendezvous_id;
  int world_size = 1;
};

struct Answer {
  int from = 0, to = 0;
  std::string challenge;
  Digest proof{};
};

std::string encode_greeting(std::string_view challenge);
// The challenge; InputError for anything but a greeting.
std::string parse_greeting(std::string_view bytes);

std::string encode_answer(const Job& job, int from, int to, std::string_view their_challenge,
                          std::string_view challenge);
// Reads `bytes`, which may be the beginning of an answer: nothing while it may still become one.
// InputError once it cannot, or its ranks are not of this world. Proves nothing yet.
std::optional<Answer> parse_answer(std::string_view bytes, int world_size);
bool proves(const Job& job, const Answer& answer, std::string_view challenge);

// The listener's.
Digest listener_proof(const Job& job, const Answer& answer, std::string_view challenge);

}  // namespace rondo::tcp_transport
