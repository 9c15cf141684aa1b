// A program of somebody else's: learns to tell rising from falling signals, saves the model, loads
// it again and runs it. Built against an installed rondo with pkg-config alone (see the Makefile).
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <rondo/rondo.h>

using namespace rondo;

namespace {

// The model: an input, layers, a loss.
Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "signal", 1);
  x = layers::lstm(g, x, "encoder", {.hidden = 24, .layers = 2, .bidirectional = true});
  const ValueId scores = layers::linear(g, layers::mean_pool(g, x), "output", 2);
  return {.loss = layers::cross_entropy(g, scores, "rising"), .prediction = scores};
}

// Noisy ramps of 40, 39, 38, ... frames. Batches are packed: longest first, no padding.
struct Batch {
  PackedHost layout;
  std::vector<float> signal;    // one feature per row
  std::vector<int32_t> rising;  // one class per sequence
  std::vector<BatchView::Input> inputs;

  explicit Batch(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> noise(0, 0.4f);
    std::vector<int32_t> lengths;
    for (int32_t length = 40; length > 16; --length) {
      lengths.push_back(length);
      rising.push_back(static_cast<int32_t>(random() % 2));
    }
    layout = build_packed(lengths);
    signal.resize(static_cast<size_t>(layout.extent.rows));
    for (int32_t n = 0; n < layout.extent.sequences; ++n) {
      const float slope = rising[static_cast<size_t>(n)] ? 0.05f : -0.05f;
      for (int32_t t = 0; t < lengths[static_cast<size_t>(n)]; ++t) {
        signal[static_cast<size_t>(layout.row(t, n))] =
            slope * static_cast<float>(t - 20) + noise(random);
      }
    }
    inputs = {{"signal", signal.data(), signal.size() * sizeof(float)},
              {"rising", rising.data(), rising.size() * sizeof(int32_t)}};
  }
  BatchView view() const { return {&layout, {}, {}, inputs}; }
};

}  // namespace

int main() {
  Session session(model, {.seed = 7, .optimizer = {.learning_rate = 3e-3, .clip_norm = 1}});
  for (unsigned step = 0; step < 150; ++step) {
    const StepResult& result = session.train_step(Batch(step).view());
    if (step % 50 == 0) std::printf("step %u: loss %.3f\n", step, result.mean_loss());
  }
  session.save("ramps.safetensors");

  Session restored(model);
  restored.load("ramps.safetensors");
  const Batch test(12345);
  const std::vector<float>& scores = restored.predict(test.view());
  int right = 0;
  for (size_t n = 0; n < test.rising.size(); ++n) {
    if ((scores[2 * n + 1] > scores[2 * n]) == (test.rising[n] == 1)) ++right;
  }
  std::printf("%d of %zu right\n", right, test.rising.size());
  return right >= 22 ? 0 : 1;
}
