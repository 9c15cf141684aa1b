// Checkpoints whose stages write their own files: what is in them, that they hold what one writer
// would write, and what damage to them is called.
#include <map>
#include <set>

#include "engine/io/file.h"
#include "engine/io/stage_index.h"
#include "tests/catch.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

Config three_stages(const TrainingCorpus& corpus, const std::string& name, int64_t steps = 5) {
  Config c = corpus.config(name);
  c.model.layers = 3;
  c.optimizer.kind = OptimizerOptions::adamw;
  c.optimizer.learning_rate = 0.01;
  c.optimizer.ema_decay = 0.9;
  c.training.max_steps = steps;
  c.training.checkpoint_every_steps = 1;
  c.training.validate_every_steps = 0;
  c.parallel.pipeline = 3;
  c.parallel.micro_batches = 3;
  c.parallel.placement = "1,2,1";
  return c;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

std::set<std::string> tensors_in(const fs::path& file) {
  std::set<std::string> names;
  const SafetensorsFile opened(file);
  for (const StoredTensor& t : opened.tensors()) names.insert(t.name);
  return names;
}

}  // namespace

TEST_CASE("each stage writes its own files, one index says which", "[stages]") {
  const TrainingCorpus corpus;
  Config c = three_stages(corpus, "stages");
  c.parallel.data = 2;
  c.parallel.divide_optimizer = true;
  require_success(train_on(6, c));
  const fs::path generation = newest(c.training.checkpoint_dir);
  std::set<std::string> want{"index.json", "state.json", "manifest.json"};
  for (const char* stage : {"0", "1", "2"}) {
    want.insert(str("model-stage-", stage, "-of-3.safetensors"));
    for (const char* part : {"0", "1"}) {
      want.insert(str("optimizer-stage-", stage, "-of-3-part-", part, "-of-2.safetensors"));
    }
  }
  CHECK(names_in(generation) == want);
  const StageIndex index = StageIndex::from_json(bytes_of(generation / "index.json"), "index");
  std::set<std::string> all;
  for (int stage = 0; stage < 3; ++stage) {
    const std::string file = str("model-stage-", stage, "-of-3.safetensors");
    for (const std::string& tensor : tensors_in(generation / file)) {
      CHECK(all.insert(tensor).second);
      CHECK(index.tensors.at(tensor) == file);
    }
  }
  CHECK(all.size() == index.tensors.size());
  CHECK(all == tensors_in(c.training.checkpoint_dir + "/model.safetensors"));
  CHECK(tensors_in(generation / "model-stage-1-of-3.safetensors").size() >
        tensors_in(generation / "model-stage-2-of-3.safetensors").size());
  // A part of the optimiser's state is half a stage's, up to a block.
  const auto part = SafetensorsFile(generation / "optimizer-stage-1-of-3-part-1-of-2.safetensors");
  CHECK(part.at("average").numel() <= index.optimizer.at(1).elements / 2 + 256);
  // A stage by itself is no model.
  CHECK_THAT(error_of([&] { open_model(generation / "model-stage-1-of-3.safetensors", nullptr); }),
             Contains("holds stage 1 of 3 of a model alone; name its checkpoint directory"));
  CHECK(names_in(c.training.checkpoint_dir).count(".lock") == 1);
  for (const std::string& name : names_in(c.training.checkpoint_dir)) {
    CHECK_THAT(name, !Contains("writing"));
  }
}

TEST_CASE("where ranks do not see one directory rank 0 writes the same state", "[stages]") {
  const TrainingCorpus corpus;
  const Config together = three_stages(corpus, "together"), apart = three_stages(corpus, "apart");
  require_success(train_on(3, together));
  require_success(train_on(3, apart, StartFrom::scratch, [](int rank, Config& c, TrainerOptions&) {
    if (rank == 2) c.training.checkpoint_dir += "_elsewhere";
  }));
  const fs::path a = newest(together.training.checkpoint_dir),
                 b = newest(apart.training.checkpoint_dir);
  CHECK(fs::exists(a / "index.json"));
  CHECK(names_in(b) == std::set<std::string>{"model.safetensors", "optimizer.safetensors",
                                             "state.json", "manifest.json"});
  for (const char* slot : {"", "first_moment", "second_moment", "average"}) {
    INFO(slot);
    CHECK((stored(a, slot) == stored(b, slot)));
  }
  for (const std::string& name : names_in(apart.training.checkpoint_dir + "_elsewhere")) {
    CHECK_THAT(name, !Contains("writing") && !Contains("checkpoint-"));
  }
}

TEST_CASE("stages are saved and go on with any other split", "[slow][stages]") {
  const TrainingCorpus corpus;
  const auto split = [&](int pipeline, int data, bool divided, int64_t steps) {
    Config c = three_stages(corpus, "splits", steps);
    c.parallel.placement.clear();
    c.parallel.pipeline = pipeline;
    c.parallel.data = data;
    c.parallel.micro_batches = pipeline > 1 || data > 0 ? 4 : 0;
    c.parallel.divide_optimizer = divided;
    return c;
  };
  require_success(train_on(3, three_stages(corpus, "splits", 4)));
  const fs::path from = newest(split(1, 0, false, 0).training.checkpoint_dir);
  std::map<std::string, std::vector<float>> before, after;
  for (const char* slot : {"", "first_moment", "second_moment", "average"}) {
    before[slot] = stored(from, slot);
    REQUIRE(std::ranges::any_of(before[slot], [](float x) { return x != 0; }));
  }
  struct Split {
    int pipeline, data;
    bool divided;
  };
  for (const Split s : {Split{1, 0, false},
                        {2, 2, false},
                        {2, 2, true},
                        {3, 2, true},
                        {1, 2, true},
                        {2, 1, false}}) {
    INFO(s.pipeline << " x " << s.data << (s.divided ? " divided" : ""));
    // An update at a rate at which nothing changes: the weights that were read are written again.
    Config c = split(s.pipeline, s.data, s.divided, 5);
    c.optimizer.learning_rate = 1e-30;
    c.optimizer.weight_decay = 0;
    c.training.keep_last = 2;
    const fs::path copy = corpus.folder.path(str("copy", s.pipeline, s.data, s.divided));
    fs::create_directories(copy);
    fs::copy(from, copy / "checkpoint-000000001", fs::copy_options::recursive);
    c.training.checkpoint_dir = copy;
    require_success(train_on(s.pipeline * std::max(1, s.data), c, StartFrom::checkpoint));
    const fs::path again = newest(copy);
    REQUIRE(again != copy / "checkpoint-000000001");
    CHECK((stored(again, "") == before[""]));
    // One update has gone into the rest, the same one in all splits.
    for (const char* slot : {"first_moment", "second_moment", "average"}) {
      INFO(slot);
      const std::vector<float> now = stored(again, slot);
      if (!after.contains(slot)) {
        after[slot] = now;
        CHECK((now != before[slot]));
      }
      const std::vector<float>& want = after[slot];
      REQUIRE(now.size() == want.size());
      double largest = 0, worst = 0;
      for (size_t i = 0; i < now.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(want[i])));
        const double d = std::abs(static_cast<double>(now[i]) - static_cast<double>(want[i]));
        worst = d <= worst ? worst : d;  // NaN stays
      }
      CHECK(worst <= 1e-5 * largest);
    }
  }
}

TEST_CASE("damage to a checkpoint of stages is named, and the one before is used",
          "[slow][stages]") {
  const TrainingCorpus corpus;
  const Config c = three_stages(corpus, "run");
  require_success(train_on(3, c));
  const std::string original = c.training.checkpoint_dir;
  const auto harmed = [&](const char* file, const std::function<void(const fs::path&)>& harm) {
    const fs::path copy = corpus.folder.path("copy");
    fs::remove_all(copy);
    fs::copy(original, copy, fs::copy_options::recursive);
    harm(newest(copy) / file);
    // Opened by itself; and a run goes on from the one before, after the same five updates.
    const fs::path generation = newest(copy);
    const std::string error = error_of([&] { open_model(generation, nullptr); });
    CHECK_THAT(error, Contains(file));
    CHECK(error.find('\n') == std::string::npos);
    const auto latest = open_latest(copy);
    REQUIRE(latest);
    CHECK(latest->directory() != generation);
    CHECK(latest->warnings().size() == 1);
    Config next = three_stages(corpus, "copy", 6);
    require_success(train_on(3, next, StartFrom::checkpoint));
    CHECK(newest(copy) != generation);
    CHECK(open_latest(copy)->info().step == 6);
    return error;
  };
  const auto remove = [](const fs::path& p) { fs::remove(p); };
  const auto cut = [](const fs::path& p) { fs::resize_file(p, fs::file_size(p) / 2); };
  const auto flip = [](const fs::path& p) {
    std::string bytes = bytes_of(p);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::ofstream(p, std::ios::binary) << bytes;
  };
  CHECK_THAT(harmed("index.json", remove), Contains("No such file"));
  CHECK_THAT(harmed("index.json", flip), Contains("is damaged: expected the CRC-32C"));
  CHECK_THAT(harmed("model-stage-1-of-3.safetensors", remove), Contains("No such file"));
  CHECK_THAT(harmed("model-stage-2-of-3.safetensors", cut), Contains("is truncated: expected"));
  CHECK_THAT(harmed("optimizer-stage-1-of-3.safetensors", flip),
             Contains("is damaged: expected the CRC-32C"));
}

// Checkpoints of two stages with one tensor each.
struct TwoStages {
  TwoStages() {
    good.tensors = {{"a", "model-stage-0-of-2.safetensors"},
                    {"b", "model-stage-1-of-2.safetensors"}};
    good.optimizer = {{{"o0"}, 4, {{"a", 0}}}, {{"o1"}, 4, {{"b", 0}}}};
  }
  Checkpoint committed(std::vector<TensorToWrite> second, const StageIndex* index,
                       std::vector<TensorToWrite> state) {
    CheckpointWriter w = store.begin();
    w.add_tensors("model-stage-0-of-2.safetensors", {&a, 1});
    w.add_tensors("model-stage-1-of-2.safetensors", second);
    for (const char* file : {"o0", "o1"}) w.add_tensors(file, state);
    if (index) w.add_text("index.json", index->to_json());
    return open_checkpoint(w.commit(1));
  }
  std::string error(const Checkpoint& checkpoint) const {
    return error_of([&] {
      const StoredState state(checkpoint);
      require_weights(state.weights(), entries);
      state.require("average", entries, 128);
    });
  }

  const TemporaryFolder folder;
  CheckpointStore store{folder.path("run"), {.keep_last = 100}};
  const float values[4] = {1, 2, 3, 4};
  const TensorToWrite a{"a", DType::f32, {2, 2}, values}, b{"b", DType::f32, {1, 4}, values};
  const TensorToWrite four{"average", DType::f32, {4}, values};
  const std::vector<Parameters::Entry> entries = {{"a", 2, 2, 0, {}, 0}, {"b", 1, 4, 64, {}, 1}};
  StageIndex good;
};

TEST_CASE_METHOD(TwoStages, "an index tells where the tensors of all stages are", "[stages]") {
  const Checkpoint whole = committed({b}, &good, {four});
  const StoredState state(whole);
  require_weights(state.weights(), entries);
  state.require("average", entries, 128);
  std::vector<float> read(4);
  state.read("average", entries[1], read);
  CHECK(read[3] == 4);
  CHECK_THAT(error_of([&] { state.require("momentum", entries, 128); }),
             Contains("o0: has no tensor 'momentum'"));
  CHECK(error(whole) == "no error");
}

TEST_CASE_METHOD(TwoStages, "files that do not fit their index are an error", "[stages]") {
  CHECK_THAT(error(committed({b}, nullptr, {four})), Contains("has files of stages, but no index"));
  CHECK_THAT(error(committed({a, b}, &good, {four})),
             Contains("tensor 'a' is both in ") && Contains("stage-0") && Contains("stage-1"));
  CHECK_THAT(error(committed({}, &good, {four})),
             Contains("model-stage-1-of-2.safetensors: has no tensor 'b'"));
  CHECK_THAT(error(committed({b, {"c", DType::f32, {4}, values}}, &good, {four})),
             Contains("does not know tensor 'c' of 'model-stage-1"));
  const std::vector<float> zeros(64);
  CHECK_THAT(error(committed({b}, &good, {{"average", DType::f32, {64}, zeros.data()}})),
             Contains("'average' is f32[64], expected f32[4]"));
}

TEST_CASE_METHOD(TwoStages, "an index that does not fit its files is an error", "[stages]") {
  StageIndex index = good;
  index.tensors["b"] = "model-stage-2-of-2.safetensors";
  CHECK_THAT(error(committed({b}, &index, {four})),
             Contains("has no file 'model-stage-2-of-2.safetensors'"));
  index = good;
  index.tensors["b"] = "../../model.safetensors";
  CHECK_THAT(error(committed({b}, &index, {four})), Contains("has no file '../../model"));
  index = good;
  index.optimizer[1].offsets["a"] = 0;
  CHECK_THAT(error(committed({b}, &index, {four})), Contains("two stages have the optimizer's"));
  index = good;
  index.optimizer[1].offsets["b"] = 2;
  CHECK_THAT(error(committed({b}, &index, {four})), Contains("ends beyond its 4 elements"));
  index.optimizer[1].offsets["b"] = -1;
  CHECK_THAT(error(committed({b}, &index, {four})), Contains("begins at element -1 of 4"));
  index = good;
  index.optimizer[1].files = {"o0"};
  CHECK_THAT(error(committed({b}, &index, {four})), Contains("lists 'o0' twice"));
  index = good;
  index.optimizer.pop_back();
  CHECK_THAT(error(committed({b}, &index, {four})), Contains("no stage has the optimizer's state"));
  for (const char* text : {"", "[]", "{}", R"({"format": "rondo stages 2"})",
                           R"({"format": "rondo stages 1", "model": 3})"}) {
    CHECK_THAT(error_of([&] { StageIndex::from_json(text, "here/index.json"); }),
               Contains("here/index.json: "));
  }
}

TEST_CASE("files of others are adopted only as they were written", "[stages]") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path("run"));
  const float values[] = {1, 2};
  const TensorToWrite t{"t", DType::f32, {2}, values};
  {
    CheckpointWriter writer = store.begin();
    CheckpointPart part(writer.directory());
    part.add_tensors("there.safetensors", {&t, 1});
    writer.adopt(part.files().at(0));
    CheckpointFile other = part.files().at(0);
    other.name = "elsewhere.safetensors";
    CHECK_THAT(error_of([&] { writer.adopt(other); }),
               Contains("do all ranks see the same directory?"));
  }
  CheckpointWriter writer = store.begin();
  CheckpointPart part(writer.directory());
  part.add_tensors("there.safetensors", {&t, 1});
  CheckpointFile longer = part.files().at(0);
  ++longer.size;
  CHECK_THAT(error_of([&] { writer.adopt(longer); }), Contains("the rank that wrote it says"));
  writer.adopt(part.files().at(0));
  const Checkpoint c = open_checkpoint(writer.commit(3));
  CHECK(c.tensors("there.safetensors").at("t").as<float>()[1] == 2);
}
