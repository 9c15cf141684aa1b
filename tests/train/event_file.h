// Reads the scalars of TensorBoard's event files: TFRecords of protocol buffers. The checksums are
// not looked at.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/catch.h"

namespace rondo::test {

// Step and value; of texts the value is 0.
using Series = std::vector<std::pair<int64_t, float>>;

// One message of protocol buffers, field by field.
class Message {
 public:
  explicit Message(std::string_view bytes) : left_(bytes) {}

  // False at the end. Afterwards field() is the number, and number() or bytes() what it holds.
  bool next() {
    if (left_.empty()) return false;
    const uint64_t key = varint();
    field_ = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0:
        number_ = varint();
        break;
      case 1:
        bytes_ = take(8);
        break;
      case 2:
        bytes_ = take(varint());
        break;
      case 5:
        bytes_ = take(4);
        break;
      default:
        FAIL("a field of wire type " << (key & 7));
    }
    return true;
  }
  int field() const { return field_; }
  uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string_view take(uint64_t n) {
    REQUIRE(n <= left_.size());
    const std::string_view taken = left_.substr(0, n);
    left_.remove_prefix(n);
    return taken;
  }

  std::string_view left_, bytes_;
  int field_ = 0;
  uint64_t number_ = 0;
};

// Event: 2 step, 5 summary. Summary: 1 value. Value: 1 tag, 2 simple_value.
inline void read_event(std::string_view bytes, std::map<std::string, Series>& all) {
  int64_t step = 0;
  std::string_view summary;
  for (Message event(bytes); event.next();) {
    if (event.field() == 2) step = static_cast<int64_t>(event.number());
    if (event.field() == 5) summary = event.bytes();
  }
  for (Message values(summary); values.next();) {
    std::string tag;
    float number = 0;
    for (Message value(values.bytes()); value.next();) {
      if (value.field() == 1) tag = value.bytes();
      if (value.field() == 2) std::memcpy(&number, value.bytes().data(), sizeof number);
    }
    all[tag].emplace_back(step, number);
  }
}

// Each event of a file.
inline void for_each_event(const std::string& file,
                           const std::function<void(std::string_view)>& act) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  const std::string text = bytes.str();
  for (size_t at = 0; at < text.size();) {
    uint64_t length = 0;
    REQUIRE(text.size() - at >= 16);
    std::memcpy(&length, text.data() + at, sizeof length);
    REQUIRE(length <= text.size() - at - 16);
    act(std::string_view(text).substr(at + 12, length));
    at += 16 + length;
  }
}

// By tag, of a file.
inline std::map<std::string, Series> read_events_of(const std::string& file) {
  std::map<std::string, Series> all;
  for_each_event(file, [&](std::string_view event) { read_event(event, all); });
  return all;
}

// By tag, of all files of the directory.
inline std::map<std::string, Series> read_events(const std::string& directory) {
  std::map<std::string, Series> all;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    for_each_event(file.path(), [&](std::string_view event) { read_event(event, all); });
  }
  return all;
}

// The steps at which a file says that a run begins, or goes on. Event: 7 session_log. SessionLog: 1
// status, 1: START.
inline std::vector<int64_t> session_starts(const std::string& file) {
  std::vector<int64_t> steps;
  for_each_event(file, [&](std::string_view bytes) {
    int64_t step = 0;
    std::string_view session;
    for (Message event(bytes); event.next();) {
      if (event.field() == 2) step = static_cast<int64_t>(event.number());
      if (event.field() == 7) session = event.bytes();
    }
    for (Message status(session); status.next();) {
      if (status.field() == 1 && status.number() == 1) steps.push_back(step);
    }
  });
  return steps;
}

}  // namespace rondo::test
