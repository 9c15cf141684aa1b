// kraken's model files: the tensors that layers are made of, and what is said of files that cannot
// be used. tests/cli/kraken.py compares with kraken itself, where that is installed.
#include <algorithm>
#include <random>

#include "engine/config/layer_types.h"
#include "engine/io/json.h"
#include "engine/train/model/build_model.h"
#include "engine/train/model/kraken_model.h"
#include "engine/train/recognition/recognizer.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;

namespace {

constexpr const char* vgsl =
    "[1,8,0,1 Cr{C_0}3,5,2 Mp{Mp_1}2,2 Do{Do_2}0.1,2 Lfys{L_3}3 Ct{C_4}1,3,4 Lbx{L_5}2 "
    "Gn{Gn_6}2 O{O_7}1c3]";

// A kraken file made by hand: tensors with values that say where they come from.
struct KrakenFile {
  Json model =
      Json::object({{"_tasks", Json::array({"recognition"})},
                    {"_model", "TorchVGSLModel"},
                    {"vgsl", vgsl},
                    {"seg_type", "baselines"},
                    {"codec", Json::object({{"b", Json::array({2})}, {"a", Json::array({1})}})}});
  std::map<std::string, std::vector<int64_t>> shapes = {{"C_0.co.weight", {2, 1, 3, 5}},
                                                        {"C_0.co.bias", {2}},
                                                        {"L_3.layer.weight_ih_l0", {12, 2}},
                                                        {"L_3.layer.weight_hh_l0", {12, 3}},
                                                        {"L_3.layer.bias_ih_l0", {12}},
                                                        {"L_3.layer.bias_hh_l0", {12}},
                                                        {"C_4.co.weight", {4, 3, 1, 3}},
                                                        {"C_4.co.bias", {4}},
                                                        {"L_5.layer.weight_ih_l0", {8, 4}},
                                                        {"L_5.layer.weight_hh_l0", {8, 2}},
                                                        {"L_5.layer.bias_ih_l0", {8}},
                                                        {"L_5.layer.bias_hh_l0", {8}},
                                                        {"L_5.layer.weight_ih_l0_reverse", {8, 4}},
                                                        {"L_5.layer.weight_hh_l0_reverse", {8, 2}},
                                                        {"L_5.layer.bias_ih_l0_reverse", {8}},
                                                        {"L_5.layer.bias_hh_l0_reverse", {8}},
                                                        {"Gn_6.layer.weight", {4}},
                                                        {"Gn_6.layer.bias", {4}},
                                                        {"O_7.lin.weight", {3, 4}},
                                                        {"O_7.lin.bias", {3}}};
  std::map<std::string, std::vector<float>> values;

  std::string write(const TemporaryFolder& folder) {
    std::vector<TensorToWrite> tensors;
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const auto& [name, shape] : shapes) {
      int64_t n = 1;
      for (int64_t s : shape) n *= s;
      std::vector<float>& v = values[name];
      for (int64_t i = 0; i < n; ++i) v.push_back(uniform(random));
      tensors.push_back({"net.nn." + name, DType::f32, shape, v.data()});
    }
    const std::string path = folder.path("kraken.safetensors");
    write_safetensors(path, tensors, {{"kraken_meta", Json::object({{"net", model}}).dump()}});
    return path;
  }
};

ForeignModel read(const std::string& path) {
  return read_kraken_model(SafetensorsFile(std::filesystem::path(path)));
}

std::string refusal(KrakenFile file) {
  const TemporaryFolder folder;
  const std::string path = file.write(folder);
  try {
    read(path);
  } catch (const InputError& e) {
    const std::string text = e.what();
    CHECK(text.starts_with(path));
    return text.substr(path.size());
  }
  return "no refusal";
}

const std::vector<float>& tensor(const ForeignModel& model, const std::string& name) {
  for (const auto& t : model.tensors) {
    if (t.name == name) return t.values;
  }
  throw std::runtime_error("no tensor " + name);
}

void save(const ForeignModel& model, const std::string& path) {
  std::vector<TensorToWrite> tensors;
  for (const auto& t : model.tensors)
    tensors.push_back({t.name, DType::f32, t.shape, nullptr,
                       [bytes = std::as_bytes(std::span(t.values))](uint64_t at, auto into) {
                         std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(at), into.size(),
                                     into.begin());
                       }});
  save_model(path, tensors, model.description);
}

Matrix line() {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(0, 1);
  Matrix m(23, 8);
  for (float& v : m.data) v = uniform(random);
  return m;
}

}  // namespace

TEST_CASE("a model of kraken's: layers, alphabet, and where its tensors go") {
  const TemporaryFolder folder;
  KrakenFile file;
  const std::string path = file.write(folder);
  CHECK(is_kraken_model(SafetensorsFile(std::filesystem::path(path))));
  const ForeignModel model = read(path);
  const ModelDescription& d = model.description;
  CHECK(d.alphabet == std::vector<std::string>{"a", "b"});
  CHECK(d.sizes.features == 8);
  CHECK(d.sizes.outputs == 3);
  CHECK(d.config.features.padding == 16);
  CHECK_FALSE(d.config.features.contrast);
  std::string types;
  for (const LayerConfig& l : d.config.model.layer) types += l.type().name + " ";
  CHECK(types == "conv2d relu pool2d dropout lstm_height conv tanh lstm group_norm ");
  CHECK(d.config.model.layer[2].flag("whole"));
  CHECK(model.remarks.empty());
  CHECK(tensor(model, "conv2d0.weight") == file.values["C_0.co.weight"]);
  CHECK(tensor(model, "lstm_height4.weight_hh") == file.values["L_3.layer.weight_hh_l0"]);
  CHECK(tensor(model, "conv5.weight") == file.values["C_4.co.weight"]);
  CHECK(tensor(model, "lstm7.0.weight_ih_reverse") ==
        file.values["L_5.layer.weight_ih_l0_reverse"]);
  for (size_t i = 0; i < 8; ++i)
    CHECK(tensor(model, "lstm7.0.bias")[i] ==
          file.values["L_5.layer.bias_ih_l0"][i] + file.values["L_5.layer.bias_hh_l0"][i]);
  CHECK(tensor(model, "group_norm8.weight") == file.values["Gn_6.layer.weight"]);
  CHECK(tensor(model, "group_norm8.bias") == file.values["Gn_6.layer.bias"]);
  CHECK(tensor(model, "output.bias") == file.values["O_7.lin.bias"]);
}

TEST_CASE("a model that goes to kraken's format and back says the same") {
  const TemporaryFolder folder;
  KrakenFile file;
  save(read(file.write(folder)), folder.path("model"));
  const SafetensorsFile stored(std::filesystem::path(folder.path("model")));
  CHECK(write_kraken_model(folder.path("again"), stored).empty());
  save(read(folder.path("again")), folder.path("model2"));
  const Transcript a = Recognizer(folder.path("model"), DeviceId{}, 1).transcribe(line());
  const Transcript b = Recognizer(folder.path("model2"), DeviceId{}, 1).transcribe(line());
  CHECK(a.frames == 11);  // of 23 columns: the last one fills no window
  CHECK(a.logits == b.logits);
}

TEST_CASE("files of kraken's that cannot be used are refused by their names") {
  KrakenFile f;
  f.model["vgsl"] = "[1,8,0,1 A1,2 O1c3]";
  CHECK(refusal(f).starts_with(" (its vgsl), character 10: found 'A1,2', expected a layer"));
  f = {};
  f.model["vgsl"] = "[1,8,0,1 S1(1x0)1,3 Lbx2]";
  CHECK(refusal(f) == ": has no output layer of characters (O1c) in its vgsl");
  f = {};
  f.model["_tasks"] = Json::array({"segmentation"});
  CHECK(refusal(f) == ": holds \"TorchVGSLModel\"; expected a TorchVGSLModel that recognises text");
  f = {};
  f.model["codec"] = Json();
  CHECK(refusal(f) == ": has no codec, which says what its classes are");
  f.model["codec"] = Json::object({{"a", Json::array({1, 2})}});
  CHECK(refusal(f) == ": its codec writes 'a' as [1,2], expected one label for each character");
  f.model["codec"] = Json::object({{"a", Json::array({3})}});
  CHECK(refusal(f) == ": its codec gives 'a' the label 3, expected 1 to 2");
  f.model["codec"] = Json::object({{"a", Json::array({1})}, {"b", Json::array({1})}});
  CHECK(refusal(f) == ": its codec gives 'a' and 'b' the same label");
  f.model["codec"] = Json::object({{"b", Json::array({2})}});
  CHECK(refusal(f) == ": its codec has no character for the class 1");
  f.model["codec"] = Json::object({{"ab", Json::array({1})}, {"b", Json::array({2})}});
  CHECK(refusal(f).starts_with(": its codec cannot be an alphabet: "));
  // As kraken writes it after training.
  f.model["codec"] = "{\"a\": [1], \"b\": [2]}";
  CHECK(refusal(f) == "no refusal");
  f = {};
  f.shapes["L_5.layer.weight_hh_l0"] = {8, 3};
  CHECK(refusal(f) == ": tensor 'net.nn.L_5.layer.weight_hh_l0' is f32[8, 3], expected f32[8, 2]");
  f = {};
  f.shapes.erase("O_7.lin.bias");
  CHECK(refusal(f).find("net.nn.O_7.lin.bias") != std::string::npos);
  f = {};
  f.model["vgsl"] = "[1,8,0,1 Cr{C_0}2,5,2 Lfys{L_3}3 O{O_6}1c3]";
  CHECK(refusal(f).starts_with(": has a convolution with a kernel of 2, after which"));
  f = {};
  f.model["seg_type"] = "bbox";
  const TemporaryFolder folder;
  CHECK(read(f.write(folder)).remarks.size() == 1);
}

TEST_CASE("what kraken is to read backwards it reads forwards, and so it is converted") {
  KrakenFile f;
  std::string spec = vgsl;
  spec.replace(spec.find("Lbx{L_5}2 Gn{Gn_6}2"), 19, "Lrx{L_5}4 Gn{Gn_6}2");
  f.model["vgsl"] = spec;
  f.shapes["L_5.layer.weight_ih_l0"] = {16, 4};
  f.shapes["L_5.layer.weight_hh_l0"] = {16, 4};
  f.shapes["L_5.layer.bias_ih_l0"] = f.shapes["L_5.layer.bias_hh_l0"] = {16};
  const TemporaryFolder folder;
  const ForeignModel model = read(f.write(folder));
  CHECK_FALSE(model.description.config.model.layer[7].flag("backward"));
  CHECK_FALSE(model.description.config.model.layer[7].flag("bidirectional"));
  REQUIRE(model.remarks.size() == 1);
  CHECK_THAT(model.remarks[0], Catch::Contains("(Lrx); kraken reads it forwards"));
}

TEST_CASE("models that kraken has no layers for are refused, and what differs is said") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& toml, Cmvn cmvn = Cmvn::none) {
    ModelDescription d;
    d.config = parse_config(toml, "test");
    d.config.features.type = FeatureType::image;
    d.config.features.height = 8;
    d.config.features.cmvn = cmvn;
    d.alphabet = {"a", "b"};
    d.sizes = {8, 3};
    Session session(build_model(d.config.model, d.config.task, d.sizes),
                    session_options(d.config, DeviceId{}));
    save_model(folder.path("model"), session, d);
    return write_kraken_model(folder.path("out"),
                              SafetensorsFile(std::filesystem::path(folder.path("model"))));
  };
  const std::string lstm = "[[model.layer]]\ntype = \"lstm\"\nhidden = 3\n";
  CHECK_THROWS_WITH(
      write("[[model.layer]]\ntype = \"gelu\"\n" + lstm),
      Catch::EndsWith("has a layer of type 'gelu' in that place, which kraken has not"));
  CHECK_THROWS_WITH(write(lstm + "projection = 2\n"),
                    Catch::Contains("an LSTM with a projection or residuals"));
  CHECK_THROWS_WITH(write(lstm + "bidirectional = false\nbackward = true\n"),
                    Catch::Contains("reads backwards alone"));
  CHECK_THROWS_WITH(
      write("[[model.layer]]\ntype = \"conv2d\"\nchannels = 4\n[[model.layer]]\ntype = "
            "\"conv2d\"\nchannels = 4\ngroups = 2\n" +
            lstm),
      Catch::Contains("a convolution in groups"));
  CHECK_THROWS_WITH(write("[features]\ndirection = \"rtl\"\n" + lstm),
                    Catch::Contains("from right to left"));
  CHECK_THROWS_WITH(write(lstm, Cmvn::utterance), Catch::Contains("train with features.cmvn=none"));
  const auto remarks = write("[[model.layer]]\ntype = \"pool2d\"\n" + lstm);
  REQUIRE(remarks.size() == 3);
  CHECK_THAT(remarks[0], Catch::Contains("features.contrast"));
  CHECK_THAT(remarks[1], Catch::Contains("features.padding"));
  CHECK_THAT(remarks[2], Catch::Contains("whole = false"));
}
