// What transport.h promises, as a test that any backend has to pass.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/transport.h"

namespace rondo {

class TestWorld {
 public:
  virtual ~TestWorld() = default;
  virtual Transport& transport(int rank) = 0;
  // From now on this rank is dead for the others.
  virtual void lose(int rank) = 0;
};

using MakeWorld = std::function<std::unique_ptr<TestWorld>(int ranks)>;

// Runs as the body of a TEST_CASE; contains SECTIONs. `more`: the size of an int vector that the
// backend treats as a large message.
void check_transport_contract(const MakeWorld& make);

constexpr auto test_patience = std::chrono::seconds(20);  // for a loaded machine; nobody waits

// The error a Work ends with; fails the test when there is none.
CommError comm_error_of(Work& work);

inline std::span<const std::byte> bytes_of(const std::vector<int>& v) {
  return std::as_bytes(std::span(v));
}
inline std::span<std::byte> bytes_of(std::vector<int>& v) {
  return std::as_writable_bytes(std::span(v));
}

}  // namespace rondo
