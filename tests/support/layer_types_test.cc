// The layers of a configuration: what they are called, their options, and their gradients. Every
// option comes to the layer that it is for.
#include "engine/config/layer_types.h"

#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "engine/config/schema.h"
#include "engine/layers/layers.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;

namespace {

using Build = std::function<ValueId(Graph&, ValueId)>;

// Plain frames of 24 values, or an image 24 high with 8 channels.
ValueId image_of(Graph& g, ValueId frames, bool image) {
  return image ? layers::conv2d(g, frames, "image", {.channels = 8, .kernel_height = 3}) : frames;
}

uint64_t hash_behind(bool image, const Build& build) {
  Graph g;
  g.keep(build(g, image_of(g, layers::input_frames(g, "features", 24), image)));
  return g.hash();
}

// What is said of an option, as TOML and in messages.
struct Said {
  std::string option, initial, expected;
};

// A layer whose options have values of their own, what is said of them, and the same layer without
// a configuration.
struct Described {
  LayerConfig layer;
  std::vector<Said> said;
  Build same;
  bool image = false;
};

template <class T>
struct Set {
  T value;
  Said said;
};
// Of an option: a value, the default, and what it may be; of one that was described before: a
// value.
template <class T>
Set<T> is(const char* option, T value, const char* initial = "", std::string expected = "") {
  return {value, {option, initial, std::move(expected)}};
}
std::string count(const char* range) { return str("an integer from ", range); }
const std::string share = "a number of at least 0 and below 1", flag = "true or false";

template <class... T>
Described with(const char* type, Build same, Set<T>... options) {
  Described d{LayerConfig(type), {options.said...}, std::move(same)};
  (d.layer.set(options.said.option, options.value), ...);
  return d;
}
template <class... T>
Described of_image(const char* type, Build same, Set<T>... options) {
  Described d = with(type, std::move(same), options...);
  d.image = true;
  return d;
}

// Every type of layer, in the order in which they are listed. Written by hand, because parser, help
// and documentation are all made from one table: a row that is lost there is lost everywhere.
std::vector<Described> all_described() {
  const auto plain = [](ValueId (*layer)(Graph&, ValueId)) -> Build {
    return [layer](Graph& g, ValueId x) { return layer(g, x); };
  };
  using layers::DropoutOver;
  return {
      with(
          "lstm",
          [](Graph& g, ValueId x) {
            return layers::lstm(g, x, "a",
                                {.hidden = 5,
                                 .layers = 3,
                                 .bidirectional = true,
                                 .projection = 12,
                                 .dropout = 0.25,
                                 .residual = true});
          },
          is("hidden", 5, "256", count("1 to 65536")), is("layers", 3, "1", count("1 to 100")),
          is("bidirectional", true, "true", flag), is("projection", 12, "0", count("0 to 65536")),
          is("dropout", 0.25, "0.0", share), is("residual", true, "false", flag),
          is("backward", false, "false", flag)),
      with(
          "lstm",
          [](Graph& g, ValueId x) {
            return layers::lstm(g, x, "a", {.hidden = 6, .backward = true});
          },
          is("hidden", 6), is("bidirectional", false), is("backward", true)),
      with(
          "linear",
          [](Graph& g, ValueId x) { return layers::add(g, layers::linear(g, x, "a", 24), x); },
          is("size", 24, "256", count("1 to 16777216")), is("residual", true, "false", flag)),
      with(
          "conv",
          [](Graph& g, ValueId x) {
            return layers::conv(g, x, "a",
                                {.channels = 5,
                                 .kernel = 4,
                                 .stride = 3,
                                 .dilation = 2,
                                 .context = ConvContext::future});
          },
          is("channels", 5, "256", count("1 to 65536")), is("kernel", 4, "5", count("1 to 1024")),
          is("stride", 3, "1", count("1 to 64")), is("dilation", 2, "1", count("1 to 1024")),
          is("context", ConvContext::future, "\"both\"", "one of \"both\", \"past\", \"future\"")),
      of_image(
          "conv2d",
          [](Graph& g, ValueId x) {
            return layers::conv2d(g, x, "a",
                                  {.channels = 4,
                                   .kernel_height = 2,
                                   .kernel_width = 5,
                                   .stride_height = 6,
                                   .stride_width = 7,
                                   .dilation_height = 8,
                                   .dilation_width = 9,
                                   .groups = 2});
          },
          is("channels", 4, "32", count("1 to 65536")),
          is("kernel_height", 2, "3", count("1 to 1024")),
          is("kernel_width", 5, "3", count("1 to 1024")),
          is("stride_height", 6, "1", count("1 to 64")),
          is("stride_width", 7, "1", count("1 to 64")),
          is("dilation_height", 8, "1", count("1 to 1024")),
          is("dilation_width", 9, "1", count("1 to 1024")),
          is("groups", 2, "1", count("1 to 65536"))),
      of_image(
          "pool2d",
          [](Graph& g, ValueId x) {
            return layers::pool2d(g, x, "a", Pooling2d::mean, 5, 3, true);
          },
          is("pooling", Pooling2d::mean, "\"max\"", "one of \"max\", \"mean\""),
          is("height", 5, "2", count("1 to 1024")), is("width", 3, "2", count("1 to 64")),
          is("whole", true, "false", flag)),
      of_image(
          "lstm_height",
          [](Graph& g, ValueId x) {
            return layers::lstm_height(g, x, "a",
                                       {.hidden = 5, .bidirectional = true, .summarize = false});
          },
          is("hidden", 5, "64", count("1 to 65536")), is("bidirectional", true, "false", flag),
          is("summary", false, "true", flag)),
      with("layer_norm", [](Graph& g, ValueId x) { return layers::layer_norm(g, x, "a"); }),
      of_image(
          "group_norm", [](Graph& g, ValueId x) { return layers::group_norm(g, x, "a", 4); },
          is("groups", 4, "32", count("1 to 65536"))),
      with(
          "stack", [](Graph& g, ValueId x) { return layers::stack_frames(g, x, 3); },
          is("factor", 3, "2", count("1 to 64"))),
      of_image(
          "dropout",
          [](Graph& g, ValueId x) {
            return layers::dropout(g, x, "a", 0.25, DropoutOver::channels);
          },
          is("rate", 0.25, "0.1", share),
          is("over", DropoutOver::channels, "\"values\"", "one of \"values\", \"channels\"")),
      with("relu", plain(layers::relu)),
      with("tanh", plain(layers::tanh)),
      with("sigmoid", plain(layers::sigmoid)),
      with("gelu", plain(layers::gelu)),
  };
}

}  // namespace

TEST_CASE("the types of layers are these, with these options, defaults and bounds", "[config]") {
  std::vector<std::string> types, wanted;
  for (const LayerType& type : layer_types()) types.push_back(type.name);
  for (Described& d : all_described()) {
    const LayerType& type = d.layer.type();
    if (!wanted.empty() && wanted.back() == type.name) continue;  // in another form
    INFO(type.name);
    wanted.push_back(type.name);
    LayerConfig layer(type);
    const std::vector<schema::Field> fields = schema::layer_fields(layer);  // the type is the first
    REQUIRE(fields.size() == d.said.size() + 1);
    for (size_t i = 0; i < d.said.size(); ++i) {
      CHECK(fields[i + 1].key == d.said[i].option);
      CHECK(schema::value_toml(fields[i + 1]) == d.said[i].initial);
      CHECK(schema::expectation(fields[i + 1]) == d.said[i].expected);
    }
  }
  CHECK(types == wanted);
}

TEST_CASE("every layer's gradient is that of finite differences", "[slow][config]") {
  for (const Described& d : all_described()) {
    INFO(d.layer.type().name);
    const auto model = [&](Graph& g) {
      const ValueId x = layers::linear(g, layers::input_frames(g, "features", 3), "front", 24);
      const ValueId y = d.layer.type().build(g, image_of(g, x, d.image), "a", d.layer);
      return layers::ctc_loss(g, layers::linear(g, y, "output", 4));
    };
    // Of labels there are few enough for the layers that make one frame of several.
    const auto found = test::check_gradients(model, {16, 9, 9, 7}, 4, 8, 7);
    INFO(found.where);
    CHECK(found.compared > 0);
    CHECK(found.worst <= 2e-7);  // as in tests/engine/gradient_test.cc
  }
}

TEST_CASE("every option of a layer comes to that layer, and none to another's place", "[config]") {
  std::set<std::string> options;
  for (const Described& d : all_described()) {
    const LayerType& type = d.layer.type();
    INFO(type.name);
    const auto built = [&](const LayerConfig& layer) {
      return hash_behind(d.image,
                         [&](Graph& g, ValueId x) { return layer.type().build(g, x, "a", layer); });
    };
    const uint64_t wanted = hash_behind(d.image, d.same);
    CHECK(built(d.layer) == wanted);
    // With any of its options as it is by default the layer is another one, or none.
    for (size_t i = 0; i < type.options.size(); ++i) {
      LayerConfig other = d.layer;
      if (other.values()[i] == type.options[i].initial) continue;
      INFO(type.options[i].name);
      options.insert(type.name + "." + type.options[i].name);
      other.values()[i] = type.options[i].initial;
      std::optional<uint64_t> found;
      try {
        found = built(other);
      } catch (const InputError&) {  // one that goes with other options alone
      }
      CHECK(found != wanted);
    }
  }
  // The table above has each of them.
  for (const LayerType& type : layer_types()) {
    for (const LayerOption& o : type.options) {
      INFO(type.name << " " << o.name);
      CHECK(options.contains(type.name + "." + o.name));
    }
  }
}
