// Lengths of recordings that are kept from one run to the next.
#include <filesystem>
#include <fstream>

#include "engine/data/features/files.h"
#include "engine/data/length_cache.h"
#include "engine/io/crc32c.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;

namespace {

// As long as the file has bytes; counts how often it is asked.
class SizeReader final : public AudioReader {
 public:
  mutable int asked = 0;
  AudioInfo info(const FilePart& file) const override {
    ++asked;
    if (!std::filesystem::exists(file.path)) fail_input(file.path, ": is not there");
    return {8000, 1, static_cast<int64_t>(file.size_in(std::filesystem::file_size(file.path)))};
  }
  Waveform read(const FilePart&, int32_t rate, AudioSegment) const override { return {rate, {}}; }
};

struct Folder {
  TemporaryFolder folder;
  std::string cache = folder.path("train.jsonl.lengths");
  std::vector<std::string> files;

  Folder() {
    for (int i = 0; i < 20; ++i) {
      files.push_back(folder.path(str(i, ".wav")));
      data::write_whole_file(files.back(), std::string(static_cast<size_t>(i), 'x'));
    }
  }

  // How many of the files the reader is asked for; keeps what it said.
  int ask() const {
    const SizeReader reader;
    const LengthCache lengths(cache, reader);
    for (const std::string& f : files) {
      const AudioInfo info = lengths.info(f);
      CHECK(info.frames == static_cast<int64_t>(std::filesystem::file_size(f)));
      CHECK(info.sample_rate == 8000);
      CHECK(info.channels == 1);
    }
    CHECK(lengths.asked() == reader.asked);
    lengths.save();
    return reader.asked;
  }
};

}  // namespace

TEST_CASE("lengths are kept, and asked for again where a file has changed", "[lengths]") {
  const Folder f;
  CHECK(f.ask() == 20);
  CHECK(f.ask() == 0);
  data::write_whole_file(f.files[7], "another content");
  CHECK(f.ask() == 1);
  CHECK(f.ask() == 0);
  // The same size, written later.
  using namespace std::chrono_literals;
  const auto later = std::filesystem::file_time_type::clock::now() + 5s;
  std::filesystem::last_write_time(f.files[3], later);
  CHECK(f.ask() == 1);
  CHECK(f.ask() == 0);
  std::filesystem::last_write_time(f.files[3], later + 1ms);
  CHECK(f.ask() == 1);
  // Another size, as old as before.
  const auto before = std::filesystem::last_write_time(f.files[5]);
  data::write_whole_file(f.files[5], "another size");
  std::filesystem::last_write_time(f.files[5], before);
  CHECK(f.ask() == 1);
  CHECK(f.ask() == 0);
}

TEST_CASE("parts of one archive have a length each", "[lengths]") {
  const Folder f;
  for (const int asked : {3, 0}) {
    const SizeReader reader;
    const LengthCache lengths(f.cache, reader);
    for (const auto& [first, size] : {std::pair<uint64_t, uint64_t>{0, 4}, {4, 7}, {4, 9}})
      CHECK(lengths.info({f.files[19], first, size}).frames == static_cast<int64_t>(size));
    CHECK(reader.asked == asked);
    lengths.save();
  }
}

TEST_CASE("of files that are gone the reader says so, as without a cache", "[lengths]") {
  const Folder f;
  f.ask();
  std::filesystem::remove(f.files[2]);
  const SizeReader reader;
  const LengthCache lengths(f.cache, reader);
  CHECK_THROWS_WITH(lengths.info(f.files[2]), Catch::Contains("is not there"));
}

TEST_CASE("a damaged file of lengths counts as empty", "[lengths]") {
  const Folder f;
  f.ask();
  const std::string whole = data::read_regular_file(f.cache);
  const auto with = [&](const std::string& bytes) {
    data::write_whole_file(f.cache, bytes);
    return f.ask();
  };
  CHECK(with(whole) == 0);
  for (const size_t at : {size_t{0}, size_t{16}, size_t{40}, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    INFO(at);
    CHECK(with(damaged) == 20);
  }
  CHECK(with(whole.substr(0, whole.size() - 7)) == 20);
  CHECK(with(whole + "x") == 20);
  // Another number of records than there are, with the checksum that belongs to it.
  for (const char count : {'\x13', '\x15'}) {
    std::string wrong = whole.substr(0, whole.size() - 4);
    wrong[16] = count;
    const uint32_t checksum = crc32c(wrong);
    wrong.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
    CHECK(with(wrong) == 20);
  }
  CHECK(with("") == 20);
}
