#include "comm/store/store_protocol.h"

#include <charconv>
#include <utility>

namespace rondo {
namespace {

template <class T>
void put_number(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

void put_text(std::string& out, std::string_view text) {
  put_number(out, static_cast<uint32_t>(text.size()));
  out += text;
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <class T>
  T number() {
    uint64_t value = 0;
    const std::string_view b = take(sizeof(T));
    for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{static_cast<uint8_t>(b[i])} << (8 * i);
    return static_cast<T>(value);
  }
  std::string text() { return std::string(take(number<uint32_t>())); }
  void finish() const {
    if (!left_.empty()) fail_input("a store message has ", left_.size(), " bytes too many");
  }

 private:
  std::string_view take(size_t n) {
    if (n > left_.size()) {
      fail_input("a store message ends after ", left_.size(), " bytes where ", n, " are announced");
    }
    const std::string_view taken = left_.substr(0, n);
    left_.remove_prefix(n);
    return taken;
  }
  std::string_view left_;
};

}  // namespace

std::string encode(const StoreRequest& request) {
  std::string out;
  put_number(out, static_cast<uint8_t>(request.op));
  put_number(out, request.wait_ms);
  put_number(out, request.delta);
  put_number(out, static_cast<uint32_t>(request.keys.size()));
  for (const std::string& key : request.keys) put_text(out, key);
  put_text(out, request.value);
  return out;
}

std::string encode(const StoreReply& reply) {
  std::string out;
  put_number(out, static_cast<uint8_t>(reply.status));
  put_number(out, reply.number);
  put_text(out, reply.value);
  return out;
}

StoreRequest parse_store_request(std::string_view bytes) {
  Reader in(bytes);
  StoreRequest request;
  const auto op = in.number<uint8_t>();
  if (op < 1 || op > 5)
    fail_input("a store request has the operation ", int{op}, ", expected 1 to 5");
  request.op = static_cast<StoreOp>(op);
  request.wait_ms = in.number<uint32_t>();
  request.delta = in.number<int64_t>();
  const auto keys = in.number<uint32_t>();
  const bool many = request.op == StoreOp::wait;
  if (keys > max_store_keys || (!many && keys != 1)) {
    fail_input("a store request has ", keys, " keys, expected ",
               many ? str("at most ", max_store_keys) : std::string("one"));
  }
  for (uint32_t i = 0; i < keys; ++i) {
    request.keys.push_back(in.text());
    check_store_key(request.keys.back());
  }
  request.value = in.text();
  in.finish();
  if (request.op == StoreOp::set || request.op == StoreOp::announce) {
    check_store_value(request.keys[0], request.value);
  } else if (!request.value.empty()) {
    fail_input("a store request carries a value that it has no use for");
  }
  return request;
}

StoreReply parse_store_reply(std::string_view bytes) {
  Reader in(bytes);
  StoreReply reply;
  const auto status = in.number<uint8_t>();
  if (status > 2) fail_input("a store reply has the status ", int{status}, ", expected 0 to 2");
  reply.status = static_cast<StoreStatus>(status);
  reply.number = in.number<int64_t>();
  reply.value = in.text();
  in.finish();
  return reply;
}

std::string framed(std::string_view body) {
  std::string out;
  put_text(out, body);
  return out;
}

std::optional<std::string> take_frame(std::string& buffer, size_t limit) {
  if (buffer.size() < sizeof(uint32_t)) return std::nullopt;
  const size_t length = Reader(buffer).number<uint32_t>();
  if (length > limit) fail_input("a store message of ", length, " bytes, at most ", limit);
  if (buffer.size() - sizeof(uint32_t) < length) return std::nullopt;
  std::string body = buffer.substr(sizeof(uint32_t), length);
  buffer.erase(0, sizeof(uint32_t) + length);
  return body;
}

Digest store_proof(Side side, std::string_view token, std::string_view server_challenge,
                   std::string_view client_challenge) {
  std::string message(side == Side::client ? "rondo store client" : "rondo store server");
  message.append(server_challenge).append(client_challenge);
  return hmac_sha256(token, message);
}

void check_store_key(const std::string& key) {
  if (key.empty() || key.size() > Store::max_key_bytes) {
    fail_input("a store key of ", key.size(), " bytes, expected 1 to ", Store::max_key_bytes);
  }
}

void check_store_value(const std::string& key, std::string_view value) {
  if (value.size() > Store::max_value_bytes) {
    fail_input("the store's value for '", key, "' has ", value.size(), " bytes, at most ",
               Store::max_value_bytes, " are allowed");
  }
}

int64_t add_to_store_value(const std::string& key, const std::string& old, int64_t delta) {
  int64_t value = 0, sum = 0;
  const char* const end = old.data() + old.size();
  if (!old.empty()) {
    const auto [stop, error] = std::from_chars(old.data(), end, value);
    if (error != std::errc() || stop != end) {
      fail_input("the store's value for '", key, "' is no number, so nothing can be added to it");
    }
  }
  if (__builtin_add_overflow(value, delta, &sum)) {
    fail_input("the store's counter '", key, "' is ", value, " and cannot take ", delta, " more");
  }
  return sum;
}

StoreReply StoreTable::put(const std::string& key, std::string value) {
  const auto old = values_.find(key);
  const size_t before = old == values_.end() ? 0 : key.size() + old->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  if (after > max_bytes_) {
    return {StoreStatus::refused, 0,
            str("the store is full: '", key, "' would make it ", after, " bytes, at most ",
                max_bytes_, " are allowed")};
  }
  bytes_ = after;
  values_[key] = std::move(value);
  return {};
}

void StoreTable::remove(const std::string& key) {
  const auto old = values_.find(key);
  if (old == values_.end()) return;
  bytes_ -= key.size() + old->second.size();
  values_.erase(old);
}

std::optional<StoreReply> StoreTable::apply(const StoreRequest& request, bool final) {
  for (const std::string& key : request.keys) {
    const bool needed = request.op == StoreOp::get || request.op == StoreOp::wait;
    if (!needed || values_.contains(key)) continue;
    if (final) return StoreReply{StoreStatus::absent, 0, key};
    return std::nullopt;
  }
  switch (request.op) {
    case StoreOp::set:
    case StoreOp::announce:
      return put(request.keys[0], request.value);
    case StoreOp::get:
      return StoreReply{StoreStatus::ok, 0, values_.at(request.keys[0])};
    case StoreOp::wait:
      return StoreReply{};
    case StoreOp::add:
      break;
  }
  const std::string& key = request.keys[0];
  const auto old = values_.find(key);
  try {
    const int64_t sum =
        add_to_store_value(key, old == values_.end() ? "" : old->second, request.delta);
    StoreReply reply = put(key, std::to_string(sum));
    reply.number = sum;
    return reply;
  } catch (const InputError& e) {
    return StoreReply{StoreStatus::refused, 0, e.what()};
  }
}

}  // namespace rondo
