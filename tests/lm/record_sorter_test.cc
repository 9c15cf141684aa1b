// Records of numbers in order, by all words of their keys.
#include "engine/lm/record_sorter.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;

TEST_CASE("records that differ in the last words of long keys alone are in order", "[lm]") {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  for (const uint32_t largest : {3U, 1000U, 0xffffffffU}) {
    INFO(largest);
    constexpr int32_t words = 5;
    lm::RecordSorter sorter(
        {.key_words = words, .value_words = 1, .memory = 1 << 20, .folder = folder.path("")});
    std::vector<std::vector<uint32_t>> records(900);
    for (auto& record : records) {
      for (int32_t k = 0; k < words + 1; ++k)
        record.push_back(k < 3 ? largest - static_cast<uint32_t>(random() % 2)
                               : static_cast<uint32_t>(random()) % largest);
      std::copy(record.begin(), record.end(), sorter.add());
    }
    sorter.sort();
    std::sort(records.begin(), records.end());
    for (const auto& record : records) {
      const uint32_t* found = sorter.next();
      REQUIRE(found);
      CHECK(std::equal(record.begin(), record.begin() + words, found));
    }
    CHECK(sorter.next() == nullptr);
  }
}
