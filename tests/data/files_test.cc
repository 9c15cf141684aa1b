// Ready features: .npy and what is wrong with it.
#include <sys/stat.h>

#include <cmath>
#include <cstring>

#include "engine/data/features/endings.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/files.h"
#include "engine/data/features/kaldi_matrix.h"
#include "engine/data/features/npy.h"
#include "engine/data/manifest.h"
#include "engine/io/safetensors.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/kaldi_golden.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using namespace rondo::data;
using Catch::Matchers::Contains;

namespace {

std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// An .npy file with any header text and version.
std::string npy(const std::string& dictionary, const std::string& elements, int version = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  out += static_cast<char>(dictionary.size() & 0xff);
  out += static_cast<char>(dictionary.size() >> 8);
  if (version > 1) out += std::string(2, '\0');
  return out + dictionary + elements;
}
std::string npy_of(const std::string& type, const std::string& shape, const std::string& elements,
                   int version = 1) {
  return npy("{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }\n",
             elements, version);
}

template <class T>
std::string raw(std::vector<T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::vector<float> floats(const std::string& file) {
  return npy_floats(bytes_of(file), parse_npy_header(bytes_of(file), "x.npy"), "x.npy");
}
std::vector<int32_t> integers(const std::string& file) {
  return npy_integers(bytes_of(file), parse_npy_header(bytes_of(file), "x.npy"), "x.npy");
}

}  // namespace

TEST_CASE("endings are compared in small letters", "[files]") {
  CHECK(ending_of("a/B.GT.TxT") == ".txt");
  CHECK(ending_of("a.b/c").empty());
  CHECK(ending_of("a/.txt").empty());
  CHECK(ending_of("").empty());
  CHECK(ending_of("x.") == ".");
  CHECK(has_ending("a/B.GT.TxT", ".gt.txt"));
  CHECK(has_ending("x.xml", ".xml"));
  CHECK(!has_ending("x.xml~", ".xml"));
  CHECK(!has_ending("ml", ".xml"));
  CHECK(!has_ending("xXML", ".xml"));
}

TEST_CASE(".npy elements of every kind are read", "[npy]") {
  const std::vector<float> want = {1, -2, 0.5f};
  CHECK(floats(npy_of("<f4", "(3,)", raw<float>({1, -2, 0.5f}))) == want);
  CHECK(floats(npy_of("<f8", "(3,)", raw<double>({1, -2, 0.5}), 2)) == want);
  CHECK(floats(npy_of("<f2", "(3,)", raw<uint16_t>({0x3c00, 0xc000, 0x3800}), 3)) == want);
  CHECK(floats(npy_of("<i4", "(2,)", raw<int32_t>({7, -7}))) == std::vector<float>{7, -7});
  CHECK(floats(npy_of("<u4", "(1,)", raw<uint32_t>({3000000000u}))) == std::vector<float>{3e9f});
  CHECK(floats(npy_of("<f4", "()", raw<float>({3}))) == std::vector<float>{3});
  CHECK(floats(npy_of("<f4", "(0, 4)", "")).empty());
  // The other order of bytes, and of elements.
  CHECK(floats(npy_of(">f4", "(1,)", std::string("\x3f\x80\x00\x00", 4))) == std::vector<float>{1});
  CHECK(floats(npy_of(">f8", "(1,)", std::string("\xc0\x00\x00\x00\x00\x00\x00\x00", 8))) ==
        std::vector<float>{-2});
  CHECK(floats(npy_of(">f2", "(1,)", std::string("\x38\x00", 2))) == std::vector<float>{0.5f});
  CHECK(integers(npy_of(">i4", "(1,)", std::string("\x00\x00\x01\x02", 4))) ==
        std::vector<int32_t>{258});
  const auto fortran = [](const std::string& type, const std::string& shape,
                          const std::string& elements) {
    return npy("{'descr': '" + type + "', 'fortran_order': True, 'shape': " + shape + ", }\n",
               elements);
  };
  const std::vector<float> six = {1, 2, 3, 4, 5, 6};
  const std::string columns = raw<float>({1, 4, 2, 5, 3, 6});
  CHECK(floats(fortran("<f4", "(2, 3)", columns)) == six);
  CHECK(floats(fortran("<f4", "(1, 2, 3)", columns)) == six);
  CHECK(floats(fortran("<f4", "(6,)", raw<float>(six))) == six);
  CHECK(floats(fortran(">f2", "(1, 1)", std::string("\x38\x00", 2))) == std::vector<float>{0.5f});
  CHECK(floats(npy_of("<f8", "(2,)", raw<double>({-INFINITY, 3e38}))) ==
        std::vector<float>{-INFINITY, 3e38f});
  // Halves: the smallest subnormal, the largest number, infinity, NaN, minus zero.
  const std::vector<float> h =
      floats(npy_of("<f2", "(5,)", raw<uint16_t>({1, 0x7bff, 0x7c00, 0x7e00, 0x8000})));
  CHECK(h[0] == std::ldexp(1.0f, -24));
  CHECK(h[1] == 65504.0f);
  CHECK(std::isinf(h[2]));
  CHECK(std::isnan(h[3]));
  CHECK(std::signbit(h[4]));
  const std::vector<int32_t> i = {1, -1, 100};
  CHECK(integers(npy_of("|i1", "(3,)", raw<int8_t>({1, -1, 100}))) == i);
  CHECK(integers(npy_of("<i2", "(3,)", raw<int16_t>({1, -1, 100}))) == i);
  CHECK(integers(npy_of("<i8", "(3,)", raw<int64_t>({1, -1, 100}))) == i);
  CHECK(integers(npy_of("|u1", "(1,)", raw<uint8_t>({200}))) == std::vector<int32_t>{200});
}

TEST_CASE("what is wrong with a .npy file is said", "[npy]") {
  const std::string ok = raw<float>({1, 2});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is empty"},
      {"RIFF and so on and on", "is not a .npy file"},
      {npy_of("<f4", "(2,)", ok, 4), "version 4"},
      {npy_of("<f4", "(3,)", ok), "is truncated: its header announces 12 bytes, the file holds 8"},
      {npy_of("<f4", "(1,)", ok), "4 bytes more"},
      {npy_of("<f4", "(2,)", ok).substr(0, 40), "truncated within its .npy header"},
      {npy_of("=f4", "(2,)", ok), "type '=f4'"},
      {npy_of("<c8", "(1,)", ok), "type '<c8'"},
      {npy_of("|b1", "(8,)", ok), "type '|b1'"},
      {npy_of("<f1", "(8,)", ok), "type '<f1'"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", ok), "structured"},
      {npy_of("<f8", "(2, 2)", raw<double>({1, 2, 3, -1e39})), "frame 1, column 1: is -1e+39"},
      {npy("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", ok), "malformed"},
      {npy("{'descr': '<f4', 'shape': (2,)}", ok), "is missing"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", ok), "unknown key"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", ok), "malformed"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", ok), "text after"},
      {npy("{'descr", ok), "malformed"},
      {npy_of("<f4", "(1099511627776, 1099511627776)", ok), "too large"},
      {npy_of("<f4", "(99999999999999999999999, 2)", ok), "too large"},
      {npy_of("<f4", "(0, 1099511627776, 1099511627776)", ok), "8 bytes more"},
  };
  for (const auto& [file, wanted] : cases) {
    INFO(wanted);
    CHECK_THROWS_WITH(floats(file), Contains("x.npy: ") && Contains(wanted));
    CHECK_THROWS_AS(floats(file), InputError);
  }
  CHECK_THROWS_WITH(integers(npy_of("<f4", "(2,)", ok)), Contains("holds floats"));
  CHECK_THROWS_WITH(integers(npy_of("<i8", "(1,)", raw<int64_t>({int64_t{1} << 40}))),
                    Contains("does not fit"));
  CHECK_THROWS_WITH(integers(npy_of("<u8", "(1,)", raw<uint64_t>({~uint64_t{0}}))),
                    Contains("does not fit"));
}

TEST_CASE("feature files are written as NumPy writes them and read back", "[npy]") {
  const TemporaryFolder folder;
  Matrix m(3, 2);
  m.data = {1, 2, 3, 4, 5, 6};
  const std::string path = folder.path("f.npy");
  write_feature_file(path, m);
  CHECK(read_feature_file(path, "") == m);
  const std::string content = read_whole_file(path);
  CHECK(content.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  CHECK((content.size() - 24) % 64 == 0);
  CHECK(content[content.size() - 25] == '\n');
  CHECK(content.find("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }") == 10);
  CHECK(feature_file_shape(path, "").frames == 3);
  CHECK(feature_file_shape(path, "").dim == 2);
  // A signal of one value per frame.
  CHECK(
      read_feature_file(folder.write("s.npy", npy_of("<f4", "(2,)", raw<float>({1, 2}))), "").dim ==
      1);
  CHECK_THROWS_WITH(read_feature_file(path, "k"), Contains("only a .safetensors file has keys"));
  CHECK_THROWS_WITH(read_feature_file(folder.path("f.txt"), ""), Contains("neither .npy nor"));
  CHECK_THROWS_WITH(read_feature_file(folder.path("none.npy"), ""), Contains("cannot be opened"));
  const auto shaped = [&](const std::string& shape) {
    return folder.write("b.npy", npy_of("<f4", shape, ""));
  };
  CHECK_THROWS_WITH(read_feature_file(shaped("(0, 3)"), ""), Contains("(0, 3)"));
  CHECK_THROWS_WITH(read_feature_file(shaped("(2, 2, 3)"), ""), Contains("(2, 2, 3)"));
  CHECK_THROWS_WITH(feature_file_shape(shaped("()"), ""), Contains("shape ()"));
}

TEST_CASE("ready features are read from safetensors", "[safetensors]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("f.safetensors");
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<double> b = {0.5, 0.25};
  const std::vector<int32_t> c = {1, 2};
  const std::vector<TensorToWrite> two = {{"utt1", DType::f32, {3, 2}, a.data()},
                                          {"utt2", DType::f64, {2}, b.data()}};
  write_safetensors(path, two);
  CHECK(read_feature_file(path, "utt1").data == a);
  CHECK(read_feature_file(path, "utt1").frames == 3);
  CHECK(read_feature_file(path, "utt2").data == std::vector<float>{0.5f, 0.25f});
  CHECK(read_feature_file(path, "utt2").dim == 1);
  CHECK(feature_file_shape(path, "utt1").dim == 2);
  CHECK_THROWS_WITH(read_feature_file(path, ""), Contains("features_key must name one"));
  CHECK_THROWS_WITH(read_feature_file(path, "utt3"), Contains("utt3"));
  const std::vector<TensorToWrite> only = {{"x", DType::f32, {3, 2}, a.data()}};
  write_safetensors(path, only);
  CHECK(read_feature_file(path, "").data == a);
  const std::vector<TensorToWrite> named = {{"x", DType::f32, {1, 6}, a.data()},
                                            {"features", DType::f32, {3, 2}, a.data()}};
  write_safetensors(path, named);
  CHECK(read_feature_file(path, "").frames == 3);
  const std::vector<TensorToWrite> wrong = {{"x", DType::i32, {1, 2}, c.data()}};
  write_safetensors(path, wrong);
  CHECK_THROWS_WITH(read_feature_file(path, ""), Contains("is i32, expected"));
  const std::string whole = read_whole_file(path);
  CHECK_THROWS_AS(
      read_feature_file(folder.write("cut.safetensors", whole.substr(0, whole.size() - 1)), ""),
      InputError);
}

TEST_CASE("a failed write leaves the old file and no other", "[files]") {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "old");
  write_whole_file(path, "new");
  CHECK(read_whole_file(path) == "new");
  std::filesystem::create_directory(folder.path("d"));
  CHECK_THROWS_AS(write_whole_file(folder.path("d"), "x"), InputError);  // a folder
  size_t count = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(folder.path("")))
    ++count;
  CHECK(count == 2);
  CHECK(read_file_start(path, 2) == "ne");
}

TEST_CASE("pipes and devices are waited for and read no further than they must be",
          "[slow][files]") {
  const TemporaryFolder folder;
  const std::string pipe = folder.path("pipe.npy");  // that nobody writes
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto not_regular = Catch::Contains("is not a regular file, expected a file");
  CHECK_THROWS_WITH(feature_file_shape(pipe, ""), not_regular);
  CHECK_THROWS_WITH(read_feature_file(pipe, ""), not_regular);
  CHECK_THROWS_WITH(data::read_regular_file("/dev/zero"), not_regular);
  CHECK_THROWS_WITH(data::require_regular_file(folder.path("")), Catch::Contains("is a directory"));
  CHECK_THROWS_WITH(read_manifest("/dev/zero"),
                    "/dev/zero: has more than 268435456 bytes, expected fewer");
}

namespace {

std::string bytes_of(const GoldenMatrix& m) {
  std::string bytes;
  for (int b : m.bytes) bytes += static_cast<char>(b);
  return bytes;
}

void require_golden(const Matrix& read, const GoldenMatrix& golden) {
  REQUIRE(read.frames == golden.rows);
  REQUIRE(read.dim == golden.columns);
  for (size_t i = 0; i < read.data.size(); ++i)
    REQUIRE(read.data[i] == Approx(golden.values[i]).epsilon(1e-5).margin(1e-5));
}

}  // namespace

TEST_CASE("matrices of Kaldi's are read out of their archives", "[kaldi]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("feats.1.ark");
  std::string archive;
  std::vector<FilePart> places;
  for (const GoldenMatrix& m : golden_matrices) {
    archive += str("utt-", m.token, " ");
    places.emplace_back(path, archive.size(), m.bytes.size());
    archive += bytes_of(m);
  }
  write_whole_file(path, archive);
  for (size_t i = 0; i < places.size(); ++i) {
    INFO(golden_matrices[i].token);
    require_golden(read_feature_file(places[i], ""), golden_matrices[i]);
    // What comes behind it is another matrix.
    require_golden(read_feature_file({path, places[i].first}, ""), golden_matrices[i]);
    CHECK(feature_file_shape(places[i], "").frames == golden_matrices[i].rows);
    CHECK(feature_file_shape(places[i], "").dim == golden_matrices[i].columns);
    const FilePart cut(path, places[i].first, places[i].size - 1);
    CHECK_THROWS_WITH(feature_file_shape(cut, ""), Contains("is truncated"));
    CHECK_THROWS_WITH(read_feature_file(cut, ""), Contains("is truncated"));
  }
  CHECK_THROWS_WITH(read_feature_file(path, ""), Contains("\"bytes\" that say where"));
  CHECK_THROWS_WITH(read_feature_file({path, 0, 8}, ""), Contains("feats.1.ark, 8 bytes from"));
  CHECK_THROWS_WITH(read_feature_file({path, archive.size() - 2, 9}, ""),
                    Contains("the file ends before that"));
  CHECK_THROWS_WITH(read_feature_file(places[0], "key"), Contains("only a .safetensors file"));
}

TEST_CASE("matrices of Kaldi's that are damaged", "[kaldi]") {
  const auto read = [](const std::string& bytes) {
    return kaldi_floats(bytes_of(bytes), parse_kaldi_header(bytes_of(bytes), "x"), "x");
  };
  const std::string good = bytes_of(golden_matrices.front());
  CHECK_THROWS_WITH(read(good.substr(0, 9)), Contains("x: ends within the matrix's header"));
  CHECK_THROWS_WITH(read("BFM"), Contains("is not binary as Kaldi writes it"));
  std::string other = good;
  other.replace(2, 2, "FV");  // a vector
  CHECK_THROWS_WITH(read(other), Contains("holds no matrix"));
  other = good;
  other[5] = 8;  // an integer of eight bytes
  CHECK_THROWS_WITH(read(other), Contains("no integer of four bytes"));
  other = good;
  other[9] = '\xff';  // the rows' highest byte
  CHECK_THROWS_WITH(read(other), Contains("has a matrix of -"));
  other[9] = other[14] = 0x7f;
  CHECK_THROWS_WITH(read(other), Contains("which is too large"));
}

TEST_CASE("a .npy file is read out of an archive", "[npy]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("features.tar");
  const std::string file = npy_of("<f4", "(2, 3)", raw<float>({1, 2, 3, 4, 5, 6}));
  write_whole_file(path, std::string(512, 'h') + file + std::string(512, 'z'));
  const FilePart part(path, 512, file.size());
  CHECK(feature_file_shape(part, "").frames == 2);
  CHECK(read_feature_file(part, "").data == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK_THROWS_WITH(read_feature_file({path, 512, file.size() + 1}, ""), Contains("features.tar"));
}
