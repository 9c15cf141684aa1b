// What we ask of cuDNN's LSTM, by a library of our own in its place, over checkop's cases.
#include <algorithm>
#include <cstring>

#include "bench/cases/check/check.h"
#include "bench/cases/peers/lstm_cudnn.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/lstm/cudnn_stand_in.h"

using namespace rondo;
using rondo::test::stand_in_counts;

namespace {

const Cudnn& library() {
  static const Cudnn stand_in = rondo::test::stand_in_cudnn();
  return stand_in;
}

std::unique_ptr<CudnnLstm> layer;
CudnnLstmKind kind;

const LstmForwardArgs& forward_of(const LstmForwardArgs& a) { return a; }
const LstmForwardArgs& forward_of(const LstmStepArgs& a) { return a.forward; }

template <class Args>
Variant variant_under_test() {
  return {Args::op,
          "cudnn",
          Backend::sim,
          Role::peer,
          [](const Context& context, const void* args) {
            layer->run(context, *static_cast<const Args*>(args));
          },
          [](const Context& context, const void* args) {
            const Args& a = *static_cast<const Args*>(args);
            layer = CudnnLstm::make(library(), context, kind, forward_of(a),
                                    std::is_same_v<Args, LstmStepArgs>);
            return layer != nullptr;
          }};
}

const Variant& reference(const std::string& op) {
  return (op == LstmStepArgs::op ? lstm_step_variants() : lstm_forward_variants()).front();
}

struct Outcome {
  bool accepted = false;
  std::vector<check::Case::Output> outputs;
};
Outcome outcome(const check::Suite::Entry& e, const Variant& v, Device& device, int repeats) {
  Stream stream = device.make_stream();
  ThreadPool pool(1);
  check::Case c({v.backend, &device, &stream, &pool}, 1, &v, repeats);
  e.function(c);
  Outcome o;
  o.accepted = c.accepted();
  std::string guard;
  if (o.accepted) o.outputs = c.collect(&guard);
  CHECK(guard.empty());
  layer.reset();
  return o;
}

int differing(const Outcome& got, const Outcome& want) {
  int wrong = 0;
  for (size_t o = 0; o < want.outputs.size(); ++o) {
    const auto &w = want.outputs[o], &g = got.outputs.at(o);
    for (size_t i = 0; i < w.values.size(); ++i) {
      if (!check::matches(g.values[i], w.values[i], w.tolerance)) ++wrong;
    }
  }
  return wrong;
}

template <class Args>
int run_cases(const CudnnLstmKind& k, const std::string& with = "") {
  int accepted = 0;
  kind = k;
  const check::Suite suite = check::full_suite();
  for (const auto& e : suite.entries) {
    if (e.op != Args::op || e.bench || e.label.find(with) == std::string::npos) continue;
    const Outcome got = outcome(e, variant_under_test<Args>(), sim_device(), 1);
    if (!got.accepted) continue;
    ++accepted;
    INFO(e.op << "/" << e.label);
    CHECK(differing(got, outcome(e, reference(e.op), cpu_device(), 1)) == 0);
  }
  CHECK(stand_in_counts().descriptors == 0);
  return accepted;
}

}  // namespace

TEST_CASE("cuDNN is given the right weights, states and sequences") {
  stand_in_counts() = {};
  for (bool padded : {false, true}) {
    CHECK(run_cases<LstmForwardArgs>({CUDNN_RNN_ALGO_STANDARD, padded}) >= 6);
    CHECK(run_cases<LstmStepArgs>({CUDNN_RNN_ALGO_STANDARD, padded}) >= 6);
  }
  CHECK(stand_in_counts().backwards >= 20);
}

TEST_CASE("the kinds are told apart, and take the types they are for") {
  stand_in_counts() = {};
  CHECK(run_cases<LstmStepArgs>({CUDNN_RNN_ALGO_PERSIST_STATIC, false, CudnnMath::tf32}, "f32") >
        0);
  CHECK(stand_in_counts().algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC);
  CHECK(stand_in_counts().math == CUDNN_DEFAULT_MATH);
  CHECK(stand_in_counts().type == CUDNN_DATA_FLOAT);
  CHECK(run_cases<LstmStepArgs>({CUDNN_RNN_ALGO_PERSIST_STATIC, false, CudnnMath::tf32}, "bf16") ==
        0);
  CHECK(run_cases<LstmStepArgs>({CUDNN_RNN_ALGO_PERSIST_STATIC, false, CudnnMath::f16}, "f32") ==
        0);
  CHECK(run_cases<LstmStepArgs>({CUDNN_RNN_ALGO_STANDARD, false, CudnnMath::exact}, "f32") > 0);
  CHECK(stand_in_counts().math == CUDNN_FMA_MATH);
  CHECK(run_cases<LstmStepArgs>({CUDNN_RNN_ALGO_STANDARD, false, CudnnMath::exact}, "bf16") > 0);
  CHECK(stand_in_counts().math == CUDNN_TENSOR_OP_MATH);
  CHECK(stand_in_counts().type == CUDNN_DATA_BFLOAT16);
  CHECK(stand_in_counts().dynamic_builds == 0);
  CHECK(run_cases<LstmForwardArgs>({CUDNN_RNN_ALGO_PERSIST_DYNAMIC, true}, "f32") > 0);
  CHECK(stand_in_counts().dynamic_builds > 0);
}

TEST_CASE("what cuDNN does not do is declined; what it should is an error") {
  stand_in_counts() = {};
  kind = {CUDNN_RNN_ALGO_PERSIST_STATIC, false};
  const check::Suite suite = check::full_suite();
  const auto entry = std::find_if(suite.entries.begin(), suite.entries.end(), [](const auto& e) {
    return e.op == LstmStepArgs::op && !e.bench;
  });
  REQUIRE(entry != suite.entries.end());
  const auto accepted = [&] {
    return outcome(*entry, variant_under_test<LstmStepArgs>(), sim_device(), 1).accepted;
  };
  CHECK(accepted());
  stand_in_counts().status_of_set = CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
  CHECK(!accepted());
  stand_in_counts().status_of_set = CUDNN_STATUS_BAD_PARAM;
  CHECK(!accepted());
  kind.algorithm = CUDNN_RNN_ALGO_STANDARD;
  CHECK_THROWS_WITH(accepted(), Catch::Contains("refused by the test"));
  stand_in_counts().status_of_set = CUDNN_STATUS_SUCCESS;
  stand_in_counts().status_of_forward = CUDNN_STATUS_NOT_SUPPORTED;
  CHECK(!accepted());  // found out by running
  stand_in_counts() = {};
}

TEST_CASE("only the first run converts between layouts") {
  stand_in_counts() = {};
  kind = {CUDNN_RNN_ALGO_STANDARD, true};
  Variant v = variant_under_test<LstmStepArgs>();
  // Before the second run the input is spoilt; what was converted before must still be used.
  static int runs;
  runs = 0;
  v.run = [](const Context& context, const void* args) {
    const LstmStepArgs& a = *static_cast<const LstmStepArgs*>(args);
    layer->run(context, a);
    context.stream->synchronize();
    if (runs++ > 0) return;
    std::memset(a.forward.x.data, 0xff, a.forward.x.bytes());
    std::memset(a.forward.weights[0].w.data, 0xff, a.forward.weights[0].w.bytes());
  };
  const check::Suite suite = check::full_suite();
  for (const auto& e : suite.entries) {
    if (e.op != LstmStepArgs::op || e.bench || e.label.find("f32") == std::string::npos) continue;
    const Outcome got = outcome(e, v, sim_device(), 3);
    if (!got.accepted) continue;
    CHECK(differing(got, outcome(e, reference(e.op), cpu_device(), 1)) == 0);
    CHECK(runs == 3);
    CHECK(stand_in_counts().forwards == 3);
    return;
  }
  FAIL("no case was accepted");
}
