// Weights that are packed once, where they do not change.
#include "kernels/base/cpu/packed_weights.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/engine/small_model.h"

using namespace rondo;
using namespace rondo::test;

namespace {

SessionOptions options(DType compute, bool training) {
  SessionOptions o;
  o.compute = compute;
  o.training = training;
  o.threads = 2;
  o.seed = 3;
  return o;
}

}  // namespace

TEST_CASE("packed weights are made once for each form") {
  PackedWeights weights;
  int packed = 0;
  const auto pack = [&](void* to) { *static_cast<int*>(to) = ++packed; };
  CHECK(*static_cast<const int*>(weights.get({1, 2}, 64, pack)) == 1);
  CHECK(*static_cast<const int*>(weights.get({1, 3}, 64, pack)) == 2);
  CHECK(*static_cast<const int*>(weights.get({1, 2}, 64, pack)) == 1);
  CHECK(weights.bytes() == 128);
  CHECK_THROWS(weights.get({1, 2}, 65, pack));
  CHECK_THROWS_AS(weights.get({4}, 64, [](void*) { throw std::runtime_error("no"); }),
                  std::runtime_error);
  CHECK(weights.bytes() == 128);
  weights.clear();
  CHECK(weights.bytes() == 0);
  CHECK(*static_cast<const int*>(weights.get({1, 2}, 64, pack)) == 3);
}

TEST_CASE("packed weights are made once by threads that ask for them at once", "[threads]") {
  PackedWeights weights;
  std::atomic<int> packed = 0;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int64_t form = 0; form < 50; ++form) {
        const void* at = weights.get({(form + i) % 50}, 64, [&](void* to) {
          *static_cast<int64_t*>(to) = (form + i) % 50;
          ++packed;
        });
        if (*static_cast<const int64_t*>(at) != (form + i) % 50) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(packed == 50);
}

TEST_CASE("a session that does not train packs its weights once, and predicts the same bits") {
  const SmallBatches batches(3, {30, 22, 9});
  for (const DType compute : {DType::f32, DType::bf16}) {
    Session trains(small_model(9), options(compute, true));
    Session session(small_model(9), options(compute, false));
    CHECK(trains.parameters().packed("out.weight") == nullptr);
    CHECK(session.parameters().packed_bytes() == 0);
    CHECK(session.predict(batches.views[2]) == trains.predict(batches.views[2]));
    const size_t kept = session.parameters().packed_bytes();
    CHECK(kept > 0);
    for (const BatchView& batch : batches.views) {
      CHECK(session.predict(batch) == trains.predict(batch));
    }
    CHECK(session.parameters().packed_bytes() == kept);
  }
}

TEST_CASE("weights that are written are packed anew") {
  const SmallBatches batches(1, {12, 5});
  const BatchView& batch = batches.views[0];
  Session session(small_model(9), options(DType::f32, false));
  Session other(small_model(9), options(DType::f32, true));
  const std::vector<float> before = session.predict(batch);
  for (const Parameters::Entry& e : session.parameters().entries()) {
    INFO(e.name);
    std::vector<float> values(static_cast<size_t>(e.numel()));
    session.parameters().read(e.name, values.data());
    for (float& v : values) v *= 1.5f;
    session.parameters().write(e.name, values.data());
    other.parameters().write(e.name, values.data());
    CHECK(session.predict(batch) == other.predict(batch));
  }
  CHECK(session.predict(batch) != before);
}
