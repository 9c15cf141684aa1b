// The settings that fit a set of data: what changes with how much there is, and how it is spoken.
#include "tools/corpus/fitted_settings.h"

#include <string>

#include "tests/catch.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

TrainingFacts facts(size_t count, double length, const std::string& text, int32_t rate = 16000) {
  TrainingFacts f;
  f.rate = rate;
  for (size_t i = 0; i < count; ++i) f.add(length, text);
  return f;
}

// What stands behind "name = " in a line of its own.
double number(const std::string& toml, const std::string& name) {
  const size_t at = toml.find("\n" + name + " = ");
  REQUIRE(at != std::string::npos);
  return std::stod(toml.substr(at + name.size() + 4));
}

}  // namespace

TEST_CASE("fitted settings leave the texts their frames", "[fitted]") {
  const auto subsample = [](double seconds, const std::string& text) {
    return number(fitted_settings(facts(400, seconds, text)), "subsample");
  };
  CHECK(subsample(2, "seven") == 3);
  // 38 frames: 12 of three in one, 19 of two in one.
  CHECK(subsample(0.4, "abcdefghijkl") == 3);
  CHECK(subsample(0.4, "abcdefghijklm") == 2);
  CHECK(subsample(0.4, "aabbccddeeffg") == 2);  // a blank between equal ones
  CHECK(subsample(0.4, "aabbccddeeffgh") == 1);
  CHECK(subsample(0.1, "abcdefghijklmnop") == 3);  // fits nowhere, and is no reason
  // One in two hundred may be too fast, and is skipped then.
  TrainingFacts few = facts(398, 2, "seven");
  for (int i = 0; i < 2; ++i) few.add(0.3, "seventeen");
  const std::string skips = fitted_settings(few);
  CHECK(number(skips, "subsample") == 3);
  CHECK_THAT(skips, Contains("text_too_long = \"skip\"  # 2 are"));
  few.add(0.3, "seventeen");
  const std::string fits = fitted_settings(few);
  CHECK(number(fits, "subsample") == 2);
  CHECK_THAT(fits, !Contains("text_too_long"));
}

TEST_CASE("fitted settings give every set some thousand updates", "[fitted]") {
  for (const double minutes : {5.0, 11.0, 60.0, 180.0}) {
    const auto count = static_cast<size_t>(minutes * 60 / 2);
    const std::string toml = fitted_settings(facts(count, 2, "a few words"));
    CAPTURE(minutes, toml);
    const double updates = minutes * 6000 / number(toml, "batch_frames") * number(toml, "epochs");
    CHECK(updates >= 1500);
    CHECK(updates <= 3500);
    CHECK(number(toml, "warmup_steps") < updates / 10);
  }
  CHECK(number(fitted_settings(facts(150, 2, "a")), "hidden") <
        number(fitted_settings(facts(5400, 2, "a")), "hidden"));
  // From an hour on more is masked and dropped, and the rate is lower.
  const std::string little = fitted_settings(facts(1790, 2, "a")),
                    much = fitted_settings(facts(1800, 2, "a"));
  CHECK((number(little, "dropout") == 0.15 && number(much, "dropout") == 0.2));
  CHECK((number(little, "lr") == 4e-3 && number(much, "lr") == 3e-3));
  CHECK((number(little, "time_masks") == 1 && number(much, "time_masks") == 2));
}

TEST_CASE("fitted settings say what the data are", "[fitted]") {
  CHECK(number(fitted_settings(facts(10, 1, "a", 8000)), "rate") == 8000);
  CHECK(number(fitted_settings(facts(10, 1, "a", 44100)), "rate") == 16000);
  CHECK(number(fitted_settings(facts(10, 1, "a", 0)), "rate") == 16000);
  TrainingFacts f = facts(10, 1, "AH0 K AH0");
  f.text.marks = Marks::token;
  CHECK_THAT(fitted_settings(f),
             Contains("\n[text]\nmarks = \"token\"\n") && !Contains("unit") && !Contains("task"));
  f.text = {.lowercase = true, .strip_punctuation = true, .locale = {"tr"}};
  CHECK_THAT(fitted_settings(f), Contains("\n[text]\nstrip_punctuation = true\n"
                                          "lowercase = true\nlocale = \"tr\"\n"));
  f.text = {.replace = {{"a", "aa"}}, .marks = Marks::drop};
  CHECK_THAT(fitted_settings(f), !Contains("[text]"));  // twice is another thing than once
  f.classes = f.phones = true;
  CHECK_THAT(fitted_settings(f),
             Contains("\ntask = \"classify\"\n") && Contains("unit = \"word\""));
  f.kind = InputKind::features;
  CHECK_THAT(fitted_settings(f), Contains("type = \"ready\"\n") && !Contains("speed"));
  TrainingFacts lines;
  lines.kind = InputKind::image;
  lines.direction = LineDirection::leftwards;
  lines.ink = Ink::automatic;
  for (int i = 0; i < 1500; ++i) lines.add(700, "a line of text");
  const std::string toml = fitted_settings(lines);
  CHECK_THAT(toml, Contains("direction = \"rtl\"\nink = \"auto\"\n") && Contains("vgsl"));
  CHECK(number(toml, "batch_frames") == 8000);
}
