#include "engine/train/state/stage_files.h"

#include <random>

#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/io/stage_index.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

std::string stage_file(const char* what, const StagePart& part) {
  return str(what, "-stage-", part.stage, "-of-", part.stages);
}

// Writes this rank's files; what rank 0 has to know of them.
std::string write_part(const fs::path& directory, const StagePart& part) {
  CheckpointPart files(directory);
  Json told =
      Json::object({{"stage", part.stage}, {"part", part.part}, {"tensors", Json::object()}});
  if (!part.weights.empty()) {
    const std::string file = stage_file("model", part) + ".safetensors";
    files.add_tensors(file, part.weights, {{stage_key, str(part.stage, " of ", part.stages)}});
    for (const TensorToWrite& t : part.weights) told["tensors"][t.name] = file;
  }
  const bool has_slots = !part.slots.empty() || !part.weights.empty() || part.parts > 1;
  if (has_slots) {
    std::string file = stage_file("optimizer", part);
    if (part.parts > 1) file += str("-part-", part.part, "-of-", part.parts);
    file += ".safetensors";
    files.add_tensors(file, part.slots);
    told["optimizer"] = file;
    told["elements"] = part.flat_size;
    for (const auto& e : part.layout) told["offsets"][e.name] = e.offset;
  }
  told["files"] = Json::array();
  for (const CheckpointFile& f : files.files())
    told["files"].push_back(Json::array({f.name, f.size, f.crc}));
  if (!files.files().empty()) sync_directory(directory);
  return told.dump();
}

// `all` is what each rank told, by rank: the parts of a stage come in their order.
StageIndex collect(const std::vector<std::string>& all, CheckpointWriter& writer) {
  StageIndex index;
  for (const std::string& text : all) {
    const Json told = Json::parse(text);
    for (const Json& f : told.at("files").elements()) {
      writer.adopt({f.at(0).get<std::string>(), f.at(1).get<uint64_t>(), f.at(2).get<uint32_t>()});
    }
    for (const auto& [tensor, file] : told.at("tensors").members()) {
      index.tensors[tensor] = file.get<std::string>();
    }
    if (!told.contains("optimizer")) continue;
    const auto stage = told.at("stage").get<size_t>();
    if (index.optimizer.size() <= stage) index.optimizer.resize(stage + 1);
    StageIndex::Stage& s = index.optimizer[stage];
    RONDO_CHECK(s.files.size() == told.at("part").get<size_t>(), "parts out of their order");
    s.files.push_back(told.at("optimizer").get<std::string>());
    s.elements = told.at("elements").get<int64_t>();
    s.offsets = told.at("offsets").get<std::map<std::string, int64_t>>();
  }
  return index;
}

}  // namespace

std::string why_not_shared(const Ranks& ranks, const fs::path& directory) {
  std::string token;
  if (ranks.first()) token = str(std::random_device{}(), std::random_device{}());
  token = ranks.broadcast(token);
  // A name that CheckpointStore cleans, if this rank is killed now.
  const auto probe = [&](int rank) { return directory / str(".writing-probe-", token, "-", rank); };
  const auto attempt = [&](const std::function<void()>& action) {
    try {
      action();
      return std::string();
    } catch (const InputError& e) {
      return std::string(e.what());
    }
  };
  const auto first_objection = [&](const std::string& mine) {
    std::string found;
    const std::vector<std::string> all = ranks.gather(mine);
    for (size_t r = 0; r < all.size() && found.empty(); ++r) {
      if (!all[r].empty()) found = str("rank ", r, ": ", all[r]);
    }
    return ranks.broadcast(found);
  };
  std::string objection = first_objection(attempt([&] {
    FileWriter file(probe(ranks.rank()));
    file.write(token);
    file.close();
  }));
  if (objection.empty()) {
    objection = first_objection(attempt([&] {
      for (int rank = 0; rank < ranks.size(); ++rank) {
        // All of them on rank 0; elsewhere one is enough, for all see what they write themselves.
        if ((ranks.first() || rank == 0) && read_text_file(probe(rank), 1024) != token) {
          fail_input("'", probe(rank).string(), "' is not what rank ", rank, " has written");
        }
      }
    }));
  }
  std::error_code ignored;
  fs::remove(probe(ranks.rank()), ignored);
  return objection;
}

void save_stages(const Ranks& ranks, const fs::path& directory, CheckpointStore* store,
                 const StagePart& part, const ModelDescription& description,
                 const TrainingState& state, std::optional<Score> score) {
  std::optional<CheckpointWriter> writer;
  std::string name;
  ranks.at_first([&] {
    writer.emplace(store->begin());
    name = writer->directory().filename().string();
  });
  name = ranks.broadcast(name);
  std::string told;
  ranks.together([&] { told = write_part(directory / name, part); });
  const std::vector<std::string> all = ranks.gather(told);
  ranks.at_first([&] {
    StageIndex index = collect(all, *writer);
    index.model = description.to_metadata();
    writer->add_text(stage_index_file, index.to_json());
    writer->add_text("state.json", state.to_json());
    writer->commit(state.step, score);
  });
}

}  // namespace rondo
