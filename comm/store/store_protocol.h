// What travels between the TCP store's clients and server. Numbers are little-endian; a frame is a
// 32-bit length and so many bytes. No sockets here, so that tests and fuzzing reach all of it.
//
//   server: "RNDOST01", 32 bytes of challenge
//   client: "RNDOST01", 32 bytes of challenge, 32 bytes of proof
//   server: 32 bytes of proof; 32 zeros, and it closes, where the client's proof is wrong
//   then frames: a request of the client, the reply of the server, and so on
//
// A request: u8 op, u32 milliseconds to wait, i64 delta, u32 number of keys, each u32 length and
// bytes, u32 length and bytes of the value. A reply: u8 status, i64 number, u32 length and bytes.
//
// Errors: the parsers throw InputError.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/sha256.h"
#include "comm/store/store.h"

namespace rondo {

// announce: a set that lasts as long as the connection it came by.
enum class StoreOp : uint8_t { set = 1, get = 2, add = 3, wait = 4, announce = 5 };

struct StoreRequest {
  StoreOp op = StoreOp::get;
  uint32_t wait_ms = 0;  // get, wait: how long for keys to appear
  int64_t delta = 0;     // add
  std::vector<std::string> keys;
  std::string value;  // set, announce
};

enum class StoreStatus : uint8_t {
  ok = 0,
  absent = 1,   // the time is up and `value` names a key that has no value
  refused = 2,  // `value` says why
};

struct StoreReply {
  StoreStatus status = StoreStatus::ok;
  int64_t number = 0;
  std::string value;
};

constexpr size_t max_store_keys = 4096;
// The largest frame.
constexpr size_t max_store_frame = Store::max_value_bytes + size_t{64} * 1024;

// Without the length in front.
std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);
StoreRequest parse_store_request(std::string_view bytes);
StoreReply parse_store_reply(std::string_view bytes);

std::string framed(std::string_view body);
// Takes one whole frame off the front of `buffer`, if there is one. `limit`: larger frames are
// refused as soon as their length is known.
std::optional<std::string> take_frame(std::string& buffer, size_t limit = max_store_frame);

constexpr std::string_view store_magic = "RNDOST01";
constexpr size_t challenge_bytes = 32;
constexpr size_t store_greeting_bytes = store_magic.size() + challenge_bytes;
constexpr size_t store_answer_bytes = store_greeting_bytes + sizeof(Digest);
constexpr Digest no_proof{};  // says that the other side's is wrong
enum class Side : uint8_t { client, server };
// What `side` answers; the two sides' answers differ, so neither can be played back to the other.
Digest store_proof(Side side, std::string_view token, std::string_view server_challenge,
                   std::string_view client_challenge);

// The table and its rules: what a server does with a request.
class StoreTable {
 public:
  explicit StoreTable(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Nothing: some key is not there yet; ask again when the table has changed, or with `final` when
  // the time is up.
  std::optional<StoreReply> apply(const StoreRequest& request, bool final);
  void remove(const std::string& key);

 private:
  StoreReply put(const std::string& key, std::string value);

  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;
  size_t max_bytes_;
};

// Throw InputError for what no store takes.
void check_store_key(const std::string& key);
void check_store_value(const std::string& key, std::string_view value);
// The sum, as text; InputError when `old` is no number or the sum does not fit.
int64_t add_to_store_value(const std::string& key, const std::string& old, int64_t delta);

}  // namespace rondo
