// Damaged good inputs for every fuzz target: few, but always the same ones, in every test run.
#include <cstdio>
#include <random>

#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/fuzz/targets.h"

namespace {

std::string mutate(std::string s, const std::vector<std::string>& seeds, std::mt19937& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(s.size() + 1);
    switch (below(7)) {
      case 0:
        s.resize(at);
        break;
      case 1:
        s.erase(at, 1 + below(8));
        break;
      case 2:
        s.insert(at, 1 + below(3), static_cast<char>(random()));
        break;
      case 3:
        if (at < s.size()) s[at] = static_cast<char>(s[at] ^ (1 << below(8)));
        break;
      case 4: {  // a length field's favourite values
        const uint32_t values[] = {0, 1, 0x7fffffff, 0x80000000u, 0xffffffffu, 0xffff, 256};
        const uint32_t v = values[below(7)];
        if (s.size() >= 4) s.replace(below(s.size() - 3), 4, reinterpret_cast<const char*>(&v), 4);
        break;
      }
      case 5: {  // a piece of another input
        const std::string& other = seeds[below(seeds.size())];
        const size_t from = below(other.size());
        s.insert(at, other.substr(from, below(40)));
        break;
      }
      default:
        if (at < s.size()) s[at] = "0123456789\"{}[]().,-e'<"[below(23)];
    }
  }
  return s;
}

}  // namespace

TEST_CASE("damaged inputs are refused with InputError, never worse", "[fuzz]") {
  for (const FuzzTarget& target : fuzz_targets()) {
    std::mt19937 random(20240117);
    const std::vector<std::string> seeds = target.seeds();
    int accepted = 0, refused = 0;
    const auto feed = [&](const std::string& input) {
      try {
        target.run(std::as_bytes(std::span(input.data(), input.size())));
        ++accepted;
      } catch (const rondo::InputError&) {
        ++refused;
      } catch (const std::exception& e) {
        std::string hex;
        for (unsigned char c : input) {
          char two[4];
          std::snprintf(two, sizeof two, "%02x", c);
          hex += two;
        }
        FAIL(target.name << ": " << e.what() << "\ninput: " << hex);
      }
    };
    for (const std::string& seed : seeds) feed(seed);
    INFO(target.name);
    CHECK(refused == 0);  // the seeds are good
    for (int i = 0; i < 1500; ++i) feed(mutate(seeds[random() % seeds.size()], seeds, random));
    // The mutations reach both outcomes, so they are neither harmless nor mere garbage.
    CHECK(accepted >= 10);
    CHECK(refused > 150);
  }
}

TEST_CASE("much of one thing, nested or not, is refused or read, and soon", "[fuzz][slow]") {
  constexpr size_t much_of_it = size_t{1} << 18;  // what takes quadratic time takes a minute
  const std::string nothing(1, '\0');
  constexpr std::string_view obeyed("\0\x1b\b\r\x7f", 5);  // by a terminal
  for (const FuzzTarget& target : fuzz_targets()) {
    const std::vector<std::string> seeds = target.seeds();
    for (const std::string& piece :
         {nothing, std::string("\xff"), std::string("["), std::string("{"), std::string("("),
          std::string("{\"a\":"), std::string("[["), std::string("a."), std::string("a.b=1\n"),
          std::string("\""), std::string("'"), std::string("\n"), std::string("1"),
          std::string("{'a':("), std::string("w"), std::string("w w\t"), std::string("\x1b[2J"),
          seeds.front()}) {
      std::string much;
      while (much.size() < much_of_it) much += piece;
      const std::string& seed = seeds.back();
      for (const std::string& input :
           {much, seed + much, much + seed, seed.substr(0, seed.size() / 2) + much + seed}) {
        INFO(target.name << ", much of " << piece.substr(0, 20));
        try {
          target.run(std::as_bytes(std::span(input.data(), input.size())));
        } catch (const rondo::InputError& e) {
          const std::string_view message = e.what();
          CHECK(message.size() < 1000);
          CHECK(message.find_first_of(obeyed) == message.npos);
        }
      }
    }
  }
}
