// What is fuzzed: every reader of bytes that come from outside.
//
// A target takes any bytes and must return or throw InputError; anything else (another exception, a
// crash, a sanitizer's report, a hang) is a finding. fuzz_main.cc gives them to libFuzzer,
// mutation_test.cc feeds them damaged good inputs in the fast tests.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct FuzzTarget {
  const char* name;
  void (*run)(std::span<const std::byte> bytes);
  std::vector<std::string> (*seeds)();  // good inputs
};

const std::vector<FuzzTarget>& fuzz_targets();
// Those of one source each.
std::span<const FuzzTarget> data_targets();
std::span<const FuzzTarget> text_targets();
std::span<const FuzzTarget> ranks_targets();
std::span<const FuzzTarget> serve_targets();

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
// What must hold of anything that was read.
inline void require(bool ok, const char* what) {
  if (!ok) throw std::logic_error(what);
}
