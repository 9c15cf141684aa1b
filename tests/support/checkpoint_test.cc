#include "engine/io/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>

#include "engine/io/checkpoint_manifest.h"
#include "tests/support/support.h"

using namespace rondo;
using Catch::Contains;
using rondo::test::input_error;
using rondo::test::slurp;
using rondo::test::spit;
using rondo::test::TemporaryDirectory;

namespace fs = std::filesystem;

namespace {

fs::path save(CheckpointStore& store, int step, std::optional<double> metric = {}) {
  std::vector<float> w(1000, static_cast<float>(step));
  const TensorToWrite tensor{"w", DType::f32, {10, 100}, w.data()};
  CheckpointWriter writer = store.begin();
  writer.add_tensors("model.safetensors", {&tensor, 1}, {{"step", std::to_string(step)}});
  writer.add_text("state.json", "{\"step\": " + std::to_string(step) + "}");
  return writer.commit(step, metric);
}

std::vector<uint64_t> generations(const fs::path& dir) {
  std::vector<uint64_t> g;
  for (const CheckpointInfo& info : list_checkpoints(dir)) g.push_back(info.generation);
  return g;
}

void flip(const fs::path& path, size_t at) {
  std::string bytes = slurp(path);
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ 0x10);
  spit(path, bytes);
}

int entries(const fs::path& dir) {
  return static_cast<int>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a committed checkpoint comes back with its files", "[checkpoint]") {
  TemporaryDirectory dir;
  CHECK_FALSE(open_latest(dir / "run").has_value());
  CheckpointStore store(dir / "run/digits");
  CHECK_FALSE(open_latest(store.directory()).has_value());
  const fs::path path = save(store, 12, 0.25);
  CHECK(path == checkpoint_path(store.directory(), 1));
  const Checkpoint c = open_latest(store.directory()).value();
  CHECK(c.directory() == path);
  CHECK(c.info().generation == 1);
  CHECK(c.info().step == 12);
  CHECK(c.info().score == Score(0.25));
  CHECK(c.warnings().empty());
  CHECK(c.files() == std::vector<std::string>{"model.safetensors", "state.json"});
  CHECK(c.text("state.json") == "{\"step\": 12}");
  CHECK(c.tensors("model.safetensors").at("w").as<float>()[999] == 12.0f);
  CHECK_FALSE(c.has("optimizer.safetensors"));
  CHECK_THAT(input_error([&] { c.path("optimizer.safetensors"); }),
             Contains("has no file 'optimizer.safetensors'"));
  CHECK(store.take_warnings().empty());
}

TEST_CASE("an abandoned writer leaves nothing", "[checkpoint]") {
  TemporaryDirectory dir;
  CheckpointStore store(dir.path());
  save(store, 1);
  const int before = entries(dir.path());
  {
    CheckpointWriter writer = store.begin();
    writer.add_text("state.json", "x");
    CHECK(entries(dir.path()) == before + 1);
    // Where directories cannot be locked, two processes may write at once: each under a name of its
    // own.
    CHECK(fs::is_directory(dir / (".writing-" + std::to_string(::getpid()) + "-0")));
  }
  CHECK(entries(dir.path()) == before);
  CHECK(open_latest(dir.path())->info().step == 1);
  save(store, 2);
}

TEST_CASE("the last generations and the best are kept", "[checkpoint]") {
  TemporaryDirectory dir;
  CheckpointStore store(dir.path(), {.keep_last = 2, .keep_best = 2});
  save(store, 1, 0.5);
  save(store, 2, 0.1);
  save(store, 3, 0.9);
  save(store, 4, std::numeric_limits<double>::quiet_NaN());
  save(store, 5, 0.3);
  save(store, 6);
  save(store, 7, 0.8);
  CHECK(generations(dir.path()) == std::vector<uint64_t>{2, 5, 6, 7});
  save(store, 8, 0.1);  // equal to the best: the newer of equals is preferred, both fit
  save(store, 9, 0.7);
  save(store, 10, 0.7);
  CHECK(generations(dir.path()) == std::vector<uint64_t>{2, 8, 9, 10});
  CHECK_FALSE(list_checkpoints(dir.path()).at(0).score != Score(0.1));
}

TEST_CASE("the best are those of the lowest metric, of equals by the loss, then the newest",
          "[checkpoint]") {
  TemporaryDirectory dir;
  CheckpointStore store(dir.path(), {.keep_last = 1, .keep_best = 2});
  const auto save_scored = [&](int step, const Score& score) {
    CheckpointWriter writer = store.begin();
    writer.add_text("state.json", "x");
    writer.commit(step, score);
  };
  save_scored(1, {1.0, 9});
  save_scored(2, {1.5, 7});  // of rates of 100 % and more the loss decides
  save_scored(3, {1.0, 8});
  save_scored(4, {1.0, 30});
  CHECK(generations(dir.path()) == std::vector<uint64_t>{2, 3, 4});
  CHECK(list_checkpoints(dir.path()).at(0).score == Score(1.5, 7));
  save_scored(5, {0.5, 40});
  save_scored(6, {0.5, 30});
  save_scored(7, {0.5, 30});
  save(store, 8);
  CHECK(generations(dir.path()) == std::vector<uint64_t>{6, 7, 8});
  store.set_best_after(7);  // another metric chooses from here on
  save_scored(9, {30, 30});
  save(store, 10);
  CHECK(generations(dir.path()) == std::vector<uint64_t>{9, 10});
}

TEST_CASE("damage is found, named, and the previous generation is used", "[checkpoint]") {
  TemporaryDirectory dir;
  {
    CheckpointStore store(dir.path());
    save(store, 1);
    save(store, 2);
  }
  const fs::path newest = checkpoint_path(dir.path(), 2);
  std::string reason;
  SECTION("a flipped byte in the tensors") {
    flip(newest / "model.safetensors", 2000);
    reason = "is damaged: expected the CRC-32C ";
    CHECK_THAT(input_error([&] { open_checkpoint(newest); }),
               Contains("model.safetensors") && Contains(", found "));
  }
  SECTION("a truncated file") {
    fs::resize_file(newest / "model.safetensors", 100);
    reason = "is truncated: expected 4";
  }
  SECTION("a file that grew") {
    spit(newest / "state.json", "{\"step\": 2}x");
    reason = "is too long: expected 11 bytes, found 12";
  }
  SECTION("a missing file") {
    fs::remove(newest / "state.json");
    reason = "No such file";
  }
  SECTION("a file replaced by a directory") {
    fs::remove(newest / "state.json");
    fs::create_directory(newest / "state.json");
    reason = "a directory";
  }
  SECTION("a flipped byte in the manifest") {
    flip(newest / "manifest.json", 50);
    reason = "manifest.json: is damaged";
  }
  SECTION("a truncated manifest") {
    fs::resize_file(newest / "manifest.json", 60);
    reason = "does not end with its checksum";
  }
  SECTION("an empty manifest") {
    spit(newest / "manifest.json", "");
    reason = "does not end with its checksum";
  }
  SECTION("no manifest") {
    fs::remove(newest / "manifest.json");
    reason = "No such file";
  }
  CHECK_THAT(input_error([&] { open_checkpoint(newest); }), Contains(reason));
  const Checkpoint c = open_latest(dir.path()).value();
  CHECK(c.info().step == 1);
  REQUIRE(c.warnings().size() == 1);
  CHECK_THAT(c.warnings()[0], Contains("skipping checkpoint 2") && Contains(reason));

  // The good old one is not pushed out by the damaged one, and numbering goes on.
  CheckpointStore store(dir.path());
  save(store, 3);
  CHECK(open_checkpoint(checkpoint_path(dir.path(), 1)).info().step == 1);
  CHECK(open_latest(dir.path())->info().generation == 3);
  save(store, 4);
  save(store, 5);
  CHECK(generations(dir.path()) == std::vector<uint64_t>{4, 5});
  CHECK_FALSE(fs::exists(newest));
}

TEST_CASE("every flipped bit and every truncation of a manifest is noticed", "[checkpoint]") {
  const std::string good = format_checkpoint_manifest(
      {{7, 1234, 0.5}, {{"model.safetensors", 4096, 0xabcdef01}, {"state.json", 11, 0}}});
  CHECK(parse_checkpoint_manifest(good, "m").files.at(0).crc == 0xabcdef01);
  int unnoticed = 0;
  const auto attempt = [&](const std::string& text) {
    try {
      parse_checkpoint_manifest(text, "m");
      ++unnoticed;
    } catch (const InputError&) {
    }
  };
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    attempt(bad);
  }
  for (size_t n = 0; n < good.size(); ++n) attempt(good.substr(0, n));
  attempt(good + "x");
  CHECK(unnoticed == 0);
}

// A sealed manifest that lies is a file made by hand; it is refused all the same.
TEST_CASE("a manifest cannot point outside its directory", "[checkpoint]") {
  for (const char* name : {"../model.safetensors", "/etc/passwd", "a/b", "", ".hidden"}) {
    CHECK_THAT(
        input_error([&] {
          parse_checkpoint_manifest(format_checkpoint_manifest({{1, 1, {}}, {{name, 1, 0}}}), "m");
        }),
        Contains("is not a plain file name"));
  }
}

TEST_CASE("only damaged generations: an error that lists them", "[checkpoint]") {
  TemporaryDirectory dir;
  {
    CheckpointStore store(dir.path());
    save(store, 1);
    save(store, 2);
  }
  flip(checkpoint_path(dir.path(), 1) / "state.json", 3);
  fs::remove(checkpoint_path(dir.path(), 2) / "manifest.json");
  CHECK_THAT(input_error([&] { open_latest(dir.path()); }), Contains("no usable checkpoint") &&
                                                                Contains("checkpoint 1") &&
                                                                Contains("checkpoint 2"));
}

TEST_CASE("one writing process per directory", "[checkpoint]") {
  TemporaryDirectory dir;
  {
    CheckpointStore first(dir.path());
    CHECK_THAT(input_error([&] { CheckpointStore second(dir.path()); }),
               Contains("written by another process"));
    const CheckpointWriter writer = first.begin();
    CHECK_THROWS_AS(first.begin(), Error);
  }
  CheckpointStore third(dir.path());
}

TEST_CASE("one that is about to end is waited for", "[checkpoint]") {
  TemporaryDirectory dir;
  auto first = std::make_unique<CheckpointStore>(dir.path());
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    first.reset();
  });
  CheckpointStore second(dir.path(), {.patience = std::chrono::minutes(1)});
  ends.join();
  CHECK_THAT(input_error([&] {
               CheckpointStore third(dir.path(), {.patience = std::chrono::milliseconds(30)});
             }),
             Contains("written by another process"));
}

TEST_CASE("leftovers of killed writers are cleaned, and foreign files are not touched",
          "[checkpoint]") {
  TemporaryDirectory dir;
  fs::create_directories(dir / ".writing-999-0/deep/er");
  spit(dir / ".writing-999-0/deep/model.safetensors", "half");
  fs::create_directories(dir / ".writing-1000-0");
  fs::create_directories(dir / ".removing-7");
  spit(dir / ".removing-7/state.json", "old");
  spit(dir / "log.jsonl", "mine");
  fs::create_directories(dir / "checkpoint-old");
  spit(dir / "victim", "keep me");
  fs::create_symlink(dir / "victim", dir / ".writing-link");
  CheckpointStore store(dir.path());
  save(store, 1);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path()))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{".lock", "checkpoint-000000001", "checkpoint-old",
                                          "log.jsonl", "victim"});
  CHECK(slurp(dir / "victim") == "keep me");
}

TEST_CASE("file names are plain and used once", "[checkpoint]") {
  TemporaryDirectory dir;
  CheckpointStore store(dir.path());
  CheckpointWriter writer = store.begin();
  for (const char* bad : {"", "../x", "a/b", ".hidden", "manifest.json"}) {
    CHECK_THROWS_AS(writer.add_text(bad, ""), Error);
  }
  writer.add_text("a", "");
  CHECK_THROWS_AS(writer.add_text("a", ""), Error);
}

TEST_CASE("a directory that cannot be made is named", "[checkpoint]") {
  TemporaryDirectory dir;
  spit(dir / "file", "");
  CHECK_THAT(input_error([&] { CheckpointStore s(dir / "file/run"); }),
             Contains("file") && Contains("directory"));
  CHECK_THAT(input_error([&] { CheckpointStore s(dir / "file"); }),
             Contains((dir / "file").string() + ": "));
  CHECK_THAT(input_error([&] { open_latest(dir / "file"); }),
             Contains("cannot list the checkpoint directory"));
}

TEST_CASE("a file is replaced at once, or not at all", "[checkpoint]") {
  TemporaryDirectory dir;
  spit(dir / "f", "old");
  replace_text_file(dir / "f", "new");
  CHECK(slurp(dir / "f") == "new");
  CHECK_THROWS_AS(replace_file(dir / "f",
                               [](FileWriter& w) {
                                 w.write("half");
                                 fail_input("stop");
                               }),
                  InputError);
  CHECK(slurp(dir / "f") == "new");
  CHECK(entries(dir.path()) == 1);
}
