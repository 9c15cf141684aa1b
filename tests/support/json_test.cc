// JSON as a tree: what is read and written, and what is refused.
#include "engine/io/json.h"

#include <cmath>

#include "tests/catch.h"

using namespace rondo;
using Kind = JsonError::Kind;

namespace {

Kind refused(std::string_view text, const JsonLimits& limits = {}) {
  try {
    Json::parse(text, limits);
  } catch (const JsonError& e) {
    return e.kind;
  }
  FAIL("was read: " << text.substr(0, 80));
  return Kind::syntax;
}

}  // namespace

TEST_CASE("JSON keeps the order of members and the kinds of numbers") {
  const std::string text =
      R"({"z":1,"a":[true,null,-2,3.5,"é\n"],"big":18446744073709551615,"b":{},"c":[],"f":1.0})";
  const Json j = Json::parse(text);
  CHECK(j.dump() == text);
  CHECK(j.size() == 6);
  CHECK(j.at("a").size() == 5);
  CHECK(j.at("a").at(2).get<int>() == -2);
  CHECK(j.at("a").at(3).get<double>() == 3.5);
  CHECK(j.at("a").at(4).is("é\n"));
  CHECK(j.at("big").get<uint64_t>() == UINT64_MAX);
  CHECK_FALSE(j.at("f").is_integer());
  CHECK(j.find("none") == nullptr);
  CHECK(Json::parse("[0.1]").dump() == "[0.1]");
  CHECK(Json(std::nan("")).dump() == "null");
}

TEST_CASE("JSON is written with as many spaces per level as are asked for") {
  Json j;
  j["list"].push_back(1);
  j["list"].push_back(Json::object({{"x", "y"}}));
  CHECK(j.dump(2) == "{\n  \"list\": [\n    1,\n    {\n      \"x\": \"y\"\n    }\n  ]\n}");
}

TEST_CASE("JSON values become what they are asked for, or say why not") {
  const Json j = Json::parse(R"({"n":[1,2],"m":{"a":"b"},"x":300,"f":1.5,"neg":-1})");
  CHECK(j.at("n").get<std::vector<int32_t>>() == std::vector<int32_t>{1, 2});
  CHECK(j.at("m").get<std::map<std::string, std::string>>().at("a") == "b");
  CHECK(j.at("x").get<float>() == 300);
  CHECK_THROWS_WITH(j.at("x").get<uint8_t>(), "is 300, expected an integer up to 255");
  CHECK_THROWS_WITH(j.at("x").get<int8_t>(), "is 300, expected an integer from -128 to 127");
  CHECK_THROWS_AS(j.at("f").get<int>(), JsonError);
  CHECK_THROWS_AS(j.at("neg").get<uint32_t>(), JsonError);
  CHECK_THROWS_WITH(j.at("n").get<std::string>(), "is of type array, expected string");
  CHECK_THROWS_WITH(j.at("q"), "has no field 'q'");
  CHECK_THROWS_WITH(j.at("n").at(2), "has 2 elements, expected more than 2");
  CHECK_THROWS_AS(j.at("x").elements(), JsonError);
}

TEST_CASE("JSON that is none, too deep, out of range or ambiguous is refused") {
  for (const char* text : {"", "{", "[1,]", "{\"a\":}", "nul", "\"\x01\"", "{}{}", "\"\xff\""}) {
    CAPTURE(text);
    CHECK(refused(text) == Kind::syntax);
  }
  CHECK(refused("[1e999]") == Kind::range);
  CHECK(refused(std::string(300000, '[')) == Kind::depth);
  std::string nested;
  for (int i = 0; i < 200000; ++i) nested += "{\"a\":";
  CHECK(refused(nested) == Kind::depth);
  CHECK(Json::parse(std::string(64, '[') + std::string(64, ']')).is_array());
  CHECK(refused(std::string(65, '[') + std::string(65, ']')) == Kind::depth);
  const char* twice = R"({"a":1,"b":2,"a":3})";
  CHECK(Json::parse(twice).dump() == R"({"b":2,"a":3})");
  CHECK(refused(twice, {.unique_names = true}) == Kind::repeated);
  try {
    Json::parse("{\"a\": 1,\n x}");
  } catch (const JsonError& e) {
    CHECK(e.byte == 11);
  }
}

TEST_CASE("JSON text is UTF-8: other bytes are refused, or replaced when that is asked for") {
  const Json j = Json::object({{"a", "x\xff"}});
  CHECK_THROWS_AS(j.dump(), JsonError);
  CHECK(j.dump_replacing() == "{\"a\":\"x\xef\xbf\xbd\"}");
}
