// What is fuzzed: every reader of bytes that come from outside.
//
// A target takes any bytes and must return or throw InputError; anything else (another exception, a
// crash, a sanitizer's report, a hang) is a finding. fuzz_main.cc gives them to libFuzzer,
// mutation_test.cc feeds them damaged good inputs in the fast tests.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

struct FuzzTarget {
  const char* name;
  void (*run)(std::span<const std::byte> bytes);
  std::vector<std::string> (*seeds)();  // good inputs
};

const std::vector<FuzzTarget>& fuzz_targets();
