// LSTMs along the height of images, against the textbook's loop over each column; pooling that
// drops the frames that fill no window.
#include <algorithm>
#include <cmath>
#include <random>

#include "engine/session.h"
#include "kernels/base/packed_host.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

constexpr int height = 5, hidden = 3;
using Columns = std::vector<std::vector<double>>;  // [pixels][values]

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Outputs of one direction for a column, pixel by pixel.
Columns lstm(const Columns& x, const std::vector<float>& w, const std::vector<float>& r,
             const std::vector<float>& b, bool upwards) {
  Columns y(x.size());
  std::vector<double> h(hidden), c(hidden);
  const size_t inputs = x[0].size();
  for (size_t step = 0; step < x.size(); ++step) {
    const size_t at = upwards ? x.size() - 1 - step : step;
    std::vector<double> z(4 * hidden);
    for (size_t j = 0; j < z.size(); ++j) {
      z[j] = b[j];
      for (size_t i = 0; i < inputs; ++i) z[j] += w[j * inputs + i] * x[at][i];
      for (size_t i = 0; i < hidden; ++i) z[j] += r[j * hidden + i] * h[i];
    }
    for (size_t u = 0; u < hidden; ++u) {
      c[u] = sigmoid(z[hidden + u]) * c[u] + sigmoid(z[u]) * std::tanh(z[2 * hidden + u]);
      h[u] = sigmoid(z[3 * hidden + u]) * std::tanh(c[u]);
    }
    y[at] = h;
  }
  return y;
}

struct Batch {
  PackedHost layout;
  std::vector<float> x;
  BatchView::Input input;
  BatchView view;

  explicit Batch(const std::vector<int32_t>& lengths) : layout(build_packed(lengths)) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 1);
    x.resize(static_cast<size_t>(layout.extent.rows) * height);
    for (float& v : x) v = normal(random);
    input = {"features", x.data(), x.size() * sizeof(float)};
    view.layout = &layout;
    view.inputs = {&input, 1};
  }
};

ModelFunction along_height(const layers::HeightLstmOptions& o) {
  return [o](Graph& g) {
    const ValueId y =
        layers::lstm_height(g, layers::input_frames(g, "features", height), "down", o);
    return Outputs{layers::ctc_loss(g, layers::linear(g, y, "out", 4)), y};
  };
}

std::vector<float> weight(const Session& session, const std::string& name) {
  const TensorView w = session.parameters().weight(name);
  return {w.as<float>(), w.as<float>() + w.numel()};
}

double furthest_from_the_textbook(DType compute, const layers::HeightLstmOptions& o) {
  SessionOptions options;
  options.compute = compute;
  options.threads = 2;
  Session session(along_height(o), options);
  const Batch batch({9, 4, 4, 1, 0});
  const std::vector<float> found = session.predict(batch.view);
  const int directions = o.bidirectional ? 2 : 1;
  const size_t columns = static_cast<size_t>(directions) * hidden * (o.summarize ? 1 : height);
  REQUIRE(found.size() == 18 * columns);
  double most = 0;
  for (size_t row = 0; row < 18; ++row) {
    Columns x;
    for (size_t p = 0; p < height; ++p) x.push_back({batch.x[row * height + p]});
    std::vector<Columns> y;
    for (const char* suffix : {"", "_reverse"}) {
      if (static_cast<int>(y.size()) == directions) break;
      const auto of = [&](const char* what) { return weight(session, str("down", what, suffix)); };
      y.push_back(lstm(x, of(".weight_ih"), of(".weight_hh"), of(".bias"), *suffix != 0));
    }
    std::vector<double> wanted;
    for (size_t p = o.summarize ? height - 1 : 0; p < height; ++p) {
      for (const Columns& direction : y)
        wanted.insert(wanted.end(), direction[p].begin(), direction[p].end());
    }
    for (size_t i = 0; i < columns; ++i) {
      const double d = std::abs(static_cast<double>(found[row * columns + i]) - wanted[i]);
      most = d <= most ? most : d;  // NaN is the most
    }
  }
  return most;
}

}  // namespace

TEST_CASE("an LSTM along the height reads each column by itself, from top to bottom") {
  for (const layers::HeightLstmOptions& o : {layers::HeightLstmOptions{.hidden = hidden},
                                             layers::HeightLstmOptions{hidden, false, false},
                                             layers::HeightLstmOptions{hidden, true, false}}) {
    CHECK(furthest_from_the_textbook(DType::f32, o) < 1e-6);
    // Weights and outputs in 8 bits, of sums of a handful of terms.
    CHECK(furthest_from_the_textbook(DType::bf16, o) < 0.02);
  }
  CHECK_THROWS_WITH(Session(along_height({hidden, true, true})),
                    Catch::Contains("down: an LSTM along the height that reads both ways"));
}

TEST_CASE("pooling may drop the frames that fill no window") {
  Session session(
      [](Graph& g) {
        ValueId x = layers::input_frames(g, "features", height);
        x = layers::pool2d(g, x, "pool", Pooling2d::greatest, height, 2, true);
        x = layers::pool2d(g, x, "again", Pooling2d::greatest, 1, 2, true);
        return Outputs{layers::ctc_loss(g, layers::linear(g, x, "out", 3)), x};
      },
      {});
  CHECK(session.subsampling() == 4);
  const std::vector<int32_t> lengths = {11, 9, 3, 2}, expected = {2, 2, 0, 0};
  for (size_t i = 0; i < lengths.size(); ++i)
    CHECK(session.output_frames(lengths[i]) == expected[i]);
  const Batch batch(lengths);
  const std::vector<float> found = session.predict(batch.view);
  REQUIRE(found.size() == 4);
  for (int32_t t = 0; t < 2; ++t) {
    for (int32_t n = 0; n < 2; ++n) {
      float most = -1e9f;
      for (int32_t s = 4 * t; s < 4 * t + 4; ++s) {
        const float* column = &batch.x[static_cast<size_t>(batch.layout.row(s, n)) * height];
        most = std::max(most, *std::max_element(column, column + height));
      }
      CHECK(found[static_cast<size_t>(2 * t + n)] == most);
    }
  }
}
