// Every layer's gradient against finite differences, in f64 with the reference kernels. A layer's
// input gradient is checked by putting a linear layer in front of it.

#include "tests/engine/gradient_check.h"

#include "tests/catch.h"

using namespace rondo;
using rondo::test::check_gradients;

namespace {

constexpr double tolerance =
    2e-7;  // central differences, step 1e-5: truncation ~1e-10, rounding ~1e-9

ValueId front(Graph& g, int64_t width) {
  return layers::linear(g, layers::input_frames(g, "features", 3), "front", width);
}

void require_correct(const std::function<ValueId(Graph&)>& model, int32_t classes = 4,
                     std::vector<int32_t> lengths = {7, 5, 5, 2, 1}, int subsampling = 1) {
  const auto result = check_gradients(model, std::move(lengths), classes, subsampling);
  INFO(result.where);
  CHECK(result.compared > 0);
  CHECK(result.worst <= tolerance);
}

}  // namespace

TEST_CASE("gradient: linear and CTC") {
  require_correct(
      [](Graph& g) { return layers::ctc_loss(g, layers::linear(g, front(g, 5), "out", 4)); });
}

TEST_CASE("gradient: CTC with the blank last") {
  require_correct([](Graph& g) {
    return layers::ctc_loss(g, layers::linear(g, front(g, 5), "out", 5), {.blank = 4});
  });
}

TEST_CASE("gradient: CTC on log-probabilities") {
  require_correct([](Graph& g) {
    const ValueId x = layers::log_softmax(g, layers::linear(g, front(g, 5), "out", 4));
    return layers::ctc_loss(g, x, {.log_softmax_input = true});
  });
}

TEST_CASE("gradient: activations") {
  for (const PointwiseRow& row : pointwise_functions) {
    if (row.operands != 1) continue;
    INFO(row.name);
    require_correct([&](Graph& g) {
      const ValueId x = layers::activation(g, front(g, 5), row.function);
      return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
    });
  }
}

TEST_CASE("gradient: a value that is used twice") {
  require_correct([](Graph& g) {
    const ValueId x = front(g, 4);
    const ValueId y = layers::add(g, layers::tanh(g, x), x);
    return layers::ctc_loss(g, layers::add(g, y, layers::sigmoid(g, x)));
  });
}

TEST_CASE("gradient: LSTM stacks") {
  for (bool bidirectional : {false, true}) {
    for (int64_t projection : {0, 2}) {
      require_correct([&](Graph& g) {
        const ValueId y = layers::lstm(
            g, front(g, 4), "lstm",
            {.hidden = 3, .layers = 2, .bidirectional = bidirectional, .projection = projection});
        return layers::ctc_loss(g, layers::linear(g, y, "out", 4));
      });
    }
  }
}

TEST_CASE("gradient: LSTM states handed from one layer to another") {
  require_correct([](Graph& g) {
    const ValueId x = front(g, 4);
    const auto a = layers::lstm_layer(g, x, "a", {.hidden = 3});
    const auto b = layers::lstm_layer(g, x, "b", {.hidden = 3}, a.final_state);
    return layers::ctc_loss(g, layers::linear(g, b.y, "out", 4));
  });
}

TEST_CASE("gradient: dropout with a fixed mask") {
  require_correct([](Graph& g) {
    return layers::ctc_loss(g,
                            layers::linear(g, layers::dropout(g, front(g, 6), "d", 0.4), "out", 4));
  });
}
TEST_CASE("gradient: dropout over channels") {
  require_correct([](Graph& g) {
    ValueId x = layers::conv2d(g, front(g, 4), "a", {.channels = 3, .kernel_height = 3});
    x = layers::dropout(g, x, "d", 0.4, layers::DropoutOver::channels);
    return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
  });
}
TEST_CASE("gradient: LSTM with residuals and layer norm") {
  require_correct([](Graph& g) {
    const ValueId y = layers::lstm(
        g, front(g, 4), "lstm", {.hidden = 4, .layers = 2, .layer_norm = true, .residual = true});
    return layers::ctc_loss(g, layers::linear(g, y, "out", 4));
  });
}

TEST_CASE("gradient: frame stacking") {
  require_correct(
      [](Graph& g) {
        const ValueId x = layers::stack_frames(g, front(g, 3), 3);
        return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
      },
      4, {11, 7, 3, 1}, 3);
}

TEST_CASE("gradient: convolutions of both sides, of the past and of the future") {
  for (auto context : {ConvContext::both, ConvContext::past, ConvContext::future}) {
    for (int kernel : {1, 2, 3}) {
      require_correct([&](Graph& g) {
        ValueId x = layers::conv(g, front(g, 3), "conv",
                                 {.channels = 4, .kernel = kernel, .context = context});
        x = layers::conv(g, x, "wide",
                         {.channels = 3, .kernel = kernel, .dilation = 2, .context = context});
        return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
      });
    }
  }
}

TEST_CASE("gradient: convolutions with strides") {
  for (int kernel : {1, 3, 4}) {
    require_correct(
        [&](Graph& g) {
          ValueId x =
              layers::conv(g, front(g, 3), "a", {.channels = 4, .kernel = kernel, .stride = 3});
          x = layers::conv(g, x, "b", {.channels = 3, .kernel = 2, .stride = 2});
          return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
        },
        4, {29, 13, 7, 6, 1}, 6);
  }
}

TEST_CASE("gradient: convolutions over images") {
  require_correct(
      [](Graph& g) {
        ValueId x = layers::conv2d(
            g, front(g, 5), "a",
            {.channels = 3, .kernel_height = 3, .kernel_width = 2, .dilation_height = 2});
        x = layers::tanh(g, x);
        x = layers::conv2d(g, x, "b",
                           {.channels = 2,
                            .kernel_height = 2,
                            .kernel_width = 5,
                            .stride_height = 2,
                            .stride_width = 3});
        return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
      },
      4, {13, 8, 7, 2, 1}, 3);
}

TEST_CASE("gradient: convolutions over images in groups") {
  require_correct(
      [](Graph& g) {
        ValueId x = layers::conv2d(g, front(g, 5), "a", {.channels = 4, .kernel_width = 3});
        x = layers::conv2d(g, x, "b",
                           {.channels = 4, .kernel_height = 3, .kernel_width = 3, .groups = 4});
        x = layers::conv2d(
            g, layers::tanh(g, x), "c",
            {.channels = 6, .kernel_height = 2, .kernel_width = 2, .stride_width = 2, .groups = 2});
        return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
      },
      4, {13, 8, 7, 2, 1}, 2);
  Graph g;
  CHECK_THROWS_WITH(layers::conv2d(g, front(g, 6), "conv", {.channels = 4, .groups = 2}),
                    "conv: 2 groups do not divide 1 channels of the input and 4 of the output; "
                    "expected as many channels in each group");
}

TEST_CASE("gradient: an LSTM that reads backwards") {
  require_correct(
      [](Graph& g) {
        const ValueId x =
            layers::lstm(g, front(g, 4), "lstm", {.hidden = 3, .layers = 2, .backward = true});
        return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
      },
      4, {9, 5, 4, 1});
  Graph g;
  CHECK_THROWS_WITH(
      layers::lstm(g, front(g, 4), "l", {.hidden = 3, .bidirectional = true, .backward = true}),
      "l: an LSTM reads backwards, or in both directions; expected bidirectional = false with "
      "backward = true");
}

TEST_CASE("gradient: pooling over images") {
  for (Pooling2d pooling : {Pooling2d::greatest, Pooling2d::mean}) {
    require_correct(
        [pooling](Graph& g) {
          ValueId x = layers::conv2d(g, front(g, 7), "a",
                                     {.channels = 2, .kernel_height = 3, .kernel_width = 3});
          x = layers::pool2d(g, x, "pool", pooling, 2, 3);
          x = layers::conv2d(g, x, "b", {.channels = 3, .kernel_height = 3});
          return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
        },
        4, {13, 8, 7, 2, 1}, 3);
  }
}

TEST_CASE("gradient: pooling that drops what fills no window") {
  for (Pooling2d pooling : {Pooling2d::greatest, Pooling2d::mean}) {
    require_correct(
        [pooling](Graph& g) {
          const ValueId x = layers::conv2d(g, front(g, 5), "a", {.channels = 2, .kernel_width = 3});
          return layers::ctc_loss(
              g, layers::linear(g, layers::pool2d(g, x, "pool", pooling, 2, 3, true), "out", 4));
        },
        4, {13, 8, 7, 3}, 6);
  }
}

TEST_CASE("gradient: LSTM along the height") {
  for (const layers::HeightLstmOptions& o :
       {layers::HeightLstmOptions{.hidden = 3}, layers::HeightLstmOptions{3, false, false},
        layers::HeightLstmOptions{2, true, false}}) {
    require_correct(
        [&](Graph& g) {
          ValueId x = layers::conv2d(g, front(g, 5), "a", {.channels = 2, .kernel_height = 3});
          x = layers::pool2d(g, x, "pool", Pooling2d::mean, 1, 2);
          x = layers::lstm_height(g, x, "height", o);
          return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
        },
        4, {13, 8, 7, 2, 1}, 2);
  }
}

TEST_CASE("gradient: layer norm") {
  require_correct([](Graph& g) {
    return layers::ctc_loss(g,
                            layers::linear(g, layers::layer_norm(g, front(g, 6), "n"), "out", 4));
  });
}

TEST_CASE("gradient: group norm of images, and of plain frames") {
  require_correct(
      [](Graph& g) {
        ValueId x = layers::conv2d(g, front(g, 5), "a",
                                   {.channels = 6, .kernel_height = 3, .kernel_width = 3});
        x = layers::tanh(g, layers::group_norm(g, x, "images", 3));
        x = layers::pool2d(g, x, "pool", Pooling2d::mean, 2, 2);
        x = layers::group_norm(g, layers::linear(g, x, "in", 6), "frames", 2);
        return layers::ctc_loss(g, layers::linear(g, x, "out", 4));
      },
      4, {13, 8, 7, 2, 1}, 2);
  Graph g;
  CHECK_THROWS_WITH(layers::group_norm(g, front(g, 6), "norm", 4),
                    "norm: 4 groups do not divide 6 channels; expected as many channels in each "
                    "group");
}

TEST_CASE("gradient: pooling and classification") {
  for (auto pool : {layers::last_frame, layers::mean_pool}) {
    require_correct([&](Graph& g) {
      return layers::cross_entropy(g, layers::linear(g, pool(g, front(g, 5)), "out", 4), "class");
    });
  }
}

TEST_CASE("gradient: regression") {
  require_correct([](Graph& g) {
    const ValueId y =
        layers::linear(g, layers::mean_pool(g, layers::tanh(g, front(g, 5))), "out", 2);
    return layers::mean_squared_error(g, y, "target");
  });
}

TEST_CASE("gradient: classes per frame") {
  require_correct([](Graph& g) {
    return layers::cross_entropy(g, layers::linear(g, front(g, 5), "out", 4), "class");
  });
}
