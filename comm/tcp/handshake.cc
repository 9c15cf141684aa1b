#include "comm/tcp/handshake.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"

namespace rondo::tcp_transport {
namespace {

std::string number_text(uint32_t value) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  }
  return value;
}

// The two sides' proofs differ, so neither can be played back to the other.
Digest proof(const Job& job, std::string_view side, int from, int to,
             std::string_view listeners_challenge, std::string_view connectors_challenge) {
  std::string message = str("rondo tcp ", side, " ", from, " ", to, " ");
  message.append(listeners_challenge).append(connectors_challenge).append(job.rendezvous_id);
  return hmac_sha256(job.token, message);
}

}  // namespace

std::string encode_greeting(std::string_view challenge) { return str(handshake_magic, challenge); }

std::string parse_greeting(std::string_view bytes) {
  if (bytes.size() != greeting_bytes || !bytes.starts_with(handshake_magic)) {
    fail_input("what listens there is no rank");
  }
  return std::string(bytes.substr(handshake_magic.size()));
}

std::string encode_answer(const Job& job, int from, int to, std::string_view their_challenge,
                          std::string_view challenge) {
  std::string out(handshake_magic);
  out += number_text(static_cast<uint32_t>(from)) + number_text(static_cast<uint32_t>(to));
  out += challenge;
  out += bytes_of(proof(job, "connector", from, to, their_challenge, challenge));
  return out;
}

std::optional<Answer> parse_answer(std::string_view bytes, int world_size) {
  const std::string_view start = bytes.substr(0, handshake_magic.size());
  if (bytes.size() > answer_bytes || !handshake_magic.starts_with(start)) {
    fail_input("it does not speak the ranks' language");
  }
  if (bytes.size() < answer_bytes) return std::nullopt;
  const uint32_t from = number_at(bytes, start.size()), to = number_at(bytes, start.size() + 4);
  const auto ranks = static_cast<uint32_t>(world_size);
  if (from >= ranks || to >= ranks) {
    fail_input("it says that it is rank ", from, " and looks for rank ", to, " of ", ranks);
  }
  Answer answer;
  answer.from = static_cast<int>(from);
  answer.to = static_cast<int>(to);
  answer.challenge = bytes.substr(start.size() + 8, nonce_bytes);
  std::memcpy(answer.proof.data(), bytes.data() + (answer_bytes - sizeof(Digest)), sizeof(Digest));
  return answer;
}

bool proves(const Job& job, const Answer& answer, std::string_view challenge) {
  return equal_digests(
      answer.proof, proof(job, "connector", answer.from, answer.to, challenge, answer.challenge));
}

Digest listener_proof(const Job& job, const Answer& answer, std::string_view challenge) {
  return proof(job, "listener", answer.from, answer.to, challenge, answer.challenge);
}

}  // namespace rondo::tcp_transport
