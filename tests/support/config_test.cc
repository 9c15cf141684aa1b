#include "engine/config/config.h"

#include <nlohmann/json.hpp>

#include "engine/config/layer_types.h"
#include "kernels/conv/conv.h"
#include "tests/support/support.h"

using namespace rondo;
using rondo::test::input_error;
using rondo::test::TemporaryDirectory;
namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using Catch::Contains;

namespace {

Config with(const Strings& overrides) { return load_config("", overrides); }
std::string error_of(const std::string& toml, const Strings& overrides = {}) {
  return input_error([&] { parse_config(toml, "conf.toml", overrides); });
}
std::string override_error(const std::string& text) { return error_of("", {text}); }

}  // namespace

TEST_CASE("an empty file gives the defaults", "[config]") {
  CHECK(parse_config("", "conf.toml") == Config{});
  CHECK(load_config("") == Config{});
}

TEST_CASE("what is no more is refused where a user writes it, and ignored where it is stored",
          "[config]") {
  const std::string old =
      "[parallel]\nsync = \"local\"\nouter_lr = 0.7\nouter_momentum = 0.5\nsync_every = 3\n";
  CHECK_THAT(error_of(old), Contains("conf.toml:2: parallel.sync = \"local\" is no more: "));
  CHECK_THAT(error_of("parallel.outer_lr = 1.0"),
             Contains("conf.toml:1: parallel.outer_lr = 1 is no more: it was"));
  CHECK_THAT(override_error("parallel.sync=block"),
             Contains("override 'parallel.sync=block': parallel.sync = \"block\" is no more: "));
  const StoredConfig stored = parse_stored_config(old, "conf.toml");
  CHECK((stored.config.parallel.sync == Sync::step && stored.config.parallel.sync_every == 3));
  // What had its default changed nothing.
  REQUIRE(stored.ignored.size() == 2);
  CHECK_THAT(stored.ignored[0], Contains("parallel.sync = \"local\" is no more: ranks share"));
  CHECK_THAT(stored.ignored[1], Contains("parallel.outer_lr = 0.7 is no more: it was for"));
  CHECK(parse_stored_config("parallel.outer_lr = 1.0", "conf.toml").ignored.empty());
  // Other mistakes are mistakes there too; and overrides are today's.
  CHECK_THAT(input_error([] { parse_stored_config("parallel.outer = 1", "conf.toml"); }),
             Contains("unknown key"));
  CHECK_THAT(
      input_error([&] { parse_stored_config(old, "conf.toml", Strings{"parallel.outer_lr=1"}); }),
      Contains("override 'parallel.outer_lr=1'"));
}

TEST_CASE("a setting is read by its name of before as by its own, and written by its own",
          "[config]") {
  const std::string before = "[parallel]\nvirtual_shards = 3\nshard_optimizer = true\n";
  const Config read = parse_config(before, "conf.toml");
  CHECK((read.parallel.batch_parts == 3 && read.parallel.divide_optimizer));
  CHECK(parse_config("parallel = { virtual_shards = 3, shard_optimizer = true }", "conf.toml") ==
        read);
  CHECK(with({"parallel.virtual_shards=3", "parallel.shard_optimizer=true"}) == read);
  const StoredConfig stored = parse_stored_config(before, "conf.toml");
  CHECK((stored.config == read && stored.ignored.empty()));
  CHECK_THAT(to_toml(read), Contains("\nbatch_parts = 3\n") &&
                                Contains("\ndivide_optimizer = true\n") &&
                                !Contains("virtual_shards") && !Contains("shard_optimizer"));
  CHECK(parse_config(to_toml(read), "conf.toml") == read);
  const std::string section =
      "[schedule]\ntype = \"step\"\nstep_every = 7\n[lr]\nwarmup_steps = 3\n";
  const Config rate = parse_config(section, "conf.toml");
  CHECK((rate.lr.type == LearningRateType::step && rate.lr.step_every == 7 &&
         rate.lr.warmup_steps == 3));
  CHECK(with({"schedule.type=step", "schedule.step_every=7", "lr.warmup_steps=3"}) == rate);
  CHECK_THAT(to_toml(rate), Contains("\n[lr]\ntype = \"step\"\n") && !Contains("[schedule]"));
  // Of overrides the last counts, by whatever name; each wins over the file.
  CHECK(parse_config(before, "conf.toml", Strings{"parallel.batch_parts=5"}).parallel.batch_parts ==
        5);
  CHECK(parse_config("parallel.batch_parts = 5", "conf.toml",
                     Strings{"parallel.batch_parts=6", "parallel.virtual_shards=7"})
            .parallel.batch_parts == 7);
}

TEST_CASE("mistakes in a setting by its name of before name the one it has", "[config]") {
  CHECK(error_of("[parallel]\nsync_every = 3\nvirtual_shards = 0\n") ==
        "conf.toml:3: parallel.batch_parts (formerly parallel.virtual_shards) is 0, expected an "
        "integer from 1 to 4096");
  CHECK(override_error("parallel.shard_optimizer=2") ==
        "override 'parallel.shard_optimizer=2': parallel.divide_optimizer (formerly "
        "parallel.shard_optimizer) is 2, expected true or false");
  CHECK(error_of("[parallel]\nshard_optimiser = true\n") ==
        "conf.toml:2: unknown key 'parallel.shard_optimiser'; did you mean "
        "'parallel.divide_optimizer'?");
  CHECK(override_error("virtual_shard=4") ==
        "override 'virtual_shard=4': unknown key 'virtual_shard'; did you mean "
        "'parallel.batch_parts'?");
  CHECK(error_of("[training]\nepochs = 3\n[schedule]\nwarmup_steps = -1\n") ==
        "conf.toml:4: lr.warmup_steps (formerly schedule.warmup_steps) is -1, expected an integer "
        "of at least 0");
  CHECK(error_of("schedule = \"cosine\"") ==
        "conf.toml:1: lr (formerly schedule) is \"cosine\", expected a table of keys: 'lr' is a "
        "section");
  CHECK(
      override_error("lr=1e-3") ==
      "override 'lr=1e-3': lr is 0.001, expected a table of keys: 'lr' is a section; did you mean "
      "'optimizer.lr'?");
  CHECK(override_error("schedule.type=wild") ==
        "override 'schedule.type=wild': lr.type (formerly schedule.type) is \"wild\", expected one "
        "of \"constant\", \"linear\", \"cosine\", \"noam\", \"step\", \"plateau\"");
  CHECK(error_of("[schedule]\nwarmup_step = 3\n") ==
        "conf.toml:2: unknown key 'schedule.warmup_step'; did you mean 'lr.warmup_steps'?");
  CHECK(error_of("[schedul]\ntype = \"step\"\n") ==
        "conf.toml:1: unknown key 'schedul'; did you mean 'lr'?");
  CHECK(override_error("schedul.type=step") ==
        "override 'schedul.type=step': unknown key 'schedul.type'; did you mean 'lr.type'?");
  // One setting, given by both.
  CHECK(error_of("[lr]\nwarmup_steps = 3\n[schedule]\nwarmup_steps = 3\n") ==
        "conf.toml:4: schedule.warmup_steps and lr.warmup_steps (conf.toml:2) are one setting, "
        "whose name is lr.warmup_steps; expected it once");
  const std::string twice = "[parallel]\nvirtual_shards = 3\nsync_every = 3\nbatch_parts = 3\n";
  const std::string told =
      "conf.toml:4: parallel.batch_parts and parallel.virtual_shards (conf.toml:2) are one "
      "setting, whose name is parallel.batch_parts; expected it once";
  CHECK(error_of(twice) == told);
  CHECK(input_error([&] { parse_stored_config(twice, "conf.toml"); }) == told);
}

// The parser is recursive: without a limit before it the stack overflows.
TEST_CASE("a key or a bracket that nests too deep is named, and the stack survives", "[config]") {
  std::string key = "a";
  for (int i = 0; i < 300000; ++i) key += ".a";
  const auto deep_key = Contains("a key has more than 64 parts: '");
  for (const std::string& text :
       {key + " = 1", "[" + key + "]", "[[" + key + "]]", "x = { " + key + " = 1 }",
        "\"" + std::string("q\".") + key + " = 1"}) {
    const std::string error = error_of("[model]\nhidden = 8  # a.b\n\n" + text + "\n");
    CHECK_THAT(error, Contains("conf.toml:4: a key has more than 64 parts: '"));
    CHECK(error.size() < 200);
  }
  CHECK_THAT(error_of(key + " = 1"), deep_key);
  CHECK_THAT(override_error("optimizer.lr={ " + key + " = 1 }"), deep_key);
  CHECK_THAT(override_error(key + "=1"), Contains("'"));
  for (const char open : {'[', '{'}) {
    CHECK_THAT(error_of("x = " + std::string(300000, open)),
               Contains("conf.toml:1: there are more than 64 brackets within each other"));
  }
  // Dots and brackets that are text, and many values, are not depth.
  std::string dots(300000, '.');
  const Config c = parse_config("# " + dots + "\n[data]\nalphabet = \"" + dots + "\\\"" +
                                    "\"\ntrain = '" + dots + "[[['\n[model]\nhidden = 7 # " + dots,
                                "conf.toml");
  CHECK(c.data.train == dots + "[[[");
  CHECK(c.model.hidden == 7);
  std::string speeds = "1.0";
  for (int i = 0; i < 200; ++i) speeds += ",\n 1.0";
  CHECK(parse_config("[augment]\nspeed = [" + speeds + "]", "conf.toml").augment.speed.size() ==
        201);
  CHECK_THAT(error_of("[data]\nalphabet = \"\"\"\n" + dots + "\"\"\"\nnone.such = 1\n"),
             Contains("conf.toml:4: unknown key"));
}

TEST_CASE("a file sets typed values of every kind", "[config]") {
  const Config c = parse_config(R"(
task = "classify"
[model]
hidden = 64
bidirectional = false
dropout = 0.25
[features]
type = "mfcc"
frame_ms = 20     # an integer where a number is expected
[augment]
speed = [0.9, 1, 1.1]
[training]
seed = 9223372036854775807
max_steps = 5000000000
dtype = "bf16"
checkpoint_dir = "runs/ä \"x\""
[optimizer]
type = "sgd"
)",
                                "conf.toml");
  CHECK(c.task == Task::classify);
  CHECK(c.model.hidden == 64);
  CHECK_FALSE(c.model.bidirectional);
  CHECK(c.model.dropout == 0.25);
  CHECK(c.features.type == FeatureType::mfcc);
  CHECK(c.features.frame_ms == 20.0);
  CHECK(c.augment.speed == std::vector<double>{0.9, 1.0, 1.1});
  CHECK(c.training.seed == 9223372036854775807u);
  CHECK(c.training.max_steps == 5000000000);
  CHECK(c.training.dtype == DType::bf16);
  CHECK(c.training.checkpoint_dir == "runs/ä \"x\"");
  CHECK(c.optimizer.kind == OptimizerOptions::sgd);
  CHECK(c.model.layers == ModelConfig{}.layers);
}

TEST_CASE("overrides win over the file, later ones over earlier ones", "[config]") {
  const Config c = parse_config("[training]\nepochs = 3\nseed = 4\n", "conf.toml",
                                Strings{"training.epochs=5", "training.epochs=6"});
  CHECK(c.training.epochs == 6);
  CHECK(c.training.seed == 4);
}

TEST_CASE("override values: TOML, bare words, and text for string keys", "[config]") {
  CHECK(with({"optimizer.lr=2e-3"}).optimizer.learning_rate == 2e-3);
  CHECK(with({"optimizer.lr= 0.5"}).optimizer.learning_rate == 0.5);
  CHECK(with({"optimizer.nesterov=true"}).optimizer.nesterov);
  CHECK(with({"lr.type=noam"}).lr.type == LearningRateType::noam);
  CHECK(with({"lr.type=\"noam\""}).lr.type == LearningRateType::noam);
  CHECK(with({"augment.speed=[0.9,1.1]"}).augment.speed == std::vector<double>{0.9, 1.1});
  CHECK(with({"data.alphabet=0123"}).data.alphabet == "0123");
  CHECK(with({"data.train=2024-01-01"}).data.train == "2024-01-01");
  CHECK(with({"training.checkpoint_dir=/a b/c=d"}).training.checkpoint_dir == "/a b/c=d");
  CHECK(with({"training.checkpoint_dir=\"/q r\""}).training.checkpoint_dir == "/q r");
  CHECK(with({"training.init_from="}).training.init_from.empty());
  CHECK(with({"model.layer=[{type=\"linear\",size=7}]"}).model.layer.at(0).integer("size") == 7);
}

TEST_CASE("data=DIR sets the three manifests", "[config]") {
  for (const Config& c : {with({"data=out"}), parse_config("data = \"out\"", "conf.toml")}) {
    CHECK(c.data.train == "out/train.jsonl");
    CHECK(c.data.dev == "out/dev.jsonl");
    CHECK(c.data.test == "out/test.jsonl");
  }
  const Config c =
      parse_config("[data]\nbatch_frames = 77\n", "conf.toml", Strings{"data=7", "data.dev="});
  CHECK(c.data.train == "7/train.jsonl");
  CHECK(c.data.dev.empty());
  CHECK(c.data.batch_frames == 77);
  CHECK_THAT(override_error("data="), Contains("directory of a corpus"));
}

TEST_CASE("data=DIR takes the manifests that are there", "[config]") {
  const TemporaryDirectory folder;
  const fs::path dir = folder.path();
  const std::string data = "data=" + dir.string();
  const auto make = [&](const char* name) { rondo::test::spit(dir / name, "{}\n"); };
  const auto manifests = [&](const std::vector<std::string>& overrides) {
    const Config c = with(overrides);
    return std::vector{c.data.train, c.data.dev, c.data.test};
  };
  const auto in = [&](const char* name) { return (dir / name).string(); };
  CHECK_THAT(override_error(data),
             Contains("'" + data + "': the folder '" + dir.string() + "' has no train.jsonl"));
  make("test.jsonl");
  CHECK_THAT(override_error(data), Contains("has no train.jsonl"));
  make("train.jsonl");
  CHECK(manifests({data}) == std::vector<std::string>{in("train.jsonl"), "", in("test.jsonl")});
  fs::remove(dir / "test.jsonl");
  CHECK(manifests({data}) == std::vector<std::string>{in("train.jsonl"), "", ""});
  // What is named by itself stays, there or not, before and behind.
  const std::vector<std::string> named = {in("train.jsonl"), "", "elsewhere.jsonl"};
  CHECK(manifests({data, "data.test=elsewhere.jsonl"}) == named);
  CHECK(manifests({"data.test=elsewhere.jsonl", data}) == named);
  // Those of a file give way: they are of another corpus.
  CHECK(
      parse_config("[data]\ndev = \"other.jsonl\"\n", "conf.toml", Strings{data}).data.dev.empty());
  // A link to nowhere is there, and who opens it says so.
  fs::create_symlink("nowhere", dir / "dev.jsonl");
  CHECK(manifests({data}).at(1) == in("dev.jsonl"));
}

TEST_CASE("the layers, listed or in short form", "[config]") {
  const Config c = parse_config(R"(
[[model.layer]]
type = "stack"
factor = 3
[[model.layer]]
type = "lstm"
hidden = 128
bidirectional = false
[[model.layer]]
type = "relu"
)",
                                "conf.toml");
  const std::vector<LayerConfig> layers = expand_layers(c.model);
  REQUIRE(layers.size() == 3);
  CHECK(layers[0].type().name == "stack");
  CHECK(layers[0].integer("factor") == 3);
  CHECK(layers[1].integer("hidden") == 128);
  CHECK_FALSE(layers[1].flag("bidirectional"));
  CHECK(layers[2].type().name == "relu");

  const Config s =
      with({"model.layers=2", "model.subsample=3", "model.layer_norm=true", "model.residual=true"});
  Strings types;
  for (const LayerConfig& l : expand_layers(s.model)) types.push_back(l.type().name);
  CHECK(types ==
        Strings{"stack", "lstm", "layer_norm", "dropout", "lstm", "layer_norm", "dropout"});
  CHECK(expand_layers(s.model)[1].flag("residual"));
  CHECK(expand_layers(with({"model.layers=0", "model.subsample=1"}).model).empty());
}

TEST_CASE("unknown keys name file, line and the nearest known key", "[config]") {
  CHECK(error_of("[training]\nepochs = 1\nepoch = 3\n") ==
        "conf.toml:3: unknown key 'training.epoch'; did you mean 'training.epochs'?");
  CHECK(error_of("\n\n[optimiser]\nlr = 1\n") ==
        "conf.toml:3: unknown key 'optimiser'; did you mean 'optimizer'?");
  CHECK(error_of("epochs = 3") ==
        "conf.toml:1: unknown key 'epochs'; did you mean 'training.epochs'?");
  CHECK(error_of("[model]\nseed = 3") ==
        "conf.toml:2: unknown key 'model.seed'; did you mean 'training.seed'?");
  CHECK_THAT(error_of("zzzzqqqq = 3"),
             Contains("unknown key 'zzzzqqqq'; --help-config lists all keys"));
  CHECK(override_error("date=mine") ==
        "override 'date=mine': unknown key 'date'; did you mean 'data'?");
  CHECK(override_error("trainin.epochs=3") ==
        "override 'trainin.epochs=3': unknown key 'trainin.epochs'; did you mean "
        "'training.epochs'?");
  CHECK_THAT(error_of("[[model.layer]]\ntype = \"linear\"\nhiden = 3\n"),
             Contains("conf.toml:3: unknown key 'model.layer.hiden'"));
  CHECK_THAT(error_of("[[model.layer]]\ntype = \"linear\"\nsizes = 3\n"),
             Contains("did you mean 'model.layer.size'?"));
  CHECK_THAT(error_of("[[model.layer]]\nzeed = 1\ntype = \"linear\"\nabc = 2\n"),
             Contains("conf.toml:2: unknown key 'model.layer.zeed'"));
  // The first mistake of the file is named, not the first in alphabetical order.
  CHECK_THAT(error_of("[training]\nzeed = 1\nabc = 2\n"),
             Contains("conf.toml:2: unknown key 'training.zeed'"));
}

TEST_CASE("wrong types name key, value and expectation", "[config]") {
  CHECK(error_of("[training]\nepochs = \"ten\"\n") ==
        "conf.toml:2: training.epochs is \"ten\", expected an integer from 1 to 1e+09");
  CHECK_THAT(error_of("[training]\nepochs = 1.5\n"),
             Contains("training.epochs is 1.5, expected an integer"));
  CHECK_THAT(error_of("[augment]\nspec_augment = 1\n"), Contains("is 1, expected true or false"));
  CHECK_THAT(error_of("[optimizer]\nlr = \"x\"\n"), Contains("expected a number above 0"));
  CHECK_THAT(
      error_of("[optimizer]\ntype = \"adagrad\"\n"),
      Contains("optimizer.type is \"adagrad\", expected one of \"sgd\", \"adam\", \"adamw\""));
  CHECK_THAT(error_of("[data]\ntrain = 3\n"), Contains("data.train is 3, expected a string"));
  CHECK_THAT(error_of("[augment]\nspeed = [1, 0.9, \"x\"]\n"),
             Contains("augment.speed is [1, 0.9, \"x\"], expected a list of numbers"));
  CHECK_THAT(error_of("training = 3\n"), Contains("'training' is a section"));
  CHECK_THAT(error_of("[training.epochs]\nx = 3\n"), Contains("training.epochs is a table"));
  CHECK_THAT(error_of("model.layer = 3\n"), Contains("[[model.layer]]"));
  CHECK_THAT(error_of("model.layer = [3]\n"), Contains("expected a table"));
  CHECK_THAT(error_of("[[model.layer]]\nhidden = 3\n"),
             Contains("conf.toml:1: a [[model.layer]] has no 'type'"));
  CHECK_THAT(error_of("[[model.layer]]\ntype = \"frobnicate\"\n"),
             Contains("model.layer.type is \"frobnicate\", expected one of"));
  CHECK_THAT(override_error("training.epochs=soon"),
             Contains("training.epochs is \"soon\", expected an integer"));
  CHECK_THAT(override_error("model.layer=[{type=3}]"), Contains("model.layer.type is 3"));
}

TEST_CASE("values out of range are refused, not clamped", "[config]") {
  for (const char* bad :
       {"training.epochs=0", "training.epochs=-3", "training.epochs=99999999999", "optimizer.lr=0",
        "optimizer.lr=-1", "optimizer.lr=nan", "optimizer.lr=inf", "optimizer.lr=-inf",
        "optimizer.beta1=1", "model.dropout=1.0", "model.dropout=-0.1", "training.seed=-1",
        "augment.speed=[0.1]", "augment.speed=[nan]", "model.hidden=0", "training.max_steps=-1",
        "features.rate=0"}) {
    CAPTURE(bad);
    CHECK_THAT(override_error(bad), Contains("expected"));
  }
  CHECK_THAT(override_error("optimizer.beta1=1"), Contains("a number of at least 0 and below 1"));
}

TEST_CASE("the short form and listed layers exclude each other", "[config]") {
  const std::string listed = "[[model.layer]]\ntype = \"relu\"\n";
  CHECK_THAT(error_of("[model]\nhidden = 3\n" + listed),
             Contains("conf.toml:2: model.hidden belongs to the short form"));
  CHECK_THAT(error_of(listed, {"model.hidden=3"}),
             Contains("override 'model.hidden=3': model.hidden belongs"));
  CHECK(
      parse_config(listed, "conf.toml", Strings{"model.layer=[]", "model.hidden=3"}).model.hidden ==
      3);
  Config loaded = parse_config(listed, "conf.toml");
  CHECK_THAT(input_error([&] { apply_overrides(loaded, Strings{"model.layers=3"}); }),
             Contains("short form"));
}

TEST_CASE("malformed TOML and overrides", "[config]") {
  CHECK_THAT(error_of("[training]\nepochs = = 3\n"), Contains("conf.toml:2: "));
  CHECK_THAT(error_of("[training]\nepochs = 1\nepochs = 2\n"), Contains("conf.toml:3: "));
  CHECK_THAT(error_of("a = \"\xff\xfe\"\n"), Contains("conf.toml:1: "));
  CHECK_THAT(error_of(std::string("a = \0", 5)), Contains("conf.toml:1: "));
  // The parser asserts on these; found by fuzzing.
  CHECK(error_of("task = \"ctc\"\n\n[.training]\n") ==
        "conf.toml:3: malformed table header or key");
  // The parser's tables of characters do not cover these.
  CHECK_THAT(error_of("# ä\ntask = \"ctc\"\nö = 3\n"), Contains("conf.toml:3: "));
  CHECK_THAT(error_of("opt\xd2\x84 = 3"), Contains("conf.toml:1: "));
  CHECK_THAT(error_of("0=8eA='[s\xc4\xb8"), Contains("conf.toml:1: "));
  CHECK(with({"data=größe"}).data.dev == "größe/dev.jsonl");
  CHECK(with({"data.alphabet=\"äö\""}).data.alphabet == "äö");
  CHECK_THAT(override_error("model.layer=[{tüpe=3}]"), Contains("model.layer=["));
  CHECK_THAT(error_of("[[.x]]\n"), Contains("conf.toml:1: "));
  CHECK_THAT(override_error("augment.speed=1\n[.x]"), Contains("augment.speed"));
  CHECK(override_error("epochs") == "override 'epochs' is not of the form key=value");
  CHECK_THAT(override_error("=3"), Contains("not of the form"));
  CHECK_THAT(override_error("a b=3"), Contains("not of the form"));
  CHECK_THAT(override_error("augment.speed=[0.9"), Contains("override 'augment.speed=[0.9': "));
  CHECK_THAT(override_error("training..epochs=3"), Contains("unknown key"));
  CHECK_THAT(override_error(".=3"), Contains("unknown key"));
  // A second key cannot be smuggled in behind a line break.
  CHECK_THAT(override_error("training.epochs=3\nfoo=4"), Contains("training.epochs is"));
}

TEST_CASE("a missing config file, and a directory, are named", "[config]") {
  TemporaryDirectory dir;
  CHECK_THAT(input_error([&] { load_config(dir / "none.toml"); }),
             Contains("none.toml") && Contains("No such file"));
  CHECK_THAT(input_error([&] { load_config(dir.path()); }), Contains("a directory"));
}

TEST_CASE("a failed override leaves the config as it was", "[config]") {
  Config c;
  CHECK_THROWS_AS(apply_overrides(c, Strings{"training.epochs=7", "training.seed=x"}), InputError);
  CHECK(c == Config{});
}

TEST_CASE("the resolved config round-trips through TOML", "[config]") {
  Config c =
      with({"optimizer.lr=0.1", "augment.speed=[0.9,1,1.1]", "training.ema=0.9999", "data=o\\u",
            "task=regress", "training.seed=9223372036854775807", "lr.final_factor=1e-300"});
  c.data.alphabet = "a\"\\\n\t\x01\x7f é\xf0\x9f\x98\x80";
  apply_overrides(c, Strings{R"(text.replace=["a=b", "\"=\\", "c="])", "text.locale=tr"});
  REQUIRE(c.text.replace.size() == 3);
  CHECK(parse_config(to_toml(c), "resolved") == c);
  CHECK(parse_config(to_toml(Config{}), "resolved") == Config{});

  Config listed;
  for (const LayerType& type : layer_types()) listed.model.layer.emplace_back(type);
  listed.model.layer[0].set("projection", 5);
  CHECK(parse_config(to_toml(listed), "resolved") == listed);
}

TEST_CASE("the resolved config as JSON has every key", "[config]") {
  Config c = with({"model.hidden=9", "augment.speed=[1.1]"});
  const auto j = nlohmann::json::parse(to_json(c));
  CHECK(j["task"] == "ctc");
  CHECK(j["model"]["hidden"] == 9);
  CHECK(j["augment"]["speed"] == std::vector<double>{1.1});
  CHECK(j["training"]["dtype"] == "f32");
  CHECK_FALSE(j["model"].contains("layer"));
  Config listed = with({"model.layer=[{type=\"stack\",factor=4}]"});
  const auto l = nlohmann::json::parse(to_json(listed));
  CHECK(l["model"]["layer"][0] == nlohmann::json{{"type", "stack"}, {"factor", 4}});
  CHECK_FALSE(l["model"].contains("hidden"));
}

TEST_CASE("differences name key, old and new value", "[config]") {
  const Config a, b = with({"training.epochs=60", "task=regress"});
  CHECK(config_differences(a, a).empty());
  CHECK(config_differences(a, b) ==
        Strings{"task: \"ctc\" -> \"regress\"", "training.epochs: 50 -> 60"});
  // Of layers too, and of one option in one of them.
  const Config listed = with({"model.layer=[{type=\"stack\"},{type=\"lstm\",hidden=8}]"}),
               other = with({"model.layer=[{type=\"stack\"},{type=\"lstm\",hidden=9}]"});
  const Strings layers_differ = {"model.layer: the layers differ"};
  CHECK(config_differences(a, listed) == layers_differ);
  CHECK(config_differences(listed, other) == layers_differ);
  CHECK(config_differences(other, other).empty());
}

TEST_CASE("the reference is a config of defaults, and stands in the documentation", "[config]") {
  CHECK(parse_config(config_reference(), "reference") == Config{});
  CHECK_THAT(config_reference(),
             Contains("epochs = 50 ") && Contains("passes over the training data"));
  const char* root = std::getenv("RONDO_SOURCE_ROOT");
  if (!root) {
    WARN("RONDO_SOURCE_ROOT is not set: docs/settings.md is not compared");
    return;
  }
  const std::filesystem::path path = std::filesystem::path(root) / "docs/settings.md";
  const std::string begin = "<!-- config reference: begin -->\n";
  const std::string end = "<!-- config reference: end -->";
  std::string doc = rondo::test::slurp(path);
  const size_t from = doc.find(begin), to = doc.find(end);
  REQUIRE(from != std::string::npos);
  REQUIRE(to != std::string::npos);
  if (std::getenv("RONDO_UPDATE_DOCS")) {
    doc.replace(from + begin.size(), to - from - begin.size(), config_reference_markdown());
    rondo::test::spit(path, doc);
  }
  INFO("run support_tests with RONDO_UPDATE_DOCS=1 to write the table anew");
  CHECK(rondo::test::slurp(path).find(begin + config_reference_markdown() + end) !=
        std::string::npos);
}

TEST_CASE("convolutions among the layers, and what they make of the number of frames", "[config]") {
  const Config c = parse_config(R"(
[[model.layer]]
type = "conv"
channels = 32
kernel = 9
stride = 2
context = "past"
[[model.layer]]
type = "conv"
dilation = 3
)",
                                "conf.toml");
  const std::vector<LayerConfig> layers = expand_layers(c.model);
  REQUIRE(layers.size() == 2);
  CHECK(layers[0].type().name == "conv");
  CHECK(layers[0].integer("channels") == 32);
  CHECK(layers[0].integer("kernel") == 9);
  CHECK(layers[0].integer("stride") == 2);
  CHECK(layers[0].choice<ConvContext>("context") == ConvContext::past);
  CHECK(layers[1].integer("kernel") == 5);
  CHECK(layers[1].integer("dilation") == 3);
  CHECK(layers[1].choice<ConvContext>("context") == ConvContext::both);
  const Config future = with({"model.layer=[{type=\"conv\", context=\"future\"}]"});
  CHECK(future.model.layer[0].choice<ConvContext>("context") == ConvContext::future);
}

TEST_CASE("a layer refuses types and options that do not exist", "[config]") {
  CHECK_THROWS_WITH(LayerConfig("frobnicate"), Contains("no layer type 'frobnicate'"));
  LayerConfig layer("stack");
  CHECK(layer.set("factor", 4).integer("factor") == 4);
  CHECK_THROWS_WITH(layer.integer("hidden"), Contains("of type 'stack' has no option 'hidden'"));
  CHECK_THROWS_WITH(layer.set("hidden", 3), Contains("of type 'stack' has no option 'hidden'"));
  CHECK_THROWS_WITH(layer.real("factor"), Contains("'factor' of a layer of type 'stack' has"));
  CHECK_THROWS_WITH(layer.set("factor", 4.0), Contains("'factor' of a layer of type 'stack' has"));
  CHECK(layer == LayerConfig("stack").set("factor", 4));
  CHECK_FALSE(layer == LayerConfig("stack"));
}

TEST_CASE("every choice has the name of its enumerator", "[config]") {
  CHECK(with({"model.pooling=mean"}).model.pooling == Pooling::mean);
  CHECK(with({"model.pooling=last"}).model.pooling == Pooling::last);
  CHECK(with({"features.type=ready"}).features.type == FeatureType::ready);
  CHECK(with({"features.cmvn=global"}).features.cmvn == Cmvn::global);
  CHECK(with({"features.cmvn=none"}).features.cmvn == Cmvn::none);
  CHECK(with({"data.text_too_long=skip"}).data.text_too_long == OnBadData::skip);
  CHECK(with({"training.non_finite=stop"}).training.non_finite == OnNonFinite::stop);
  CHECK(with({"optimizer.type=adam"}).optimizer.kind == OptimizerOptions::adam);
  CHECK(with({"lr.type=linear"}).lr.type == LearningRateType::linear);
  CHECK(with({"lr.type=plateau"}).lr.type == LearningRateType::plateau);
  CHECK(with({"lr.type=step"}).lr.type == LearningRateType::step);
}
