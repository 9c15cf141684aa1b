// Each key of a configuration sets the member of its name and nothing else, up to its limits.
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/config/config.h"
#include "tests/support/support.h"

using namespace rondo;
using Catch::Contains;
using Strings = std::vector<std::string>;

namespace {

// The keys that a configuration is printed with, and their values.
std::map<std::string, std::string> printed() {
  std::map<std::string, std::string> all;
  std::istringstream lines(to_toml(Config{}));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with('[')) section = line.substr(1, line.size() - 2) + ".";
    if (equals != std::string::npos)
      all[section + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return all;
}

// What is wrong; empty: nothing.
std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

// Values that a key may take beside its default, and how they are written.
template <class T>
std::vector<std::pair<T, std::string>> values(const T& present) {
  if constexpr (std::is_same_v<T, bool>) {
    return {{!present, present ? "false" : "true"}};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return {{"some text", "some text"}};
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return {{{0.5, 2}, "[0.5, 2]"}};
  } else if constexpr (std::is_integral_v<T>) {
    return {{present + 1, str(present + 1)}, {present - 1, str(present - 1)}};
  } else {
    return {{0.375, "0.375"}, {37.5, "37.5"}};
  }
}

class Keys {
 public:
  template <class T>
  void check(const std::string& key, T& (*member)(Config&)) {
    INFO(key);
    CHECK(checked_.insert(key).second);
    Config defaults;
    bool taken = false;
    for (const auto& [value, written] : values<T>(member(defaults))) {
      Config c;
      const Strings overrides = {key + "=" + written};
      if (!error_of([&] { c = load_config("", overrides); }).empty()) continue;
      taken = true;
      CHECK(member(c) == value);
      CHECK_FALSE(c == Config{});
      member(c) = member(defaults);
      CHECK(c == Config{});
    }
    CHECK(taken);
  }
  // Of the others, which are choices and lists of texts, other tests know the names.
  void check_all_are_there() const {
    for (const auto& [key, value] : printed()) {
      INFO(key);
      if (!value.starts_with('"') && value != "[]") CHECK(checked_.count(key) == 1);
    }
  }

 private:
  std::set<std::string> checked_;
};

}  // namespace

// clang-format off
#define KEY(key, member) \
  keys.check(key, +[](Config& c) -> auto& { return c.member; })
#define MEMBER(section, name) KEY(#section "." #name, section.name)
// clang-format on

TEST_CASE("each key sets the member of its name, and nothing else", "[config]") {
  Keys keys;
  MEMBER(model, hidden);
  MEMBER(model, layers);
  MEMBER(model, bidirectional);
  MEMBER(model, dropout);
  MEMBER(model, subsample);
  MEMBER(model, projection);
  MEMBER(model, layer_norm);
  MEMBER(model, residual);
  MEMBER(model, input_height);
  MEMBER(model, outputs);
  MEMBER(data, train);
  MEMBER(data, dev);
  MEMBER(data, test);
  MEMBER(data, alphabet);
  MEMBER(data, unreadable_limit);
  MEMBER(data, batch_frames);
  MEMBER(data, max_frames);
  MEMBER(data, sorta_grad);
  MEMBER(data, weight_field);
  MEMBER(data, class_field);
  MEMBER(data, draws_per_epoch);
  MEMBER(data, prefetch_threads);
  MEMBER(data, prefetch_batches);
  MEMBER(text, lowercase);
  MEMBER(text, strip_punctuation);
  MEMBER(text, compatibility);
  MEMBER(text, drop_invisible);
  MEMBER(features, bins);
  MEMBER(features, coefficients);
  MEMBER(features, rate);
  MEMBER(features, frame_ms);
  MEMBER(features, hop_ms);
  MEMBER(features, low_hz);
  MEMBER(features, high_hz);
  MEMBER(features, preemphasis);
  MEMBER(features, dither);
  MEMBER(features, height);
  MEMBER(features, padding);
  MEMBER(features, contrast);
  MEMBER(features, deskew);
  MEMBER(features, centre);
  MEMBER(augment, spec_augment);
  MEMBER(augment, frequency_masks);
  MEMBER(augment, frequency_width);
  MEMBER(augment, time_masks);
  MEMBER(augment, time_width);
  MEMBER(augment, time_share);
  MEMBER(augment, speed);
  MEMBER(augment, noise);
  MEMBER(augment, noise_recordings);
  MEMBER(augment, noise_snr_low);
  MEMBER(augment, noise_snr_high);
  MEMBER(distort, probability);
  MEMBER(distort, strength);
  MEMBER(distort, stretch);
  MEMBER(distort, slant);
  MEMBER(distort, rotation);
  MEMBER(distort, size);
  MEMBER(distort, offset);
  MEMBER(distort, elastic);
  MEMBER(distort, thickness);
  MEMBER(distort, blur);
  MEMBER(distort, fade);
  MEMBER(distort, background);
  MEMBER(distort, show_through);
  MEMBER(distort, noise);
  MEMBER(distort, cutouts);
  MEMBER(distort, cutout_size);
  MEMBER(training, epochs);
  MEMBER(training, max_seconds);
  MEMBER(training, max_steps);
  MEMBER(training, seed);
  MEMBER(training, threads);
  MEMBER(training, accumulation);
  MEMBER(training, tbptt);
  MEMBER(training, fuse_output_from);
  KEY("training.clip", optimizer.clip_norm);
  KEY("training.ema", optimizer.ema_decay);
  MEMBER(training, average_best);
  MEMBER(training, patience);
  MEMBER(training, validate_every_steps);
  MEMBER(training, checkpoint_dir);
  MEMBER(training, checkpoint_every_seconds);
  MEMBER(training, checkpoint_every_steps);
  MEMBER(training, keep_last);
  MEMBER(training, keep_best);
  MEMBER(training, log);
  MEMBER(training, tensorboard);
  MEMBER(training, log_every_steps);
  MEMBER(training, samples);
  MEMBER(training, non_finite_limit);
  MEMBER(training, init_from);
  MEMBER(training, freeze_before);
  KEY("optimizer.lr", optimizer.learning_rate);
  MEMBER(optimizer, momentum);
  MEMBER(optimizer, nesterov);
  MEMBER(optimizer, beta1);
  MEMBER(optimizer, beta2);
  KEY("optimizer.eps", optimizer.epsilon);
  MEMBER(optimizer, weight_decay);
  MEMBER(lr, warmup_steps);
  MEMBER(lr, total_steps);
  MEMBER(lr, final_factor);
  MEMBER(lr, step_every);
  MEMBER(lr, step_factor);
  MEMBER(lr, plateau_patience);
  MEMBER(lr, plateau_factor);
  MEMBER(lr, plateau_threshold);
  MEMBER(parallel, sync_every);
  MEMBER(parallel, max_staleness);
  MEMBER(parallel, divide_optimizer);
  MEMBER(parallel, batch_parts);
  MEMBER(parallel, bucket_kb);
  MEMBER(parallel, nccl_blocks);
  MEMBER(parallel, sequence);
  MEMBER(parallel, timeout_seconds);
  MEMBER(parallel, pipeline);
  MEMBER(parallel, data);
  MEMBER(parallel, micro_batches);
  MEMBER(parallel, placement);
  MEMBER(parallel, stage_memory_mb);
  keys.check_all_are_there();
}

#undef MEMBER

TEST_CASE("values at their limits are taken, those beyond are not", "[config]") {
  const auto error = [](const std::string& text) {
    return error_of([&] { load_config("", Strings{text}); });
  };
  for (const auto& [key, range] : std::map<std::string, std::pair<std::string, std::string>>{
           {"model.hidden", {"1", "65536"}},
           {"model.layers", {"0", "100"}},
           {"model.outputs", {"0", "16777216"}},
           {"data.batch_frames", {"1", "1000000000"}},
           {"features.frame_ms", {"1.0", "1000.0"}},
           {"lr.final_factor", {"0.0", "1.0"}},
           {"training.non_finite_limit", {"1", "1000000000"}},
           {"distort.stretch", {"0.0", "0.5"}},
           {"augment.noise_snr_low", {"-100.0", "100.0"}}}) {
    INFO(key);
    CHECK(error(key + "=" + range.first).empty());
    CHECK(error(key + "=" + range.second).empty());
    const bool is_whole = range.second.find('.') == std::string::npos;
    const double low = std::stod(range.first), high = std::stod(range.second);
    const auto written = [&](double v) {
      return is_whole ? str(static_cast<int64_t>(v)) : std::to_string(v);
    };
    CHECK_THAT(error(key + "=" + written(low - (is_whole ? 1 : 0.001))), Contains("expected a"));
    CHECK_THAT(error(key + "=" + written(high + (is_whole ? 1 : 0.001))), Contains("expected a"));
  }
  // Where a limit itself is left out.
  CHECK(error("model.dropout=0").empty());
  CHECK_THAT(error("model.dropout=1"), Contains("a number of at least 0 and below 1"));
  CHECK_THAT(error("optimizer.eps=0"), Contains("a number above 0"));
  CHECK(error("lr.step_factor=1").empty());
  CHECK_THAT(error("lr.step_factor=0"), Contains("a number above 0 and at most 1"));
  // Of a list each element counts.
  CHECK(error("augment.speed=[0.25, 4]").empty());
  CHECK_THAT(error("augment.speed=[1, 4.01]"), Contains("a list of numbers, each from 0.25 to 4"));
  CHECK_THAT(error("augment.speed=[1, 0.2, 1]"), Contains("each from 0.25 to 4"));
}

TEST_CASE("what is too long for a message is cut short between characters", "[config]") {
  for (const std::string before : {"", "x"}) {
    std::string text = before;
    for (int i = 0; i < 100; ++i) text += "\xc3\xa4";
    const auto error = [](const std::string& override) {
      return error_of([&] { load_config("", Strings{override}); });
    };
    CHECK_THAT(error("training.epochs=\"" + text + "\""),
               Contains("\xc3\xa4..., expected an integer"));
    CHECK_THAT(error("training.epochs=" + text), Contains("\xc3\xa4...': training.epochs is"));
    CHECK_THAT(error_of([&] { parse_config("\"" + text + "\" = 1", "c"); }),
               Contains("unknown key '" + text.substr(0, 100 - before.size())) &&
                   Contains("\xc3\xa4...'"));
  }
}

TEST_CASE("what nests as deep as allowed is not too deep", "[config]") {
  const auto error = [](const std::string& toml) {
    return error_of([&] { parse_config(toml, "conf.toml"); });
  };
  // Not known, but not too deep: 64 parts, or brackets.
  std::string key = "a";
  for (int i = 1; i < 64; ++i) key += ".a";
  CHECK_THAT(error(key + " = 1"), Contains("unknown key"));
  CHECK_THAT(error(key + ".a = 1"), Contains("conf.toml:1: a key has more than 64 parts"));
  const auto brackets = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  CHECK_THAT(error("x = " + brackets(64)), Contains("unknown key"));
  CHECK_THAT(error("x = [" + brackets(64) + "]"), Contains("more than 64 brackets"));
  CHECK_THAT(error("x = [" + brackets(63) + ", " + brackets(63) + "]"), Contains("unknown key"));
  // Each of several keys by itself.
  const std::string half = key.substr(0, 2 * 40 - 1);
  CHECK_THAT(error("x = { " + half + ".b = 1, " + half + ".c = 2 }"), Contains("unknown key"));
  // Quotes within strings, in strings of several lines and of the other kind.
  const std::string dots(100, '.');
  CHECK(error("[data]\ntrain = \"\\\"" + dots + "\"\ndev = 'a\\'\ntest = '\"'\n").empty());
  CHECK(error("[data]\ntrain = \"\"\"\n\"" + dots + "\n''' \\\"\"" + dots + "\"\"\"\n").empty());
  CHECK_THAT(error("[data]\ntrain = '''\n\n'''\n" + key + ".a = 1"),
             Contains("conf.toml:5: a key has more than 64 parts"));
}

TEST_CASE("the short form's values are those of its layers; a base's layers go", "[config]") {
  const Config s =
      load_config("", Strings{"model.layers=2", "model.hidden=7", "model.bidirectional=false",
                              "model.projection=3", "model.dropout=0.375", "model.subsample=5"});
  LayerConfig stack("stack"), lstm("lstm"), dropout("dropout");
  stack.set("factor", 5);
  lstm.set("hidden", 7).set("bidirectional", false).set("projection", 3);
  dropout.set("rate", 0.375);
  CHECK(expand_layers(s.model) == std::vector<LayerConfig>{stack, lstm, dropout, lstm, dropout});
  CHECK(expand_layers(load_config("", Strings{"model.layers=1", "model.dropout=0"}).model).size() ==
        (ModelConfig{}.subsample > 1 ? 2 : 1));
  Config base;
  base.model.layer = {LayerConfig("relu")};
  CHECK(parse_config("[model]\nhidden = 9\n", "c", {}, base).model.layer.empty());
  CHECK(parse_config("[training]\nepochs = 9\n", "c", {}, base).model.layer.size() == 1);
}

TEST_CASE("of overrides that list layers the last one counts, the same twice too", "[config]") {
  const std::string one = "model.vgsl=[1,1,0,1 Lfx7]", other = "model.layer=[{type=\"relu\"}]";
  const Config c = load_config("", Strings{one});
  CHECK(load_config("", Strings{one, one}) == c);
  CHECK(load_config("", Strings{other, one}).model.layer == c.model.layer);
  CHECK(load_config("", Strings{one, other, other}).model.layer ==
        std::vector<LayerConfig>{LayerConfig("relu")});
  // Alike up to where messages cut them short.
  std::string common = "model.vgsl=[1,1,0,1 Lfx7";
  for (int i = 0; i < 30; ++i) common += " Lfx7";
  CHECK(load_config("", Strings{common + "]", common + " Lfx9]"}).model.layer.size() == 32);
}
