// Constants from times: exact when the times are, and good for shapes they were not made from.
#include <cmath>
#include <random>

#include "engine/plan/measure.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using namespace rondo::plan;

namespace {

NodeWork random_work(std::mt19937& random) {
  std::uniform_real_distribution<double> u(1, 100);
  NodeWork w;
  w.steps = u(random);
  w.operations = 1e6 * u(random);
  w.bytes = 1e5 * u(random);
  w.step_bytes = 1e5 * u(random);
  return w;
}

}  // namespace

TEST_CASE("sums of predictions are neither too long nor too short") {
  // Times that differ by 40 % both ways, for reasons that no constant knows.
  std::vector<Sample> samples;
  double predicted = 0, measured = 0;
  for (int i = 0; i < 30; ++i) {
    NodeWork w;
    w.launches = 0;
    w.operations = 1e6 * (1 + i % 5);
    samples.push_back({"x", DType::f32, w, w.operations * 1e-9 * (1 + (i % 3 - 1) * 0.4), i});
  }
  const Rates rates = fit_rates(samples);
  double ratios = 0;
  for (const Sample& s : samples) {
    predicted += rates.seconds(s.work);
    measured += s.seconds;
    ratios += s.seconds / rates.seconds(s.work) / 30;
  }
  CHECK(ratios == Approx(1).epsilon(1e-3));
  CHECK(predicted == Approx(measured).epsilon(1e-3));
  // One that took far longer, because of something else, does not move them much.
  samples.front().seconds *= 50;
  CHECK(fit_rates(samples).operation < 1.1 * rates.operation);
}

TEST_CASE("a fit finds the rates that made the times") {
  const Rates truth{2e-6, 3e-7, 4e-11, 2e-10, 9e-11};
  std::mt19937 random(1);
  std::vector<Sample> samples;
  for (int i = 0; i < 40; ++i) {
    const NodeWork w = random_work(random);
    samples.push_back({"x", DType::f32, w, truth.seconds(w), i});
  }
  const Rates found = fit_rates(samples);
  for (const Sample& s : samples) {
    CHECK(found.seconds(s.work) == Approx(s.seconds).epsilon(1e-6));
  }
  CHECK(found.operation == Approx(truth.operation).epsilon(1e-3));
  CHECK(found.step_byte == Approx(truth.step_byte).epsilon(1e-3));
}

TEST_CASE("rates are never negative, and what is never there costs nothing") {
  std::mt19937 random(2);
  std::vector<Sample> samples;
  for (int i = 0; i < 20; ++i) {
    NodeWork w = random_work(random);
    w.step_bytes = 0;
    // Times that fall with the bytes cannot be fitted; the rate stays at 0.
    samples.push_back({"x", DType::f32, w, 1e-3 / (1 + w.bytes / 1e5), i});
  }
  const Rates r = fit_rates(samples);
  for (double v : {r.launch, r.step, r.operation, r.byte}) CHECK(v >= 0);
  CHECK(r.step_byte == 0);
}

TEST_CASE("what nobody measured is priced as what is like it, else as what moves data") {
  DeviceModel d;
  d.name = "d";
  d.rates = {{"linear/f32", {.operation = 1}},
             {"product/f32", {.operation = 2}},
             {"loop/f32", {.step = 3}},
             {"other/f32", {.launch = 4}}};
  const NodeWork product{.operations = 1}, loop{.steps = 1, .operations = 1, .step_bytes = 1};
  const NodeWork recursion{.steps = 1, .operations = 1}, moves{.bytes = 1};
  CHECK(d.seconds("linear", DType::f32, product) == 1);
  CHECK(d.seconds("conv", DType::f32, product) == 2);
  CHECK(d.seconds("conv", DType::f32, loop) == 3);
  CHECK(d.seconds("conv", DType::f32, recursion) == 4);
  CHECK(d.seconds("conv", DType::f32, moves) == 4);
  d.rates.erase("product/f32");
  CHECK(d.seconds("conv", DType::f32, product) == 4);
  CHECK_THROWS_WITH(d.seconds("linear", DType::bf16, product), "device 'd' has no rates for bf16");
}

TEST_CASE("this machine's nodes can be measured, fitted and written down") {
  MeasureOptions options;
  options.repetitions = 2;
  for (const int hidden : {16, 32, 48}) {
    const auto model = [hidden](Graph& g) {
      const ValueId x = layers::input_frames(g, "x", 8);
      const ValueId y = layers::lstm(g, x, "encoder", {.hidden = hidden, .bidirectional = true});
      const ValueId logits = layers::linear(g, y, "output", 5);
      return Outputs{layers::ctc_loss(g, logits), logits};
    };
    options.models.push_back({model, 8, 5, 1, 12, hidden / 8});
  }
  auto samples = measure_nodes(options);
  REQUIRE(samples.size() > 25);
  // What a busy machine takes proves nothing, so the measured nodes get the times of known rates.
  const Rates truth{2e-6, 3e-7, 4e-11, 2e-10, 9e-11};
  for (Sample& s : samples) {
    CHECK(s.seconds > 0);
    s.seconds = truth.seconds(s.work);
  }
  MachineFile machine;
  machine.device.name = "test";
  machine.device.memory_bytes = machine_memory_bytes();
  machine.device.cores = 2;
  machine.device.rates = fit_all_rates(samples);
  machine.link = {"link", true, 1e-5, 1e9};
  for (const char* key : {"lstm/f32", "linear/f32", "ctc/f32", "optimizer/f32", "load/f32",
                          "loop/f32", "product/f32", "other/f32"}) {
    INFO(key);
    CHECK(machine.device.rates.count(key) == 1);
  }
  const MachineFile again = parse_machine(to_json(machine), "machine.json");
  for (const Sample& s : samples) {
    const double seconds = machine.device.seconds(s.op, s.dtype, s.work);
    CHECK(std::isfinite(seconds));
    CHECK(again.device.seconds(s.op, s.dtype, s.work) == Approx(seconds));
  }
  CHECK(step_error(machine.device, samples) < 1e-3);
  for (auto& [key, rates] : machine.device.rates) rates = {};
  CHECK(step_error(machine.device, samples) == 1);
}

TEST_CASE("a machine file that is none says what was expected") {
  CHECK_THROWS_WITH(parse_machine("[]", "m.json"),
                    Catch::Contains("m.json: is array, expected an object"));
  CHECK_THROWS_WITH(parse_machine("{}", "m.json"),
                    Catch::Contains("m.json: has no field 'device'"));
  CHECK_THROWS_WITH(parse_machine(R"({"device":{"name":"a","memory_bytes":-1}})", "m.json"),
                    Catch::Contains("'memory_bytes' is -1"));
  CHECK_THROWS_WITH(
      parse_machine(R"({"device":{"name":"a","seconds_per":{}}})", "m.json"),
      Catch::Contains("m.json: device: was measured by a rondo whose rates were others"));
  CHECK_THROWS_WITH(device_preset("h300"), Catch::Contains("'h300' is neither the device h200"));
  CHECK_THROWS_WITH(link_preset("token-ring"), Catch::Contains("pcie, nvlink, infiniband"));
}
