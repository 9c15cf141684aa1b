// VGSL strings: the layers they stand for, and what is said about those that cannot be read.

#include "engine/config/vgsl.h"
#include "engine/config/config.h"
#include "engine/layers/layers.h"
#include "kernels/base/error.h"
#include "kernels/pool2d/pool2d.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

std::vector<LayerConfig> layers_of(const std::string& text) {
  return parse_vgsl(text, "conf.toml:3: model.vgsl").layers;
}

std::string error_of(const std::string& text) {
  try {
    parse_vgsl(text, "conf.toml:3: model.vgsl");
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

LayerConfig conv2d(int height, int width, int channels) {
  LayerConfig layer("conv2d");
  return layer.set("kernel_height", height).set("kernel_width", width).set("channels", channels);
}
LayerConfig over_channels(double rate) {
  LayerConfig layer("dropout");
  return layer.set("rate", rate).set("over", layers::DropoutOver::channels);
}
LayerConfig pool2d(int height, int width) {
  LayerConfig layer("pool2d");
  return layer.set("height", height).set("width", width);
}
LayerConfig lstm(int hidden, bool bidirectional) {
  LayerConfig layer("lstm");
  return layer.set("hidden", hidden).set("bidirectional", bidirectional);
}

}  // namespace

TEST_CASE("VGSL: kraken's default recogniser", "[config]") {
  const VgslModel model = parse_vgsl(
      "[1,120,0,1 Cr3,13,32 Do0.1,2 Mp2,2 Cr3,13,32 Do0.1,2 Mp2,2 Cr3,9,64 Do0.1,2 Mp2,2 Cr3,9,64 "
      "Do0.1,2 S1(1x0)1,3 Lbx200 Do0.1,2 Lbx200 Do0.1,2 Lbx200 Do]",
      "x");
  CHECK(model.height == 120);
  const LayerConfig relu("relu");
  LayerConfig last("dropout");
  last.set("rate", 0.5);
  CHECK(last.choice<layers::DropoutOver>("over") == layers::DropoutOver::values);
  CHECK(pool2d(2, 2).choice<Pooling2d>("pooling") == Pooling2d::greatest);
  const std::vector<LayerConfig> expected = {conv2d(3, 13, 32),
                                             relu,
                                             over_channels(0.1),
                                             pool2d(2, 2),
                                             conv2d(3, 13, 32),
                                             relu,
                                             over_channels(0.1),
                                             pool2d(2, 2),
                                             conv2d(3, 9, 64),
                                             relu,
                                             over_channels(0.1),
                                             pool2d(2, 2),
                                             conv2d(3, 9, 64),
                                             relu,
                                             over_channels(0.1),
                                             lstm(200, true),
                                             over_channels(0.1),
                                             lstm(200, true),
                                             over_channels(0.1),
                                             lstm(200, true),
                                             last};
  CHECK(model.layers == expected);
}

TEST_CASE("VGSL: activations, strides, dilations, names, and layers behind the fold", "[config]") {
  CHECK(layers_of("[1,1,0,1 Cs1,3,4 Ct1,3,4 Cl1,3,4]") ==
        std::vector<LayerConfig>{conv2d(1, 3, 4), LayerConfig("sigmoid"), conv2d(1, 3, 4),
                                 LayerConfig("tanh"), conv2d(1, 3, 4)});
  CHECK(layers_of(" [1,9,0,1 Cl{a}3,3,4,3,2,2,5 Mp{b}3,2,3,2 Lfx{c}7 O1c104 ] ") ==
        std::vector<LayerConfig>{conv2d(3, 3, 4)
                                     .set("stride_height", 3)
                                     .set("stride_width", 2)
                                     .set("dilation_height", 2)
                                     .set("dilation_width", 5),
                                 pool2d(3, 2), lstm(7, false)});
  CHECK(layers_of("[1,1,0,1 Lrx7]") ==
        std::vector<LayerConfig>{lstm(7, false).set("backward", true)});
  LayerConfig down("lstm_height"), both("lstm_height");
  both.set("hidden", 4).set("bidirectional", true).set("summary", false);
  CHECK(layers_of("[1,9,0,1 Lby4 Lfys{d}64 Lbx8]") ==
        std::vector<LayerConfig>{both, down.set("hidden", 64), lstm(8, true)});
  LayerConfig conv("conv");
  conv.set("channels", 5).set("kernel", 7).set("stride", 2);
  CHECK(layers_of("[0,8,0,1 S1(1x0)1,3 Cl1,7,5,1,2]") == std::vector<LayerConfig>{conv});
  LayerConfig dropout("dropout");
  CHECK(layers_of("[1,8,0,1 S1(1x0)1,3 Do.25]") ==
        std::vector<LayerConfig>{dropout.set("rate", 0.25)});
}

TEST_CASE("VGSL: rows that fill no stride are one more, those that fill no window are none",
          "[config]") {
  // 10 rows are 4 by strides of 3, and 11 rows 5 by windows of 2.
  CHECK(layers_of("[1,10,0,1 Cl3,3,4,3,1 Mp4,2 Lfx7]").size() == 3);
  CHECK_THAT(error_of("[1,10,0,1 Cl3,3,4,3,1 Mp5,2 Lfx7]"), Catch::Contains("at most the 4 rows"));
  CHECK(layers_of("[1,11,0,1 Mp2,2 Mp5,1 Lfx7]").size() == 3);
  CHECK_THAT(error_of("[1,11,0,1 Mp2,2 Mp6,1 Lfx7]"), Catch::Contains("at most the 5 rows"));
  // The greatest numbers that options take.
  CHECK(layers_of("[1,1,0,1 Cl1024,1024,65536,64,64,1024,1024]").size() == 1);
  CHECK_THAT(error_of("[1,1,0,1 Cl1,1,1,65,1]"), Catch::Contains("stride in height, from 1 to 64"));
}

TEST_CASE("VGSL: group normalisation, of the channels that are there", "[config]") {
  LayerConfig norm("group_norm");
  const auto groups = [&](int n) { return norm.set("groups", n); };
  LayerConfig down("lstm_height");
  down.set("hidden", 9);
  CHECK(layers_of("[1,8,0,1 Cl3,3,32 Gn32 Mp2,2 Gn{name}8 Lfys9 Gn3 Lbx5 Gn10]") ==
        std::vector<LayerConfig>{conv2d(3, 3, 32), groups(32), pool2d(2, 2), groups(8), down,
                                 groups(3), lstm(5, true), groups(10)});
  // Of the features as they come, a row of pixels is a channel behind the fold.
  CHECK(layers_of("[1,8,0,1 S1(1x0)1,3 Gn4 Lfx2]") ==
        std::vector<LayerConfig>{groups(4), lstm(2, false)});
  // Of an image one row high the channels stay what they were.
  CHECK(layers_of("[1,1,0,1 Cl1,3,8 S1(1x0)1,3 Gn4 Lfx2]") ==
        std::vector<LayerConfig>{conv2d(1, 3, 8), groups(4), lstm(2, false)});
  CHECK(parse_vgsl("[1,8,0,1 Cl3,3,32 Gn32 S1(1x0)1,3 Lfx2]", "x").names[1] == "Gn_1");
}

TEST_CASE("VGSL: what cannot be read is told with its place", "[config]") {
  const auto at = [](int character, const std::string& found_and_expected) {
    return str("conf.toml:3: model.vgsl, character ", character, ": found ", found_and_expected);
  };
  CHECK(error_of("") == at(1, "the end, expected '['"));
  CHECK(error_of("1,48,0,1 Lbx9") == at(1, "'1,48,0,1', expected '['"));
  CHECK(error_of("[1,0,0,1 Lbx9]") ==
        at(4, "'0,0,1', expected the height of the images, from 1 to 65536"));
  CHECK(error_of("[1,48,100,1 Lbx9]") == at(7, "'100,1', expected 0 as the width, which is any"));
  CHECK(error_of("[1,48,0,3 Lbx9]") == at(9, "'3', expected 1 as the channels of the images"));
  CHECK(
      error_of("[1,48,0,1 Xy3]").starts_with(at(11, "'Xy3]', expected a layer: C (convolution)")));
  CHECK(error_of("[1,48,0,1 Gn1]") ==
        at(11, "'Gn1]', expected a convolution first: the image has one channel"));
  CHECK(error_of("[1,48,0,1 Cl3,3,8 Gn0]") ==
        at(21, "'0]', expected the number of groups, from 1 to 65536"));
  CHECK(error_of("[1,48,0,1 Cl3,3,8 Gn3]") ==
        at(21, "'3]', expected a divisor of the 8 channels that are here"));
  CHECK(error_of("[1,4,0,1 Lby9 Mp2,1 Gn5]") ==
        at(23, "'5]', expected a divisor of the 18 channels that are here"));
  CHECK(error_of("[1,4,0,1 Cl3,3,8 S1(1x0)1,3 Gn8]") ==
        at(29,
           "'Gn8]', expected a group normalisation before S1(1x0)1,3, or behind the next "
           "layer"));
  CHECK(error_of("[1,48,0,1 (Lfx3 Lbx4)]").starts_with(at(11, "'(Lfx3', expected a layer")));
  CHECK(error_of("[1,48,0,1 Cm3,3,4]") ==
        at(12, "'m3,3,4]', expected s, t, r or l: sigmoid, tanh, ReLU or none"));
  CHECK(error_of("[1,48,0,1 Cr3,3]") == at(16, "']', expected ','"));
  CHECK(error_of("[1,48,0,1 Cr3,0,9]") ==
        at(15, "'0,9]', expected the kernel's width, from 1 to 1024"));
  CHECK(error_of("[1,48,0,1 Cr3,3,99999999999]") ==
        at(17, "'99999999999]', expected the number of channels, from 1 to 65536"));
  CHECK(error_of("[1,48,0,1 Cr3,3,4Mp2,2]") == at(18, "'Mp2,2]', expected a blank or ']'"));
  CHECK(error_of("[1,4,0,1 Mp2,2 Mp3,2]") ==
        at(18, "'3,2]', expected windows of at most the 2 rows that are left here"));
  CHECK(error_of("[1,48,0,1 Mp2,2,1,2]") ==
        at(17, "'1,2]', expected windows side by side, with steps of 2,2"));
  CHECK(error_of("[1,48,0,1 Lbx9]") == at(11,
                                          "'Lbx9]', expected S1(1x0)1,3 before the LSTM: the "
                                          "images are still 48 high"));
  CHECK(error_of("[1,1,0,1 Ltx9]") == at(11,
                                         "'tx9]', expected f, r or b: an LSTM that reads "
                                         "forwards, backwards, or in both directions"));
  CHECK(error_of("[1,4,0,1 Lrys9]") ==
        at(10,
           "'Lrys9]', expected Lf or Lb: along the height an LSTM reads from the top, or both "
           "ways"));
  CHECK(error_of("[1,1,0,1 Lfz9]") ==
        at(12, "'z9]', expected x or y: an LSTM along the width, or along the height"));
  CHECK(error_of("[1,1,0,1 Lfxs9]") ==
        at(13, "'s9]', expected the number of cells: a summary of the width leaves no line"));
  CHECK(
      error_of("[1,4,0,1 Lbys9]") ==
      at(13, "'s9]', expected the number of cells: only an LSTM that reads one way has a summary"));
  CHECK(error_of("[1,4,0,1 Lfys9 Lfy9]") ==
        at(16, "'Lfy9]', expected a layer for frames: the height has been folded already"));
  CHECK(error_of("[1,4,0,1 Lby9 Lfx9]").starts_with(at(15, "'Lfx9]', expected S1(1x0)1,3")));
  CHECK(error_of("[1,8,0,1 S1(0x2)1,3 Lfx9]") ==
        at(10, "'S1(0x2)1,3', expected S1(1x0)1,3, which folds the height into the channels"));
  CHECK(error_of("[1,8,0,1 S1(1x0)1,3 Mp2,2]") ==
        at(21, "'Mp2,2]', expected a layer for frames: the height has been folded already"));
  CHECK(error_of("[1,1,0,1 Do1]") == at(12, "'1]', expected a share of at least 0 and below 1"));
  CHECK(error_of("[1,1,0,1 Do0.5,3]") ==
        at(16, "'3]', expected the dimension: values (1) or channels (2), from 1 to 2"));
  CHECK(error_of("[1,1,0,1 Lfx9 O1c5 Lfx9]") ==
        at(20, "'Lfx9]', expected ']' after the output layer"));
  CHECK(error_of("[1,1,0,1 Lfx9").starts_with(at(14, "the end, expected a layer")));
  CHECK(error_of("[1,1,0,1 Lfx9] ]") == at(16, "']', expected the end, after ']'"));
  CHECK(error_of("[1,1,0,1]") == at(9, "']', expected a layer"));
  CHECK(error_of("[1,48,0,1 Cr3,3,4]") ==
        at(18, "']', expected S1(1x0)1,3 before the end: the images are still 48 high"));
}

TEST_CASE("VGSL in a configuration is its layers and the height of its images", "[config]") {
  const std::string text = "[1,48,0,1 Cr3,13,32 S1(1x0)1,3 Lbx200]";
  const Config file = parse_config("[model]\nvgsl = \"" + text + "\"\n", "conf.toml");
  CHECK(file.model.layer == layers_of(text));
  CHECK(file.model.input_height == 48);
  CHECK(parse_config(to_toml(file), "printed") == file);
  const std::vector<std::string> overrides = {"model.vgsl=" + text};
  CHECK(load_config("", overrides) == file);
  const auto error = [](const std::string& toml) {
    try {
      parse_config(toml, "conf.toml");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(error("[model]\nvgsl = \"[1,48,0,1 Q]\"\n")
            .starts_with("conf.toml:2: model.vgsl, character 11: found 'Q]', expected a layer"));
  CHECK(error("[model]\nvgsl = 3\n") == "conf.toml:2: model.vgsl is 3, expected a string");
  CHECK(
      error("[model]\nvgsl = \"" + text + "\"\n[[model.layer]]\ntype = \"relu\"\n") ==
      "conf.toml:3: layers are listed by [[model.layer]] and by model.vgsl; expected one of them");
  CHECK(error("[model]\nhidden = 3\nvgsl = \"" + text + "\"\n")
            .starts_with("conf.toml:2: model.hidden belongs to the short form of [model]"));
}
