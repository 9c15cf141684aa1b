// Times a speech model's forward pass as programs run it, one JSON line per shape:
//   build/bench/inference_bench [--threads N] [--seconds S] [--training] h512_l3_d2_b8_t200_f32 ...
// A shape ends in f32, bf16, or int8: f32 with products of 8 bits, which no --training has.
// --training: in a session that could train as well, and so packs the weights in every call.
// The model: 80 features, l layers of h cells in d directions, a linear layer to 32 classes. The
// batch: b utterances of t frames. A call takes features in host memory to logits in host memory.
// bench/peers/inference_peer.py does the same with PyTorch and ONNX Runtime.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/clock.h"
#include "engine/session.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/packed_host.h"

using namespace rondo;

namespace {

constexpr int features = 80, classes = 32;

struct Shape {
  int hidden = 0, layers = 0, directions = 0, batch = 0, frames = 0;
  DType dtype = DType::f32;
  bool int8 = false;  // of f32, with products of 8 bits

  const char* type() const { return int8 ? "int8" : name_of(dtype); }
};

Shape parse(const std::string& text) {
  Shape s;
  char type[8] = "";
  const int found = std::sscanf(text.c_str(), "h%d_l%d_d%d_b%d_t%d_%7s", &s.hidden, &s.layers,
                                &s.directions, &s.batch, &s.frames, type);
  const bool narrow = type == std::string("bf16");
  s.int8 = type == std::string("int8");
  if (found != 6 || s.hidden < 1 || s.layers < 1 || s.directions < 1 || s.directions > 2 ||
      s.batch < 1 || s.frames < 1 || (!narrow && !s.int8 && type != std::string("f32"))) {
    std::fprintf(stderr, "inference_bench: '%s' is no shape like h512_l3_d2_b8_t200_f32\n",
                 text.c_str());
    std::exit(2);
  }
  if (narrow) s.dtype = DType::bf16;
  return s;
}

double flops_of(const Shape& s) {
  double products = 0;
  for (int layer = 0; layer < s.layers; ++layer) {
    const int input = layer == 0 ? features : s.directions * s.hidden;
    products += 4.0 * s.directions * s.hidden * (input + s.hidden);
  }
  products += s.directions * s.hidden * classes;
  return 2 * products * s.batch * s.frames;
}

// The weights, the features and the logits, once each.
double bytes_of(const Shape& s, int64_t weights) {
  const double values = static_cast<double>(s.batch) * s.frames * (features + classes);
  return static_cast<double>(weights) * static_cast<double>(s.int8 ? 1 : size_of(s.dtype)) +
         4 * values;
}

void time_shape(const std::string& name, int threads, double seconds, bool training) {
  const Shape s = parse(name);
  SessionOptions options;
  options.threads = threads;
  options.compute = s.dtype;
  options.training = training;
  Session session(
      [&](Graph& g) {
        g.int8 = s.int8 && !g.training;
        ValueId x = layers::input_frames(g, "features", features);
        x = layers::lstm(
            g, x, "encoder",
            {.hidden = s.hidden, .layers = s.layers, .bidirectional = s.directions == 2});
        const ValueId logits = layers::linear(g, x, "output", classes);
        return Outputs{.loss = layers::ctc_loss(g, logits), .prediction = logits};
      },
      options);
  const PackedHost layout =
      build_packed(std::vector<int32_t>(static_cast<size_t>(s.batch), s.frames));
  std::vector<float> x(static_cast<size_t>(layout.extent.rows * features));
  uint32_t state = 1;
  for (float& v : x) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) / 8388608.0f - 1;
  }
  const BatchView::Input input{"features", x.data(), x.size() * sizeof(float)};
  BatchView batch;
  batch.layout = &layout;
  batch.inputs = {&input, 1};
  session.predict(batch);
  std::vector<double> times;
  double least_thread = 1e30;
  for (const double end = wall_seconds() + seconds; times.size() < 3 || wall_seconds() < end;) {
    const double begin = wall_seconds(), thread_begin = thread_seconds();
    session.predict(batch);
    times.push_back(wall_seconds() - begin);
    least_thread = std::min(least_thread, thread_seconds() - thread_begin);
  }
  std::sort(times.begin(), times.end());
  const double flops = flops_of(s);
  std::printf(
      "{\"op\": \"inference\", \"case\": \"%s\", \"dtype\": \"%s\", \"shape\": {\"features\": %d, "
      "\"layers\": %d, \"directions\": %d, \"hidden\": %d, \"classes\": %d, \"batch\": %d, "
      "\"frames\": %d}, \"device\": \"cpu\", \"threads\": %d, \"runs\": %zu, \"median_us\": %.1f, "
      "\"min_us\": %.1f, \"min_thread_us\": %.1f, \"flops\": %.0f, \"bytes\": %.0f, "
      "\"gflops\": %.1f}\n",
      name.c_str(), s.type(), features, s.layers, s.directions, s.hidden, classes, s.batch,
      s.frames, threads, times.size(), times[times.size() / 2] * 1e6, times.front() * 1e6,
      least_thread * 1e6, flops, bytes_of(s, session.parameters().trainable()),
      flops / times.front() * 1e-9);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int threads = usable_cpus();
  double seconds = 0.3;
  bool training = false;
  std::vector<std::string> shapes;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--threads" && i + 1 < argc) {
      threads = std::max(std::atoi(argv[++i]), 1);
    } else if (word == "--seconds" && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (word == "--training") {
      training = true;
    } else {
      shapes.push_back(word);
    }
  }
  try {
    for (const std::string& shape : shapes) time_shape(shape, threads, seconds, training);
  } catch (const Error& e) {
    std::fprintf(stderr, "inference_bench: %s\n", e.what());
    return 1;
  }
}
