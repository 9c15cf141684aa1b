// Sessions on the simulated GPU: the same training as on the cpu, nothing waited for, nothing
// allocated in a step, and what is said when memory is short.
#include <cmath>
#include <utility>

#include "engine/session.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/engine/small_model.h"

using namespace rondo;
using rondo::test::RandomBatch;
using rondo::test::weights_of;

namespace {

constexpr int32_t classes = rondo::test::small_classes;
const ModelFunction model = rondo::test::small_model(8);

SessionOptions options(DeviceKind device, DType compute = DType::f32) {
  SessionOptions o;
  o.device = device;
  o.threads = 2;
  o.compute = compute;
  o.optimizer.learning_rate = 1e-2;
  o.optimizer.clip_norm = 5;
  return o;
}

struct Batches : rondo::test::SmallBatches {
  explicit Batches(int n) : SmallBatches(n, {12, 9, 5}) {}
};

// The loss of every batch and the gradient norm of every update, read one step late.
struct Course {
  std::vector<double> losses, norms;
  std::vector<float> weights;
};
double rate_of(int step) { return 1e-2 / (1 + step); }

Course train_ahead(Session& session, const Batches& batches, int steps,
                   Session::Next next = Session::Next::update) {
  Course course;
  std::vector<bool> updates;  // of what is in flight, oldest first
  const auto settle = [&](size_t left) {
    while (session.in_flight() > left) {
      const StepResult& r = session.collect();
      (updates.front() ? course.norms : course.losses)
          .push_back(updates.front() ? r.gradient_norm : r.mean_loss());
      updates.erase(updates.begin());
    }
  };
  for (int i = 0; i < steps; ++i) {
    session.set_learning_rate(rate_of(i));
    session.enqueue(batches.views[static_cast<size_t>(i) % batches.views.size()], next);
    session.enqueue_update();
    updates.insert(updates.end(), {false, true});
    settle(2);
  }
  settle(0);
  course.weights = weights_of(session);
  return course;
}

}  // namespace

TEST_CASE("training on the simulated GPU agrees with the cpu step by step", "[slow]") {
  for (DType compute : {DType::f32, DType::bf16}) {
    // f32: sums in another order, through eight updates. bf16: 8 bits of every activation may
    // round the other way.
    const double allowed = compute == DType::f32 ? 2e-5 : 2e-2;
    const Batches batches(3);
    Session cpu(model, options(DeviceKind::cpu, compute));
    Session sim(model, options(DeviceKind::sim, compute));
    for (int i = 0; i < 8; ++i) {
      const BatchView& batch = batches.views[static_cast<size_t>(i) % 3];
      const StepResult want = cpu.train_step(batch);
      const StepResult& got = sim.train_step(batch);
      INFO(name_of(compute) << " step " << i);
      CHECK(std::abs(got.mean_loss() - want.mean_loss()) <= allowed * want.mean_loss());
      CHECK(std::abs(got.gradient_norm - want.gradient_norm) <= 5 * allowed * want.gradient_norm);
      CHECK(got.sequences == want.sequences);
      CHECK(got.frames == want.frames);
      REQUIRE(got.losses.size() == want.losses.size());
    }
    CHECK(sim.optimizer().steps() == 8);
    const StepResult want = cpu.evaluate(batches.views[0]);
    CHECK(std::abs(sim.evaluate(batches.views[0]).loss - want.loss) <= allowed * want.loss);
  }
}

TEST_CASE("steps enqueued ahead give the bits of steps that were waited for", "[slow]") {
  const Batches batches(3);
  Session waiting(model, options(DeviceKind::sim));
  waiting.reserve(batches.capacity());
  Course want;
  for (int i = 0; i < 5; ++i) {
    waiting.set_learning_rate(rate_of(i));
    waiting.accumulate(batches.views[static_cast<size_t>(i) % 3]);
    want.losses.push_back(waiting.last_result().mean_loss());
    want.norms.push_back(waiting.update().gradient_norm);
  }
  want.weights = weights_of(waiting);
  // Every seed lets the copies lag behind the kernels or run ahead differently.
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    set_sim_options({SimOrder::forward, seed});
    Session ahead(model, options(DeviceKind::sim));
    ahead.reserve(batches.capacity());
    const auto next = seed % 3 == 0 ? Session::Next::anything : Session::Next::update;
    const Course got = train_ahead(ahead, batches, 5, next);
    CHECK(got.losses == want.losses);
    CHECK(got.norms == want.norms);
    CHECK(got.weights == want.weights);
  }
  set_sim_options({});
}

TEST_CASE("a larger batch makes new graphs and new recordings", "[slow]") {
  const Batches batches(5);
  const auto weights = [&](bool reserved) {
    Session session(model, options(DeviceKind::sim));
    if (reserved) session.reserve(batches.capacity());
    // Three steps of a size: as it is, recorded, launched.
    for (int i = 0; i < 15; ++i) session.train_step(batches.views[static_cast<size_t>(i / 3)]);
    return weights_of(session);
  };
  CHECK(weights(false) == weights(true));
}

TEST_CASE("what was staged stays until it was used, however far behind the device is", "[slow]") {
  const Batches batches(5);
  const auto weights = [&](bool waits) {
    Session session(model, options(DeviceKind::sim));
    session.reserve(batches.capacity());
    for (const BatchView& b : batches.views) {
      session.enqueue(b);
      if (waits) session.collect();
    }
    session.enqueue_update();
    while (session.in_flight() > 0) session.collect();
    return weights_of(session);
  };
  const std::vector<float> want = weights(true);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    set_sim_options({SimOrder::forward, seed});
    CHECK(weights(false) == want);
  }
  set_sim_options({});
}

TEST_CASE("a step on the simulated GPU allocates nothing and waits only for the step before") {
  const Batches batches(3);
  Session session(model, options(DeviceKind::sim));
  session.reserve(batches.capacity());
  const auto step = [&](int i) {
    session.enqueue(batches.views[static_cast<size_t>(i) % 3], Session::Next::update);
    session.enqueue_update();
  };
  train_ahead(session, batches, 2);  // the first runs as it is, the second is recorded
  const SimCounters before = sim_counters();
  step(0);
  for (int i = 1; i < 6; ++i) {
    step(i);
    while (session.in_flight() > 2) session.collect();
  }
  const SimCounters after = sim_counters();
  CHECK(after.allocations == before.allocations);
  CHECK(after.stream_waits == before.stream_waits);
  CHECK(after.launches - before.launches == 6);  // of batch and update, as one piece of work
  // Each load waits for its staging memory, two batches back; each collect() for its result.
  CHECK(after.event_waits - before.event_waits == 6 + 10);
  while (session.in_flight() > 0) session.collect();
}

TEST_CASE("accumulated batches are a launch each, the last one's with the update", "[slow]") {
  const Batches batches(3);
  Session session(model, options(DeviceKind::sim));
  session.reserve(batches.capacity());
  const auto update = [&](Session::Next next) {
    const int64_t before = sim_counters().launches;
    for (size_t i = 0; i < 3; ++i) {
      session.enqueue(batches.views[i], i == 2 ? next : Session::Next::anything);
    }
    session.enqueue_update();
    while (session.in_flight() > 0) session.collect();
    return sim_counters().launches - before;
  };
  for (int i = 0; i < 2; ++i) update(Session::Next::update);
  CHECK(update(Session::Next::update) == 3);
  for (int i = 0; i < 2; ++i) update(Session::Next::anything);
  CHECK(update(Session::Next::anything) == 4);
  CHECK(session.optimizer().steps() == 6);
}

TEST_CASE("what was announced with a batch must follow it") {
  const Batches batches(1);
  Session session(model, options(DeviceKind::sim));
  session.enqueue(batches.views[0], Session::Next::update);
  CHECK_THROWS_WITH(session.enqueue(batches.views[0]), Catch::Contains("must follow"));
  CHECK_THROWS_WITH(session.set_learning_rate(1), Catch::Contains("enqueued with its batch"));
  session.enqueue_update();
  session.set_learning_rate(1);
  while (session.in_flight() > 0) session.collect();
}

TEST_CASE("an allocation or a wait in the step is noticed by the counters") {
  const SimCounters before = sim_counters();
  const Buffer buffer(sim_device(), 4, "a test");
  sim_device().make_stream().synchronize();
  CHECK(sim_counters().allocations == before.allocations + 1);
  CHECK(sim_counters().stream_waits == before.stream_waits + 1);
}

// As they are, recorded, and launched.
TEST_CASE("accumulated batches are one update on the simulated GPU", "[slow]") {
  const Batches batches(3);
  Session cpu(model, options(DeviceKind::cpu)), sim(model, options(DeviceKind::sim));
  for (Session* session : {&cpu, &sim}) session->set_learning_rate(0);
  for (int update = 0; update < 4; ++update) {
    CAPTURE(update);
    for (const BatchView& b : batches.views) {
      cpu.accumulate(b);
      sim.enqueue(b);
    }
    CHECK_THROWS_WITH(sim.evaluate(batches.views[0]), Catch::Contains("in flight"));
    sim.enqueue_update();
    const StepResult want = cpu.update();
    while (sim.in_flight() > 0) sim.collect();
    const StepResult& got = sim.last_result();
    CHECK(got.sequences == 9);
    CHECK(got.mean_loss() == Approx(want.mean_loss()).epsilon(2e-5));
    CHECK(got.gradient_norm == Approx(want.gradient_norm).epsilon(1e-4));
  }
}

TEST_CASE("what is in flight has a limit, and ends with its session") {
  const Batches batches(1);
  Session session(model, options(DeviceKind::sim));
  for (size_t i = 0; i < Session::most_in_flight; ++i) session.enqueue(batches.views[0]);
  CHECK_THROWS_WITH(session.enqueue(batches.views[0]), Catch::Contains("collect() them"));
  CHECK_THROWS_WITH(session.train_step(batches.views[0]), Catch::Contains("in flight"));
}

TEST_CASE("too little memory: what asked for it, and what would fit") {
  std::vector<int32_t> lengths(40, 50);
  RandomBatch batch(lengths, classes, 1, 2);
  Graph g;
  model(g);
  const BatchView view = batch.view(g, classes, 1);
  Session session(model, options(DeviceKind::sim));
  const Session::Memory needed = session.predict_memory(view.extent());
  // Room for what the session holds already and half of the activations.
  const size_t limit =
      needed.weights + needed.gradients + needed.optimizer + needed.activations / 2;
  std::string message;
  try {
    set_sim_memory_limit(limit);
    session.train_step(view);
  } catch (const OutOfMemory& e) {
    message = e.what();
  }
  set_sim_memory_limit(0);
  CHECK_THAT(message, Catch::Contains("out of memory on sim"));
  CHECK_THAT(message, Catch::Contains("activations of a batch of 2000 frames in 40 sequences"));
  CHECK_THAT(message, Catch::Contains("the largest, '"));
  const size_t at = message.find("a batch of ", message.find(" free"));
  REQUIRE(at != std::string::npos);
  const int64_t frames = std::stoll(message.substr(at + 11));
  CHECK(frames >= 50);
  CHECK(frames < 2000);
  // The session is as it was; what was advised does fit.
  RandomBatch smaller(std::vector<int32_t>(static_cast<size_t>(frames / 50), 50), classes, 1, 2);
  set_sim_memory_limit(limit);
  CHECK(std::isfinite(session.train_step(smaller.view(g, classes, 1)).mean_loss()));
  set_sim_memory_limit(0);
}

TEST_CASE("a session that does not train has no gradients and no optimiser") {
  const Batches batches(1);
  for (DeviceKind device : {DeviceKind::cpu, DeviceKind::sim}) {
    Session trained(model, options(device));
    SessionOptions o = options(device);
    o.training = false;
    Session session(model, o);
    CHECK(session.parameters().gradients().data == nullptr);
    CHECK(session.predict(batches.views[0]) == trained.predict(batches.views[0]));
    CHECK_THROWS_WITH(session.train_step(batches.views[0]), Catch::Contains("without memory"));
    CHECK_THROWS_WITH(session.optimizer(), Catch::Contains("without memory"));
  }
}

// Kernels go by lengths, memory by the batch's frames and rows.
TEST_CASE("lengths beyond the batch's frames are refused before anything is launched") {
  using Catch::Contains;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::sim}) {
    Batches batches(1);
    BatchView batch = batches.views[0];
    PackedHost layout = *batch.layout;
    batch.layout = &layout;
    Session session(model, options(device));
    const double loss = session.train_step(batch).loss;
    CHECK(std::isfinite(loss));
    layout.lengths[0] = 13;
    CHECK_THROWS_WITH(
        session.train_step(batch),
        Contains("sequence 0 of a batch has length 13, expected 0 to the batch's 12"));
    layout.lengths[0] = -1;
    CHECK_THROWS_AS(session.train_step(batch), InputError);
    layout.lengths = {12, 9, 4};
    CHECK_THROWS_WITH(session.train_step(batch), Contains("add up to 25, expected its 26 rows"));
    layout.lengths = {12, 9};
    CHECK_THROWS_WITH(session.train_step(batch), Contains("3 sequences has 2 lengths"));
    layout.lengths = {12, 9, 5};
    CHECK(std::isfinite(session.train_step(batch).loss));
  }
}

// Kernels read at labels' places without asking.
TEST_CASE("labels that are no classes, or not there, are refused before anything is launched") {
  using Catch::Contains;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::sim}) {
    Batches batches(1);
    BatchView batch = batches.views[0];
    std::vector<int32_t> labels(batch.labels.begin(), batch.labels.end());
    std::vector<int32_t> offsets(batch.label_offsets.begin(), batch.label_offsets.end());
    batch.labels = labels;
    batch.label_offsets = offsets;
    Session session(model, options(device));
    const auto refused = [&](const char* why) {
      INFO(why);
      CHECK_THROWS_AS(session.train_step(batch), InputError);
      CHECK_THROWS_WITH(session.train_step(batch), Contains(why));
      CHECK_THROWS_WITH(session.evaluate(batch), Contains(why));
    };
    const int32_t label = std::exchange(labels[0], classes);
    refused("sequence 0 of a batch: label 1 is 5, expected 0 to 4");
    labels[0] = -1;
    refused("label 1 is -1, expected 0 to 4");
    labels[0] = 0;
    refused("label 1 is 0, which is the blank");
    labels[0] = label;
    const int32_t end = std::exchange(offsets[3], 1 << 30);
    refused("sequence 2 of a batch has labels 5 to 1073741824, expected a range of the batch's 6");
    offsets[3] = end;
    std::swap(offsets[1], offsets[2]);
    refused("sequence 1 of a batch has labels 5 to 3");
    std::swap(offsets[1], offsets[2]);
    batch.label_offsets = std::span(offsets).first(3);
    refused("a batch has 3 label offsets, expected 4 for 3 sequences");
    batch.label_offsets = offsets;
    CHECK(std::isfinite(session.train_step(batch).loss));
  }
}

// A recorded time loop has as many launches as its capacity has frames.
TEST_CASE("short batches of a session that has seen long ones run in graphs of their own",
          "[slow]") {
  const std::vector<int32_t> lengths = {100, 90}, shorter(7, 20);
  Graph g;
  model(g);
  RandomBatch large(lengths, classes, 1, 2), small(shorter, classes, 2, 2);
  const BatchView batches[] = {large.view(g, classes, 1), small.view(g, classes, 2)};
  const BatchCapacity both = BatchCapacity::merge(batches[0].extent(), batches[1].extent());
  const auto course = [&](DeviceKind device, std::vector<int64_t>* pieces) {
    Session session(model, options(device));
    session.reserve(both);
    const SimCounters before = sim_counters();
    std::vector<double> losses;
    // As it is, recorded, launched, of each size in turn.
    for (int i = 0; i < 8; ++i) {
      const int64_t before_step = sim_counters().pieces;
      losses.push_back(session.train_step(batches[i % 2]).mean_loss());
      pieces->push_back(sim_counters().pieces - before_step);
    }
    CHECK(sim_counters().allocations == before.allocations);
    return losses;
  };
  std::vector<int64_t> pieces, none;
  const std::vector<double> got = course(DeviceKind::sim, &pieces);
  const std::vector<double> want = course(DeviceKind::cpu, &none);
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-4));
  for (size_t i = 2; i < got.size(); ++i) CHECK(pieces[i] == pieces[i - 2]);
  // 50 steps of each of eight time loops against 12, and what surrounds them.
  CHECK(pieces[0] == pieces[1] + 8 * (50 - 12));
}
