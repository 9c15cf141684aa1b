// Constants from times: exact when the times are, and good for shapes they were not made from.
#include <cmath>
#include <random>

#include "engine/plan/machine/fit.h"
#include "engine/plan/machine/machine.h"
#include "engine/plan/machine/measure.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using namespace rondo::plan;

namespace {

NodeWork random_work(std::mt19937& random) {
  std::uniform_real_distribution<double> u(1, 100);
  NodeWork w;
  w.steps = u(random);
  w.exchanged = w.steps * u(random);
  w.flops = 1e6 * u(random);
  w.recurrent_flops = 1e6 * u(random);
  w.bytes = 1e5 * u(random);
  return w;
}

}  // namespace

TEST_CASE("sums of predictions are neither too long nor too short") {
  // Times that differ by 40 % both ways, for reasons that no constant knows.
  std::vector<Sample> samples;
  double predicted = 0, measured = 0;
  for (int i = 0; i < 30; ++i) {
    NodeWork w;
    w.calls = 0;
    w.flops = 1e6 * (1 + i % 5);
    samples.push_back({"lstm/f32", w, w.flops * 1e-9 * (1 + (i % 3 - 1) * 0.4), i});
  }
  const OpCost cost = fit_cost(samples);
  double ratios = 0;
  for (const Sample& s : samples) {
    predicted += seconds_of(cost, s.work);
    measured += s.seconds;
    ratios += s.seconds / seconds_of(cost, s.work) / 30;
  }
  CHECK(ratios == Approx(1).epsilon(1e-3));
  CHECK(predicted == Approx(measured).epsilon(1e-3));
  // One that took far longer, because of something else, does not move them much.
  samples.front().seconds *= 50;
  const double with_one = fit_cost(samples).flop;
  CHECK(with_one < 1.1 * cost.flop);
}

TEST_CASE("a fit finds the constants that made the times") {
  const OpCost truth{2e-6, 3e-7, 0, 4e-11, 9e-11, 2e-10};
  std::mt19937 random(1);
  std::vector<Sample> samples;
  for (int i = 0; i < 40; ++i) {
    const NodeWork w = random_work(random);
    samples.push_back({"lstm/f32", w, seconds_of(truth, w), i});
  }
  const OpCost found = fit_cost(samples);
  for (const Sample& s : samples) {
    CHECK(seconds_of(found, s.work) == Approx(s.seconds).epsilon(1e-6));
  }
  CHECK(found.flop == Approx(truth.flop).epsilon(1e-3));
  CHECK(found.recurrent_flop == Approx(truth.recurrent_flop).epsilon(1e-3));
}

TEST_CASE("constants are never negative, and a feature that is never there costs nothing") {
  std::mt19937 random(2);
  std::vector<Sample> samples;
  for (int i = 0; i < 20; ++i) {
    NodeWork w = random_work(random);
    w.exchanged = 0;
    // Times that fall with the bytes cannot be fitted; the constant stays at 0.
    samples.push_back({"x/f32", w, 1e-3 / (1 + w.bytes / 1e5), i});
  }
  const OpCost c = fit_cost(samples);
  for (double v : {c.call, c.step, c.flop, c.recurrent_flop, c.byte}) CHECK(v >= 0);
  CHECK(c.exchange == 0);
}

TEST_CASE("this machine's nodes can be measured, fitted and written down") {
  MeasureOptions options;
  options.quick = true;
  options.repetitions = 2;
  const auto samples = measure_nodes(options);
  REQUIRE(samples.size() > 50);
  MachineFile machine;
  machine.device.name = "test";
  machine.device.memory_bytes = machine_memory_bytes();
  machine.device.cores = 2;
  machine.device.costs = fit_costs(samples);
  machine.link = {"link", true, 1e-5, 1e9};
  CHECK(machine.device.costs.count("lstm/f32") == 1);
  CHECK(machine.device.costs.count("other/f32") == 1);
  const MachineFile again = parse_machine(to_json(machine), "machine.json");
  for (const Sample& s : samples) {
    const std::string op = s.key.substr(0, s.key.find('/'));
    const double seconds = seconds_of(machine.device.cost_of(op, DType::f32), s.work);
    CHECK(std::isfinite(seconds));
    CHECK(seconds_of(again.device.cost_of(op, DType::f32), s.work) == Approx(seconds));
  }
  CHECK(fit_errors(machine.device, samples).at("step").samples == 6);
}

TEST_CASE("a machine file that is none says what was expected") {
  CHECK_THROWS_WITH(parse_machine("[]", "m.json"),
                    Catch::Contains("m.json: is array, expected an object"));
  CHECK_THROWS_WITH(parse_machine("{}", "m.json"),
                    Catch::Contains("m.json: has no field 'device'"));
  CHECK_THROWS_WITH(parse_machine(R"({"device":{"name":"a","memory_bytes":-1}})", "m.json"),
                    Catch::Contains("'memory_bytes' is -1"));
  CHECK_THROWS_WITH(device_preset("h300"), Catch::Contains("'h300' is neither the device h200"));
  CHECK_THROWS_WITH(link_preset("token-ring"), Catch::Contains("pcie, nvlink, infiniband"));
}
