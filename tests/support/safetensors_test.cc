#include "engine/io/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/io/crc32c.h"
#include "tests/support/support.h"

using namespace rondo;
using Catch::Contains;
using rondo::test::input_error;
using rondo::test::slurp;
using rondo::test::spit;
using rondo::test::TemporaryDirectory;

namespace {

std::string file_bytes(const std::string& header, const std::string& data = "") {
  const uint64_t n = header.size();
  std::string s(reinterpret_cast<const char*>(&n), 8);
  return s + header + data;
}

// Opens from an exactly sized heap block, so that a sanitizer sees any read past the end.
void open_bytes(const std::string& bytes) {
  const auto block = std::make_unique<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(block.get(), bytes.data(), bytes.size());
  const SafetensorsFile file({block.get(), bytes.size()}, "x.safetensors");
  uint32_t sum = 0;
  for (const StoredTensor& t : file.tensors()) {
    sum = crc32c(t.bytes, sum);
    REQUIRE(file.find(t.name) == &t);
    REQUIRE(static_cast<size_t>(t.numel()) * size_of(t.dtype) == t.bytes.size());
  }
  REQUIRE(sum + 1 != 0u - 12345u);  // the sum is used
}

std::string error_of(const std::string& header, const std::string& data = "") {
  return input_error([&] { open_bytes(file_bytes(header, data)); });
}

std::string tensor_json(const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

}  // namespace

TEST_CASE("crc32c: known values, both implementations, and in pieces", "[crc32c]") {
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c("") == 0);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  std::mt19937 random(1);
  std::string text(1000, ' ');
  for (char& c : text) c = static_cast<char>(random());
  for (size_t n : {0, 1, 7, 8, 9, 63, 64, 65, 999, 1000}) {
    for (size_t begin : {0, 1, 3}) {
      const std::string_view part = std::string_view(text).substr(begin, n);
      const auto bytes = std::as_bytes(std::span(part.data(), part.size()));
      CHECK(crc32c(bytes) == crc32c_portable(bytes));
      CHECK(crc32c(part.substr(part.size() / 3), crc32c(part.substr(0, part.size() / 3))) ==
            crc32c(part));
    }
  }
  CHECK(hex32(0x00ab12f0) == "00ab12f0");
}

TEST_CASE("tensors of every dtype come back, mapped and copied", "[safetensors]") {
  TemporaryDirectory dir;
  const float f[6] = {1, -2.5f, 3e38f, 1e-40f, -0.0f, 6};
  const bf16 h[3] = {bf16(1.0f), bf16(-3.5f), bf16(1e30f)};
  const double d[1] = {1.0 / 3};
  const int32_t i[2] = {INT32_MIN, 7};
  const int64_t l[2] = {INT64_MIN, 8};
  const uint8_t u[5] = {0, 1, 2, 254, 255};
  const std::vector<TensorToWrite> tensors = {
      {"w", DType::f32, {2, 3}, f}, {"h", DType::bf16, {3}, h},      {"scalar", DType::f64, {}, d},
      {"i", DType::i32, {2, 1}, i}, {"l", DType::i64, {1, 1, 2}, l}, {"u", DType::u8, {5}, u},
      {"none", DType::f32, {0, 4}}};
  const StringMap metadata = {{"step", "12"}, {"text", "line\n\"ä\""}};
  const auto path = dir / "a.safetensors";
  write_safetensors(path, tensors, metadata);
  for (auto mode : {FileBytes::Mode::map, FileBytes::Mode::copy}) {
    const SafetensorsFile file(path, mode);
    CHECK(file.metadata() == metadata);
    REQUIRE(file.tensors().size() == tensors.size());
    for (const TensorToWrite& t : tensors) {
      const StoredTensor& s = file.at(t.name, t.dtype, t.shape);
      CHECK(std::memcmp(s.bytes.data(), t.data ? t.data : "", s.bytes.size()) == 0);
      CHECK(reinterpret_cast<uintptr_t>(s.bytes.data()) % size_of(s.dtype) == 0);
    }
    CHECK(file.at("w").as<float>()[2] == 3e38f);
    CHECK(file.at("scalar").numel() == 1);
    CHECK(file.at("none").numel() == 0);
    CHECK(file.find("q") == nullptr);
    CHECK_THROWS_AS(file.at("w").as<double>(), Error);
  }
}

TEST_CASE("written files are deterministic, whatever the order given", "[safetensors]") {
  TemporaryDirectory dir;
  const float f[2] = {1, 2};
  const uint8_t u[3] = {1, 2, 3};
  const std::vector<TensorToWrite> one = {
      {"b", DType::f32, {2}, f}, {"a", DType::u8, {3}, u}, {"a2", DType::f32, {1}, f}};
  const std::vector<TensorToWrite> two = {one[1], one[2], one[0]};
  write_safetensors(dir / "1", one);
  write_safetensors(dir / "2", two);
  CHECK(slurp(dir / "1") == slurp(dir / "2"));
  uint64_t header = 0;
  std::memcpy(&header, slurp(dir / "1").data(), 8);
  CHECK((header + 8) % 64 == 0);
  std::vector<std::string> order;
  const SafetensorsFile opened(dir / "1");
  for (const StoredTensor& t : opened.tensors()) order.push_back(t.name);
  CHECK(order == std::vector<std::string>{"a2", "b", "a"});
}

TEST_CASE("large tensors are streamed from a callback", "[safetensors]") {
  TemporaryDirectory dir;
  const int64_t n = (5 << 20) / 4 + 3;
  uint64_t expected = 0;
  const TensorToWrite tensor{
      "x", DType::i32, {n}, nullptr, [&](uint64_t offset, std::span<std::byte> into) {
        CHECK(offset == expected);
        expected += into.size();
        for (size_t k = 0; k < into.size(); k += 4) {
          const auto v = static_cast<int32_t>((offset + k) / 4);
          std::memcpy(&into[k], &v, 4);
        }
      }};
  write_safetensors(dir / "s", {&tensor, 1});
  const SafetensorsFile file(dir / "s");
  const auto x = file.at("x").as<int32_t>();
  REQUIRE(static_cast<int64_t>(x.size()) == n);
  int64_t wrong = 0;
  for (int64_t k = 0; k < n; ++k) wrong += x[static_cast<size_t>(k)] != k;
  CHECK(wrong == 0);
}

TEST_CASE("a foreign file with misaligned data is read correctly", "[safetensors]") {
  const float f[2] = {1.5f, -2};
  std::string data = "u";
  data.append(reinterpret_cast<const char*>(f), 8);
  const std::string bytes = file_bytes(R"({"u":)" + tensor_json("U8", "[1]", "[0,1]") + R"(,"f":)" +
                                           tensor_json("F32", "[2]", "[1,9]") + "}",
                                       data);
  const SafetensorsFile file(std::as_bytes(std::span(bytes.data(), bytes.size())), "m");
  const auto values = file.at("f").as<float>();
  CHECK(reinterpret_cast<uintptr_t>(values.data()) % 4 == 0);
  CHECK(values[0] == 1.5f);
  CHECK(values[1] == -2);
}

TEST_CASE("tensors of F16 are read as f32", "[safetensors]") {
  // 1, -2, the greatest, the smallest, the smallest normal one, infinity, no number, zeros.
  const uint16_t halves[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x0400, 0xfc00, 0x7e00, 0x8000, 0};
  const std::string data(reinterpret_cast<const char*>(halves), sizeof halves);
  const std::string bytes =
      file_bytes("{\"h\":" + tensor_json("F16", "[3,3]", "[0,18]") + "}", data);
  const SafetensorsFile file(std::as_bytes(std::span(bytes.data(), bytes.size())), "m");
  CHECK(file.at("h").describe() == "f32[3, 3]");
  const auto values = file.at("h").as<float>();
  REQUIRE(values.size() == 9);
  CHECK((values[0] == 1 && values[1] == -2 && values[2] == 65504));
  CHECK((values[3] == 0x1p-24f && values[4] == 0x1p-14f));
  CHECK((std::isinf(values[5]) && values[5] < 0 && std::isnan(values[6])));
  CHECK((values[7] == 0 && std::signbit(values[7]) && values[8] == 0 && !std::signbit(values[8])));
}

TEST_CASE("tensors of I8 are read as f32, by the scales of their rows", "[safetensors]") {
  TemporaryDirectory dir;
  const int8_t integers[] = {-127, 127, 0, 1, 2, -3};
  const float scales[] = {0.5f, 0.25f}, other[] = {7};
  TensorToWrite rows{"w", DType::u8, {2, 3}, integers};
  rows.is_signed = true;
  // A name that only looks like that of scales.
  const TensorToWrite tensors[] = {
      rows, {"w.scale", DType::f32, {2}, scales}, {"b.scale", DType::f32, {1}, other}};
  write_safetensors(dir / "model", tensors);
  const SafetensorsFile file(dir / "model");
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.at("w").describe() == "f32[2, 3]");
  const auto values = file.at("w").as<float>();
  const float expected[] = {-63.5f, 63.5f, 0, 0.25f, 0.5f, -0.75f};
  CHECK(std::equal(values.begin(), values.end(), std::begin(expected), std::end(expected)));
  CHECK(file.find("w.scale") == nullptr);
  CHECK(file.at("b.scale").as<float>()[0] == 7);
}

TEST_CASE("I8 without fitting scales is refused", "[safetensors]") {
  const auto with = [](const std::string& shape, const std::string& scales) {
    const std::string rest = scales.empty() ? "" : ",\"w.scale\":" + scales;
    return "{\"w\":" + tensor_json("I8", shape, "[8,12]") + rest + "}";
  };
  const std::string hole = ",\"h\":" + tensor_json("F64", "[1]", "[0,8]") + "}";
  const auto error = [&](const std::string& shape, std::string scales) {
    std::string header = with(shape, scales);
    if (scales.empty()) header = header.substr(0, header.size() - 1) + hole;
    return error_of(header, "ffffffffwwww");
  };
  CHECK_THAT(error("[2,2]", ""),
             Contains("tensor 'w' is I8[2, 2] without scales, expected 'w.scale', F32[2]"));
  CHECK_THAT(error("[4]", tensor_json("F32", "[2]", "[0,8]")),
             Contains("and 'w.scale' F32[2], expected F32[4], a scale for each row"));
  CHECK_THAT(error("[1,4]", tensor_json("F64", "[1]", "[0,8]")),
             Contains("and 'w.scale' F64[1], expected F32[1]"));
  CHECK_THAT(error("[2,2]", tensor_json("F32", "[1,2]", "[0,8]")),
             Contains("and 'w.scale' F32[1, 2], expected F32[2]"));
  CHECK_THAT(error_of("{\"w\":" + tensor_json("I8", "[]", "[0,1]") + "}", "w"),
             Contains("tensor 'w' is I8[], expected rows"));
  CHECK_THAT(error_of("{\"w\":" + tensor_json("I8", "[3]", "[0,4]") + "}", "wwww"),
             Contains("has the shape [3] of I8, but 4 bytes"));
  // Of no rows there is nothing to scale.
  const std::string none = file_bytes("{\"w\":" + tensor_json("I8", "[0,3]", "[0,0]") +
                                      ",\"w.scale\":" + tensor_json("F32", "[0]", "[0,0]") + "}");
  const SafetensorsFile empty(std::as_bytes(std::span(none.data(), none.size())), "m");
  CHECK(empty.at("w").numel() == 0);
}

TEST_CASE("a file that lacks what is expected names file and tensor", "[safetensors]") {
  TemporaryDirectory dir;
  const float f[6] = {};
  const TensorToWrite tensor{"w", DType::f32, {2, 3}, f};
  write_safetensors(dir / "model", {&tensor, 1});
  const SafetensorsFile file(dir / "model");
  CHECK_THAT(input_error([&] { file.at("bias"); }), Contains("model: has no tensor 'bias'"));
  const int64_t shape[] = {3, 2};
  CHECK_THAT(input_error([&] { file.at("w", DType::f32, shape); }),
             Contains("tensor 'w' is f32[2, 3], expected f32[3, 2]"));
  CHECK_THAT(input_error([&] { file.at("w", DType::bf16, tensor.shape); }),
             Contains("expected bf16[2, 3]"));
}

TEST_CASE("each kind of malformed file is named", "[safetensors]") {
  const auto one = [](const std::string& t) { return R"({"w":)" + t + "}"; };
  CHECK_THAT(input_error([] { open_bytes(""); }),
             Contains("x.safetensors") && Contains("has 0 bytes"));
  CHECK_THAT(input_error([] { open_bytes("1234567"); }), Contains("has 7 bytes"));
  CHECK_THAT(input_error([] { open_bytes(std::string(8, '\xff')); }),
             Contains("claims 18446744073709551615 bytes"));
  CHECK_THAT(input_error([] { open_bytes(file_bytes("{}").substr(0, 9)); }),
             Contains("claims 2 bytes of the 1"));
  CHECK_THAT(error_of(""), Contains("does not begin with '{'"));
  CHECK_THAT(error_of("[1]"), Contains("does not begin with '{'"));
  CHECK_THAT(error_of("{\"w\":"), Contains("not valid JSON"));
  CHECK_THAT(error_of("{\"\xff\":1}"), Contains("not valid JSON"));
  CHECK_THAT(error_of("{}", "x"), Contains("1 bytes at the end belong to no tensor"));
  CHECK_THAT(error_of(one("3")), Contains("'w' is not described by a JSON object"));
  CHECK_THAT(error_of(one("{}")), Contains("has no 'dtype'"));
  CHECK_THAT(error_of(one(tensor_json("F8_E5M2", "[2]", "[0,2]")), "xx"),
             Contains("has the dtype \"F8_E5M2\", expected F32"));
  CHECK_THAT(error_of(one(tensor_json("F16", "[3]", "[0,4]")), "xxxx"),
             Contains("has the shape [3] of F16, but 4 bytes"));
  CHECK_THAT(error_of(one(R"({"dtype":3,"shape":[],"data_offsets":[0,0]})")),
             Contains("has the dtype 3"));
  CHECK_THAT(error_of(one(tensor_json("F32", "3", "[0,0]"))), Contains("shape is not a list"));
  CHECK_THAT(error_of(one(tensor_json("F32", "[-1]", "[0,0]"))),
             Contains("holds -1, expected a non-negative"));
  CHECK_THAT(error_of(one(tensor_json("F32", "[1.0]", "[0,4]")), "xxxx"), Contains("holds 1.0"));
  CHECK_THAT(error_of(one(tensor_json("F32", "[4611686018427387904,4]", "[0,0]"))),
             Contains("but 0 bytes"));
  CHECK_THAT(error_of(one(tensor_json("F32", "[18446744073709551615]", "[0,0]"))),
             Contains("is too large"));
  CHECK_THAT(error_of(one(tensor_json("F32", "[1]", "[0]"))),
             Contains("not a list of two integers"));
  CHECK_THAT(error_of(one(tensor_json("F32", "[1]", "[4,0]")), "xxxx"),
             Contains("lies at bytes 4 to 0"));
  CHECK_THAT(error_of(one(tensor_json("F32", "[1]", "[0,4]")), "xxx"),
             Contains("the file has 3 (is it truncated?)"));
  CHECK_THAT(error_of(one(tensor_json("F32", "[2]", "[0,4]")), "xxxx"),
             Contains("shape [2] of F32, but 4 bytes"));
  CHECK_THAT(error_of(one(tensor_json("U8", "[1]", "[1,2]")), "xx"),
             Contains("begins at byte 1 of the data, expected 0 (a hole)"));
  const std::string u2 = tensor_json("U8", "[2]", "[0,2]"), u12 = tensor_json("U8", "[2]", "[1,3]");
  CHECK_THAT(error_of(R"({"a":)" + u2 + R"(,"b":)" + u12 + "}", "xxx"),
             Contains("(it overlaps the one before)"));
  CHECK_THAT(error_of(R"({"a":)" + u2 + R"(,"a":)" + u2 + "}", "xx"), Contains("has 'a' twice"));
  CHECK_THAT(error_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", "x"),
             Contains("has 'dtype' twice"));
  CHECK_THAT(error_of(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1}})", "x"),
             Contains("unknown field 'x'"));
  CHECK_THAT(error_of(R"({"a":[[[[[]]]]]})"), Contains("nested more than 3 levels deep"));
  CHECK_THAT(error_of("{\"a\":" + std::string(100000, '[')),
             Contains("nested more than 3 levels deep"));
  CHECK_THAT(error_of(R"({"__metadata__":3})"), Contains("__metadata__ is not a JSON object"));
  CHECK_THAT(error_of(R"({"__metadata__":{"a":3}})"), Contains("metadata 'a' is not a string"));
}

TEST_CASE("files that cannot be read are named", "[safetensors]") {
  TemporaryDirectory dir;
  CHECK_THAT(input_error([&] { SafetensorsFile f(dir / "none"); }),
             Contains("none") && Contains("No such file"));
  CHECK_THAT(input_error([&] { SafetensorsFile f(dir.path()); }), Contains("a directory"));
  CHECK_THAT(input_error([&] { SafetensorsFile f("/dev/zero"); }), Contains("not a regular file"));
  spit(dir / "empty", "");
  CHECK_THAT(input_error([&] { SafetensorsFile f(dir / "empty"); }), Contains("has 0 bytes"));
}

// Every truncation and thousands of random edits of a valid file: opening either succeeds with
// consistent tensors or throws InputError. (tests/fuzz has the coverage-guided twin.)
TEST_CASE("mutated files never do anything but open or throw InputError", "[slow][safetensors]") {
  TemporaryDirectory dir;
  const float f[6] = {1, 2, 3, 4, 5, 6};
  const uint8_t u[5] = {1, 2, 3, 4, 5};
  const std::vector<TensorToWrite> tensors = {
      {"w", DType::f32, {2, 3}, f}, {"u", DType::u8, {5}, u}, {"e", DType::bf16, {0}}};
  write_safetensors(dir / "a", tensors, {{"k", "v"}});
  const std::string good = slurp(dir / "a");
  int opened = 0, refused = 0;
  const auto attempt = [&](const std::string& bytes) {
    try {
      open_bytes(bytes);
      ++opened;
    } catch (const InputError&) {
      ++refused;
    }
  };
  for (size_t n = 0; n < good.size(); ++n) attempt(good.substr(0, n));
  CHECK(refused == static_cast<int>(good.size()));
  std::mt19937 random(7);
  const std::string_view tokens[] = {"18446744073709551616",
                                     "-1",
                                     "[",
                                     "]",
                                     "{",
                                     "}",
                                     "\"",
                                     ",",
                                     "1e999",
                                     "null",
                                     "\\u0000",
                                     "F64",
                                     "0"};
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + random() % 8);
          break;
        case 2:
          bytes.insert(at, tokens[random() % std::size(tokens)]);
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
      }
    }
    attempt(bytes);
  }
  CHECK(opened > 100);
  CHECK(refused > 1000);
}
