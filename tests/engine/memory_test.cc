// What a training step really takes, against what is predicted.
#include <fstream>
#include <string>

#include "engine/session.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;

namespace {

// Peak resident memory of this process so far, in bytes.
size_t peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") {
      size_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 40);
  x = layers::lstm(g, x, "encoder",
                   {.hidden = 192, .layers = 3, .bidirectional = true, .dropout = 0.1});
  const ValueId logits = layers::linear(g, x, "out", 30);
  return {layers::ctc_loss(g, logits), logits};
}

}  // namespace

TEST_CASE("a training step takes at most 1.3 times the memory that was predicted") {
  if (peak_resident() == 0) {
    WARN("skipped: /proc/self/status does not tell the peak of resident memory");
    return;
  }
  Graph g;
  model(g);
  std::vector<int32_t> lengths;
  for (int n = 0; n < 24; ++n) lengths.push_back(600 - 10 * n);
  test::RandomBatch batch(lengths, 30, 1);
  const BatchView view = batch.view(g, 30, 2);
  {
    // Code and buffers of libraries are not the step's.
    Session warm_up(model, {.threads = 2});
    test::RandomBatch tiny({4, 3}, 30, 1);
    warm_up.train_step(tiny.view(g, 30, 2));
  }
  const size_t before = peak_resident();
  Session session(model, {.threads = 2});
  const size_t predicted = session.predict_memory(view.extent()).total();
  session.reserve(view.extent());
  for (int i = 0; i < 3; ++i) session.train_step(view);
  const size_t taken = peak_resident() - before;
  INFO("predicted " << predicted / 1048576.0 << " MiB, taken " << taken / 1048576.0 << " MiB");
  CHECK(predicted > 100u * 1048576u);
  CHECK(static_cast<double>(taken) <= 1.3 * static_cast<double>(predicted));
  CHECK(static_cast<double>(taken) >= 0.6 * static_cast<double>(predicted));
}
