// What the fast variant of ctc costs, counted on the instrumented simulator: steps that depend on
// one another, and traffic. Times are a GPU's business; these figures are the same everywhere.

#include <algorithm>

#include "kernels/base/device.h"
#include "kernels/simt/instrument/instrument.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/ctc/ctc_problem.h"

namespace rondo::test {
namespace {

struct Cost {
  uint64_t steps = 0;          // of the kernel with the most: barriers, and exchanges of a warp
  uint64_t lattice_steps = 0;  // of all kernels named after the lattice, one after the other
  uint64_t global_bytes = 0;   // of all kernels, read and written
  double logit_reads = 0;      // times the size of the logits
  double gradient_writes = 0;  // times the size of the gradient
};

Buffer to_device(const std::vector<float>& values) {
  Buffer b(sim_device(), values.size() * sizeof(float), "ctc counters");
  std::copy(values.begin(), values.end(), b.as<float>());
  return b;
}

struct Shape {
  int32_t sequences, frames, classes, labels;
};

Cost measure(const Shape& shape, bool with_grad, bool watch_gradient = false,
             size_t lattice_limit = ctc_lattice_limit) {
  simt::instrument();
  std::mt19937_64 random(5);
  std::vector<std::vector<int32_t>> lists(static_cast<size_t>(shape.sequences));
  for (auto& list : lists) {
    for (int32_t i = 0; i < shape.labels; ++i) {
      list.push_back(1 + static_cast<int32_t>(random() % static_cast<uint64_t>(shape.classes - 1)));
    }
  }
  CtcProblem p(std::vector<int32_t>(lists.size(), shape.frames), shape.classes, lists);
  p.randomise(3, 2.0);

  Stream stream = sim_device().make_stream();
  const Context context{Backend::sim, &sim_device(), &stream, nullptr};
  const Buffer logits = to_device({p.logits.begin(), p.logits.end()});
  const Buffer grad = to_device(std::vector<float>(p.logits.size()));
  const Buffer loss = to_device(std::vector<float>(lists.size()));
  CtcArgs args;
  args.lattice_limit = lattice_limit;
  args.layout = p.layout.view();
  args.max_label_length = shape.labels;
  args.labels = p.labels.data();
  args.label_offsets = p.offsets.data();
  args.logits = TensorView(logits.data(), DType::f32, {p.layout.extent.rows, p.classes});
  args.loss = TensorView(loss.data(), DType::f32, {shape.sequences});
  if (with_grad) args.grad = TensorView(grad.data(), DType::f32, {p.layout.extent.rows, p.classes});
  const Buffer workspace(sim_device(),
                         ctc_workspace_bytes(context, args.layout.capacity, DType::f32, p.classes,
                                             args.max_label_length, with_grad, lattice_limit),
                         "ctc counters");
  args.workspace =
      TensorView(workspace.data(), DType::u8, {static_cast<int64_t>(workspace.bytes())});

  simt::reset_counters();
  simt::watch(watch_gradient ? grad.data() : logits.data(), logits.bytes());
  bool ran = false;
  for (const Variant& v : ctc_variants()) {
    if (v.backend == Backend::sim && std::string_view(v.name) == "fast") {
      v.run(context, &args);
      ran = true;
    }
  }
  REQUIRE(ran);
  stream.synchronize();
  Cost cost;
  for (const auto& c : simt::counters()) {
    cost.steps = std::max(cost.steps, c.block_barriers + c.warp_exchanges);
    if (std::string_view(c.kernel).find("lattice") != std::string_view::npos) {
      cost.lattice_steps += c.block_barriers + c.warp_exchanges;
    }
    cost.global_bytes += c.global_bytes_read + c.global_bytes_written;
  }
  const auto size = static_cast<double>(logits.bytes());
  cost.logit_reads = static_cast<double>(simt::watched().bytes_read) / size;
  cost.gradient_writes = static_cast<double>(simt::watched().bytes_written) / size;
  return cost;
}

// Steps per frame, without what does not depend on their number.
double steps_per_frame(Shape shape, bool with_grad) {
  const uint64_t before = measure(shape, with_grad).steps;
  const int32_t more = shape.frames;
  shape.frames *= 2;
  return static_cast<double>(measure(shape, with_grad).steps - before) / more;
}

// The labels' own logits are gathered besides: every lane of a few warps reads one per frame,
// whether it has a label or not. So large a share of the classes.
double gathered(const Shape& s) { return 80.0 / s.classes; }

TEST_CASE("ctc: the lattices take T dependent steps, not 2 T") {
  // A frame takes a warp at most two exchanges, a scaling up to eight more that do not depend on
  // one another, once per chunk. alpha first and beta after it would take twice as many per frame.
  for (const Shape& s : {Shape{1, 128, 12, 10}, Shape{1, 128, 12, 40}, Shape{1, 192, 12, 100}}) {
    INFO("T " << s.frames << ", L " << s.labels);
    CHECK(steps_per_frame(s, true) <= 3.5);
    CHECK(steps_per_frame(s, false) <= 3.4);
  }
}

TEST_CASE("ctc: a lattice in segments takes T dependent steps too") {
  // Both halves of the frames, and what goes on before the second one's walk begins. Making columns
  // again before each segment instead of beside the one before would be half as many more.
  for (const Shape& s : {Shape{1, 400, 12, 10}, Shape{1, 400, 12, 100}}) {
    INFO("T " << s.frames << ", L " << s.labels);
    Shape longer = s;
    longer.frames *= 2;
    const uint64_t more =
        measure(longer, true, false, 0).lattice_steps - measure(s, true, false, 0).lattice_steps;
    CHECK(static_cast<double>(more) / s.frames <= 4.0);
  }
}

TEST_CASE("ctc: logits are read at most twice, once for the loss alone; gradients written once") {
  const Shape s{2, 64, 700, 12};
  CHECK(measure(s, true).logit_reads <= 2 + gathered(s));
  // The pass over rows looks at its labels once more when it knows the best of them.
  CHECK(measure(s, false).logit_reads <= 1 + gathered(s) + 1.0 * s.labels / s.classes);
  CHECK(measure(s, true, true).gradient_writes == 1.0);
  // All kernels, and all they keep in memory, together.
  const double logits = 4.0 * s.sequences * s.frames * s.classes;
  CHECK(static_cast<double>(measure(s, true).global_bytes) <= 6 * logits);
}

}  // namespace
}  // namespace rondo::test
