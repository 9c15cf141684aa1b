// Convolutions over images against PyTorch's results, and a few by hand.
#include "kernels/conv2d/conv2d.h"

#include "kernels/base/packed_host.h"
#include "tests/kernels/conv2d_golden.h"
#include "tests/kernels/finite_difference.h"

using namespace rondo;
using namespace rondo::test;

namespace {

using Values = std::vector<double>;

// Runs on the host, with as much scratch memory as the op says.
template <class Args>
void run_conv2d(Backend backend, Args a, Conv2dPhase phase) {
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(2);
  const Context context{backend, &cpu_device(), &stream, &pool};
  const size_t bytes = conv2d_workspace_bytes(context, phase, a.dims);
  const Buffer scratch(cpu_device(), bytes + 64, "a test's scratch memory");
  a.workspace = {scratch.data(), DType::u8, {static_cast<int64_t>(bytes)}};
  run(context, a);
}

template <class T>
void require_close(const std::vector<T>& got, const Values& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": " << got[i] << ", expected " << want[i]);
    REQUIRE(std::abs(static_cast<double>(got[i]) - want[i]) <= tolerance);
  }
}

template <class T>
void check_golden(const Conv2dGolden& g, Backend backend, double tolerance) {
  const Conv2dAxis rows = conv2d_same(g.rows[0], g.rows[1], g.rows[2]);
  const Conv2dAxis columns = conv2d_same(g.columns[0], g.columns[1], g.columns[2]);
  const auto strided = [](int32_t size, int32_t stride) { return (size + stride - 1) / stride; };
  const Conv2dDims dims{g.channels, g.out,   g.height, strided(g.height, rows.stride),
                        rows,       columns, g.groups};
  std::vector<int32_t> widths;
  for (int32_t width : g.widths) widths.push_back(strided(width, columns.stride));
  const PackedHost from = build_packed(g.widths), to = build_packed(widths);
  auto x = as<T>(g.x), w = as<T>(g.w), bias = as<T>(g.bias), dy = as<T>(g.dy);
  std::vector<T> y(g.y.size(), NAN), dx(g.dx.size(), NAN), dw(g.dw.size(), NAN),
      dbias(g.dbias.size(), NAN);
  const int64_t in_cols = dims.in * dims.in_height, out_cols = dims.out * dims.out_height;
  const int64_t terms = dims.weight_cols();

  Conv2dArgs forward;
  forward.dims = dims, forward.from = from.view(), forward.to = to.view();
  forward.x = view(x, in_cols), forward.w = view(w, terms), forward.bias = line(bias);
  forward.y = view(y, out_cols);
  run_conv2d(backend, forward, Conv2dPhase::forward);
  require_close(y, g.y, tolerance);

  Conv2dGradInputArgs input;
  input.dims = dims, input.from = from.view(), input.to = to.view();
  input.dy = view(dy, out_cols), input.w = view(w, terms), input.dx = view(dx, in_cols);
  run_conv2d(backend, input, Conv2dPhase::grad_input);
  require_close(dx, g.dx, tolerance);

  Conv2dGradWeightArgs weight;
  weight.dims = dims, weight.from = from.view(), weight.to = to.view();
  weight.x = view(x, in_cols), weight.dy = view(dy, out_cols);
  weight.dw = view(dw, terms), weight.dbias = line(dbias);
  run_conv2d(backend, weight, Conv2dPhase::grad_weight);
  require_close(dw, g.dw, tolerance);
  require_close(dbias, g.dbias, tolerance);
}

}  // namespace

TEST_CASE("convolutions over images give PyTorch's results") {
  for (const Conv2dGolden& g : conv2d_golden) {
    check_golden<double>(g, Backend::ref, 1e-11);
    check_golden<float>(g, Backend::cpu, 2e-5);
  }
}

// The same with other digits for every place in the kernel, so that the sum shows what was added.
TEST_CASE("a convolution's pixels are those beside, above and below, and those of other parts") {
  // Three columns of two pixels: 1 2, 3 4, 5 6; before them 7 8, behind them 9 0.
  Values x = {1, 2, 3, 4, 5, 6}, before = {7, 8}, after = {9, 0}, y(6, NAN);
  // From top to bottom, and in each row from left to right.
  Values w = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};
  const PackedHost layout = build_packed(std::vector<int32_t>{3});
  Conv2dArgs a;
  a.dims = {1, 1, 2, 2, conv2d_same(3, 1, 1), conv2d_same(3, 1, 1)};
  a.from = a.to = layout.view();
  a.x = view(x, 2), a.w = view(w, 9), a.y = view(y, 2);
  run_conv2d(Backend::ref, a, Conv2dPhase::forward);
  CHECK(y == Values{420310000, 420310, 642531000, 642531, 64053000, 64053});
  a.before = {before.data(), DType::f64, {1, 1, 2}};
  a.after = {after.data(), DType::f64, {1, 1, 2}};
  run_conv2d(Backend::ref, a, Conv2dPhase::forward);
  CHECK(y == Values{428317000, 428317, 642531000, 642531, 64953000, 64953});
}
