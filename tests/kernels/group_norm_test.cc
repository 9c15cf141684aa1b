// Group normalisation: PyTorch's results, its gradient by finite differences, and that sequences do
// not see each other.
#include "kernels/group_norm/group_norm.h"

#include "kernels/base/packed_host.h"
#include "tests/kernels/finite_difference.h"
#include "tests/kernels/group_norm_golden.h"

using namespace rondo;
using namespace rondo::test;

namespace {

// A batch, its results and gradients.
template <class T>
struct Batch {
  GroupNormDims dims;
  PackedHost layout;
  std::vector<T> x, gamma, beta, dy;
  std::vector<T> y, mean, rstd, dx, dgamma, dbeta;

  Batch(GroupNormDims d, const std::vector<int32_t>& widths)
      : dims(d), layout(build_packed(widths)) {
    const auto channels = static_cast<size_t>(d.channels);
    const size_t values = static_cast<size_t>(layout.extent.rows * d.height) * channels;
    const auto groups = widths.size() * static_cast<size_t>(d.groups);
    for (auto* v : {&y, &dx}) v->assign(values, static_cast<T>(NAN));
    for (auto* v : {&mean, &rstd}) v->assign(groups, static_cast<T>(NAN));
    for (auto* v : {&dgamma, &dbeta}) v->assign(channels, static_cast<T>(NAN));
  }

  int64_t cols() const { return dims.height * dims.channels; }
  template <class Args>
  void run_on(Backend backend, int threads, Args a) {
    Stream stream = cpu_device().make_stream();
    ThreadPool pool(threads);
    const Context context{backend, &cpu_device(), &stream, &pool};
    a.dims = dims;
    a.layout = layout.view();
    a.x = view(x, cols()), a.gamma = line(gamma), a.mean = line(mean), a.rstd = line(rstd);
    const size_t bytes = group_norm_workspace_bytes(context, dims, a.layout.capacity);
    const Buffer scratch(cpu_device(), bytes + 64, "a test's scratch memory");
    a.workspace = {scratch.data(), DType::u8, {static_cast<int64_t>(bytes)}};
    run(context, a);
  }
  void forward(Backend backend, int threads = 2) {
    GroupNormArgs a;
    a.beta = line(beta), a.y = view(y, cols());
    run_on(backend, threads, a);
  }
  void backward(Backend backend, int threads = 2) {
    GroupNormGradArgs a;
    a.dy = view(dy, cols()), a.dx = view(dx, cols());
    a.dgamma = line(dgamma), a.dbeta = line(dbeta);
    run_on(backend, threads, a);
  }
};

template <class T>
void require_close(const std::vector<T>& got, const std::vector<double>& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": " << got[i] << ", expected " << want[i]);
    REQUIRE(std::abs(static_cast<double>(got[i]) - want[i]) <= tolerance);
  }
}

template <class T>
void check_golden(const GroupNormGolden& g, Backend backend, double tolerance) {
  Batch<T> b({g.channels, g.height, g.groups}, g.widths);
  b.x = as<T>(g.x), b.gamma = as<T>(g.gamma), b.beta = as<T>(g.beta), b.dy = as<T>(g.dy);
  b.forward(backend);
  require_close(b.y, g.y, tolerance);
  b.backward(backend);
  require_close(b.dx, g.dx, tolerance);
  require_close(b.dgamma, g.dgamma, tolerance);
  require_close(b.dbeta, g.dbeta, tolerance);
}

Batch<float> random_batch(const std::vector<int32_t>& widths) {
  Batch<float> b({12, 5, 3}, widths);
  b.x = as<float>(uniform_values(static_cast<int64_t>(b.y.size()), 1, 0, 4));
  b.dy = as<float>(uniform_values(static_cast<int64_t>(b.y.size()), 2));
  b.gamma = as<float>(uniform_values(12, 3));
  b.beta = as<float>(uniform_values(12, 4));
  return b;
}

}  // namespace

TEST_CASE("group normalisation gives PyTorch's results") {
  for (const GroupNormGolden& g : group_norm_golden) {
    check_golden<double>(g, Backend::ref, 1e-11);
    check_golden<float>(g, Backend::cpu, 2e-5);
  }
}

TEST_CASE("gradients of group_norm") {
  Batch<double> b({6, 2, 3}, {4, 2, 2, 1});
  const auto values = static_cast<int64_t>(b.y.size());
  b.x = uniform_values(values, 1), b.dy = uniform_values(values, 2);
  b.gamma = uniform_values(6, 3), b.beta = uniform_values(6, 4);
  const auto loss = [&] {
    b.forward(Backend::ref);
    return dot(b.y, b.dy);
  };
  loss();
  b.backward(Backend::ref);
  const Batch<double> result = b;
  check_gradient(b.x, result.dx, loss);
  check_gradient(b.gamma, result.dgamma, loss);
  check_gradient(b.beta, result.dbeta, loss);
}

TEST_CASE("a sequence is normalised to the same bits alone and beside others") {
  Batch<float> all = random_batch({150, 70, 3});
  all.forward(Backend::cpu, 3);
  all.backward(Backend::cpu, 3);
  const auto cols = static_cast<size_t>(all.cols());
  // Sequence 1, out of the rows of all.
  Batch<float> one = random_batch({70});
  const auto rows_of = [&](const std::vector<float>& from) {
    std::vector<float> to;
    for (size_t t = 0; t < 70; ++t) {
      const auto row = static_cast<size_t>(all.layout.row_offsets[t]) + 1;
      to.insert(to.end(), from.begin() + static_cast<ptrdiff_t>(row * cols),
                from.begin() + static_cast<ptrdiff_t>((row + 1) * cols));
    }
    return to;
  };
  one.x = rows_of(all.x), one.dy = rows_of(all.dy);
  one.forward(Backend::cpu, 1);
  one.backward(Backend::cpu, 1);
  CHECK(one.y == rows_of(all.y));
  CHECK(one.dx == rows_of(all.dx));
}

TEST_CASE("a margin unlike the line does not take the digits of its variance") {
  Batch<double> want({12, 5, 3}, {150, 70, 3});
  want.x = uniform_values(static_cast<int64_t>(want.y.size()), 1);
  const auto frame = static_cast<size_t>(want.cols()) * 3;
  for (size_t i = 0; i < frame; ++i) want.x[i] += 1000;
  want.gamma.assign(12, 1), want.beta.assign(12, 0);
  Batch<float> got({12, 5, 3}, {150, 70, 3});
  got.x = as<float>(want.x), got.gamma = as<float>(want.gamma), got.beta = as<float>(want.beta);
  want.x.assign(got.x.begin(), got.x.end());
  want.forward(Backend::ref);
  got.forward(Backend::cpu);
  require_close(got.y, want.y, 5e-5);
}
