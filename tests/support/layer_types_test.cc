// The layers of a configuration: every option comes to the layer that it is for.
#include "engine/config/layer_types.h"

#include <functional>
#include <optional>
#include <set>

#include "engine/layers/layers.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

using Build = std::function<ValueId(Graph&, ValueId)>;

// Of a layer behind plain frames of 24 values, or an image 24 high with 8 channels.
uint64_t hash_behind(bool image, const Build& build) {
  Graph g;
  ValueId x = layers::input_frames(g, "features", 24);
  if (image) x = layers::conv2d(g, x, "front", {.channels = 8, .kernel_height = 3});
  g.keep(build(g, x));
  return g.hash();
}

// A layer whose options have values of their own, and the same one without a configuration.
struct Described {
  LayerConfig layer;
  Build same;
  bool image = false;
};

std::vector<Described> all_described() {
  const auto with = [](const char* type, auto... options) {
    LayerConfig layer(type);
    (layer.set(options.first, options.second), ...);
    return layer;
  };
  const auto is = [](const char* option, auto value) { return std::pair(option, value); };
  const auto plain = [](ValueId (*layer)(Graph&, ValueId)) -> Build {
    return [layer](Graph& g, ValueId x) { return layer(g, x); };
  };
  using layers::DropoutOver;
  return {
      {with("lstm", is("hidden", 5), is("layers", 3), is("bidirectional", true),
            is("projection", 12), is("dropout", 0.25), is("residual", true)),
       [](Graph& g, ValueId x) {
         return layers::lstm(g, x, "a",
                             {.hidden = 5,
                              .layers = 3,
                              .bidirectional = true,
                              .projection = 12,
                              .dropout = 0.25,
                              .residual = true});
       }},
      {with("lstm", is("bidirectional", false), is("backward", true)),
       [](Graph& g, ValueId x) {
         return layers::lstm(g, x, "a", {.hidden = 256, .backward = true});
       }},
      {with("linear", is("size", 24), is("residual", true)),
       [](Graph& g, ValueId x) { return layers::add(g, layers::linear(g, x, "a", 24), x); }},
      {with("conv", is("channels", 5), is("kernel", 4), is("stride", 3), is("dilation", 2),
            is("context", ConvContext::future)),
       [](Graph& g, ValueId x) {
         return layers::conv(g, x, "a",
                             {.channels = 5,
                              .kernel = 4,
                              .stride = 3,
                              .dilation = 2,
                              .context = ConvContext::future});
       }},
      {with("conv2d", is("channels", 4), is("kernel_height", 2), is("kernel_width", 5),
            is("stride_height", 6), is("stride_width", 7), is("dilation_height", 8),
            is("dilation_width", 9), is("groups", 2)),
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
       true},
      {with("pool2d", is("pooling", Pooling2d::mean), is("height", 5), is("width", 3),
            is("whole", true)),
       [](Graph& g, ValueId x) { return layers::pool2d(g, x, "a", Pooling2d::mean, 5, 3, true); },
       true},
      {with("lstm_height", is("hidden", 5), is("bidirectional", true), is("summary", false)),
       [](Graph& g, ValueId x) {
         return layers::lstm_height(g, x, "a",
                                    {.hidden = 5, .bidirectional = true, .summarize = false});
       },
       true},
      {LayerConfig("layer_norm"),
       [](Graph& g, ValueId x) { return layers::layer_norm(g, x, "a"); }},
      {with("group_norm", is("groups", 4)),
       [](Graph& g, ValueId x) { return layers::group_norm(g, x, "a", 4); }, true},
      {with("stack", is("factor", 3)),
       [](Graph& g, ValueId x) { return layers::stack_frames(g, x, 3); }},
      {with("dropout", is("rate", 0.25), is("over", DropoutOver::channels)),
       [](Graph& g, ValueId x) { return layers::dropout(g, x, "a", 0.25, DropoutOver::channels); },
       true},
      {LayerConfig("relu"), plain(layers::relu)},
      {LayerConfig("tanh"), plain(layers::tanh)},
      {LayerConfig("sigmoid"), plain(layers::sigmoid)},
      {LayerConfig("gelu"), plain(layers::gelu)},
  };
}

}  // namespace

TEST_CASE("every option of a layer comes to that layer, and none to another's place", "[config]") {
  std::set<std::string> types, options;
  for (const Described& d : all_described()) {
    const LayerType& type = d.layer.type();
    INFO(type.name);
    types.insert(type.name);
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
  // The table above has all there are.
  for (const LayerType& type : layer_types()) {
    INFO(type.name);
    CHECK(types.contains(type.name));
    for (const LayerOption& o : type.options) {
      INFO(o.name);
      CHECK(options.contains(type.name + "." + o.name));
    }
  }
}
