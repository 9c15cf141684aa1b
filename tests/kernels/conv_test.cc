// Convolutions: known values, PyTorch's results, gradients against finite differences, and parts of
// sequences.
#include "kernels/conv/conv.h"

#include <algorithm>
#include <utility>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"

#include "kernels/base/packed_host.h"
#include "kernels/conv/edge_frames.h"
#include "tests/kernels/conv2d_golden.h"
#include "tests/kernels/finite_difference.h"

using namespace rondo;
using namespace rondo::test;

namespace {

using Floats = std::vector<float>;
using Values = std::vector<double>;
using Lengths = std::vector<int32_t>;

template <class T>
TensorView array(std::vector<T>& v, std::initializer_list<int64_t> dims) {
  const TensorView view(v.data(), DTypeOf<T>::value, dims);
  REQUIRE(view.numel() == static_cast<int64_t>(v.size()));
  return view;
}

// Runs on the host, with as much scratch memory as the op says.
template <class Args>
void run_conv(Backend backend, Args a, ConvPhase phase, DType dtype) {
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(2);
  const Context context{backend, &cpu_device(), &stream, &pool};
  const size_t bytes =
      conv_workspace_bytes(context, phase, a.dims, dtype, a.from.capacity, a.to.capacity);
  const Buffer scratch(cpu_device(), bytes + 64, "a test's scratch memory");
  a.workspace = {scratch.data(), DType::u8, {static_cast<int64_t>(bytes)}};
  run(context, a);
}

Lengths convolved(const ConvAxis& time, const Lengths& lengths, int32_t behind) {
  Lengths result;
  for (int32_t length : lengths) result.push_back(conv_length(time, length, behind));
  return result;
}

// Of one row.
ConvDims over_time(int64_t in, int64_t out, const ConvAxis& time) {
  return {in, out, 1, 1, {}, time};
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
  const ConvAxis rows = conv_axis(g.rows[0], g.rows[1], g.rows[2]);
  const ConvAxis columns = conv_axis(g.columns[0], g.columns[1], g.columns[2]);
  const auto strided = [](int32_t size, int32_t stride) { return (size + stride - 1) / stride; };
  const ConvDims dims{g.channels, g.out,   g.height, strided(g.height, rows.stride),
                      rows,       columns, g.groups};
  std::vector<int32_t> widths;
  for (int32_t width : g.widths) widths.push_back(strided(width, columns.stride));
  const PackedHost from = build_packed(g.widths), to = build_packed(widths);
  auto x = as<T>(g.x), w = as<T>(g.w), bias = as<T>(g.bias), dy = as<T>(g.dy);
  std::vector<T> y(g.y.size(), NAN), dx(g.dx.size(), NAN), dw(g.dw.size(), NAN),
      dbias(g.dbias.size(), NAN);
  const int64_t in_cols = dims.in_cols(), out_cols = dims.out_cols();
  const int64_t terms = dims.weight_cols();

  ConvArgs forward;
  forward.dims = dims, forward.from = from.view(), forward.to = to.view();
  forward.x = view(x, in_cols), forward.w = view(w, terms), forward.bias = line(bias);
  forward.y = view(y, out_cols);
  run_conv(backend, forward, ConvPhase::forward, forward.x.dtype);
  require_close(y, g.y, tolerance);

  ConvGradInputArgs input;
  input.dims = dims, input.from = from.view(), input.to = to.view();
  input.dy = view(dy, out_cols), input.w = view(w, terms), input.dx = view(dx, in_cols);
  run_conv(backend, input, ConvPhase::grad_input, input.dy.dtype);
  require_close(dx, g.dx, tolerance);

  ConvGradWeightArgs weight;
  weight.dims = dims, weight.from = from.view(), weight.to = to.view();
  weight.x = view(x, in_cols), weight.dy = view(dy, out_cols);
  weight.dw = view(dw, terms), weight.dbias = line(dbias);
  run_conv(backend, weight, ConvPhase::grad_weight, weight.dy.dtype);
  require_close(dw, g.dw, tolerance);
  require_close(dbias, g.dbias, tolerance);
}

constexpr Backend backends[] = {Backend::ref, Backend::cpu};

}  // namespace

TEST_CASE("a convolution's frames: of both sides, of the past, of the future, with strides") {
  const PackedHost from = build_packed(Lengths{3, 2});
  Floats x = {1, 10, 2, 20, 3};  // frames 1 2 3 of one sequence, 10 20 of the other
  Floats w = {1, 100, 10000}, bias = {0.5f};
  for (Backend backend : backends) {
    const auto convolve = [&](const ConvAxis& time, int32_t behind) {
      const PackedHost to = build_packed(convolved(time, from.lengths, behind));
      Floats y(static_cast<size_t>(to.extent.rows), NAN);
      ConvArgs a;
      a.dims = over_time(1, 1, time);
      a.from = from.view(), a.to = to.view();
      a.x = array(x, {5, 1});
      a.w = array(w, {1, 3});
      a.bias = array(bias, {1});
      a.y = array(y, {to.extent.rows, 1});
      run_conv(backend, a, ConvPhase::forward, DType::f32);
      return y;
    };
    CHECK(convolve({3, 1, 1, 1}, 1) == Floats{20100.5f, 201000.5f, 30201.5f, 2010.5f, 302.5f});
    CHECK(convolve({3, 1, 1, 2}, 0) == Floats{10000.5f, 100000.5f, 20100.5f, 201000.5f, 30201.5f});
    CHECK(convolve({3, 1, 1, 0}, 2) == Floats{30201.5f, 2010.5f, 302.5f, 20.5f, 3.5f});
    CHECK(convolve({3, 2, 1, 1}, 1) == Floats{20100.5f, 201000.5f, 302.5f});
    CHECK(convolve({3, 1, 2, 2}, 2) == Floats{30100.5f, 1000.5f, 200.5f, 2000.5f, 301.5f});
    // Without padding the shorter sequence has no frame left.
    CHECK(convolve({3, 1, 1, 0}, 0) == Floats{30201.5f});
  }
}

TEST_CASE("lengths after a convolution") {
  CHECK(conv_length({3, 1, 1, 1}, 7, 1) == 7);
  CHECK(conv_length({3, 2, 1, 1}, 7, 1) == 4);
  CHECK(conv_length({4, 2, 1, 2}, 7, 1) == 4);
  CHECK(conv_length({3, 1, 1, 0}, 2, 0) == 0);
  CHECK(conv_length({3, 1, 1, 1}, 0, 1) == 0);
  CHECK(conv_length({3, 1, 4, 0}, 9, 0) == 1);
  CHECK(conv_length({1, 5, 1, 0}, 6, 0) == 2);
}

TEST_CASE("gradients of convolutions, with frames before and behind a part") {
  const Lengths lengths = {7, 4, 3, 1, 0};
  const ConvDims all[] = {over_time(3, 2, {3, 1, 1, 1}),
                          over_time(2, 3, {4, 2, 1, 2}),
                          over_time(2, 2, {2, 3, 1, 0}),
                          over_time(3, 2, {3, 1, 2, 4}),
                          over_time(2, 2, {1, 1, 1, 0}),
                          over_time(2, 1, {3, 2, 2, 2}),
                          {2, 4, 3, 2, {3, 2, 1, 1}, {3, 1, 1, 1}, 2}};
  for (const ConvDims& d : all) {
    const auto right = static_cast<int32_t>(d.time.span() - 1 - d.time.before);
    const PackedHost from = build_packed(lengths),
                     to = build_packed(convolved(d.time, lengths, right));
    const int64_t rows = from.extent.rows, out = to.extent.rows, n = from.extent.sequences;
    const int64_t before = d.time.before, after = std::max<int64_t>(right, 1);
    Values x = uniform_values(rows * d.in_cols(), 1),
           left = uniform_values(before * n * d.in_cols(), 2);
    Values behind = uniform_values(after * n * d.in_cols(), 3), bias = uniform_values(d.out, 4);
    Values w = uniform_values(d.out * d.weight_cols(), 5),
           y(static_cast<size_t>(out * d.out_cols()));
    Values dy = uniform_values(out * d.out_cols(), 6);
    ConvArgs a;
    a.dims = d;
    a.from = from.view(), a.to = to.view();
    a.x = array(x, {rows, d.in_cols()});
    if (before > 0) a.before = array(left, {before, n, d.in_cols()});
    a.after = array(behind, {after, n, d.in_cols()});
    a.w = array(w, {d.out, d.weight_cols()});
    a.bias = array(bias, {d.out});
    a.y = array(y, {out, d.out_cols()});
    const auto loss = [&] {
      run_conv(Backend::ref, a, ConvPhase::forward, DType::f64);
      return dot(y, dy);
    };
    Values dx(x.size(), NAN), dleft(left.size(), NAN), dbehind(behind.size(), NAN);
    ConvGradInputArgs g;
    g.dims = d;
    g.from = a.from, g.to = a.to;
    g.dy = array(dy, {out, d.out_cols()});
    g.w = a.w;
    g.dx = array(dx, {rows, d.in_cols()});
    if (before > 0) g.dbefore = array(dleft, {before, n, d.in_cols()});
    g.dafter = array(dbehind, {after, n, d.in_cols()});
    run_conv(Backend::ref, g, ConvPhase::grad_input, DType::f64);
    check_gradient(x, dx, loss);
    check_gradient(left, dleft, loss);
    check_gradient(behind, dbehind, loss);
    Values dw(w.size(), 10), dbias(bias.size(), 20);
    ConvGradWeightArgs h;
    h.dims = d;
    h.from = a.from, h.to = a.to;
    h.x = a.x, h.before = a.before, h.after = a.after;
    h.dy = g.dy;
    h.dw = array(dw, {d.out, d.weight_cols()});
    h.dbias = array(dbias, {d.out});
    h.accumulate = true;
    run_conv(Backend::ref, h, ConvPhase::grad_weight, DType::f64);
    for (double& v : dw) v -= 10;
    for (double& v : dbias) v -= 20;
    check_gradient(w, dw, loss);
    check_gradient(bias, dbias, loss);
  }
}

TEST_CASE("the edges of sequences: the last frames, of what came earlier too, and the first") {
  const PackedHost layout = build_packed(Lengths{3, 1, 0});
  for (Backend backend : backends) {
    Stream stream = cpu_device().make_stream();
    ThreadPool pool(1);
    const Context context{backend, &cpu_device(), &stream, &pool};
    Floats x = {1, 10, 2, 3}, before = {-2, -20, -200, -1, -10, -100}, tail(6), head(6);
    EdgeFramesArgs a;
    a.layout = layout.view();
    a.x = array(x, {4, 1});
    a.before = array(before, {2, 3, 1});
    a.tail = array(tail, {2, 3, 1});
    a.head = array(head, {2, 3, 1});
    run(context, a);
    CHECK(tail == Floats{2, -10, -200, 3, 10, -100});
    CHECK(head == Floats{1, 10, 0, 2, 0, 0});
    a.before = {};
    run(context, a);
    CHECK(tail == Floats{2, 0, 0, 3, 10, 0});

    Floats dtail = {1, 2, 3, 4, 5, 6}, dhead = {10, 20, 30, 40, 50, 60};
    Floats dx = {100, 200, 300, 400}, dbefore = {0, 0, 0, 0, 0, 0};
    EdgeFramesGradArgs g;
    g.layout = layout.view();
    g.dtail = array(dtail, {2, 3, 1});
    g.dhead = array(dhead, {2, 3, 1});
    g.dx = array(dx, {4, 1});
    g.dbefore = array(dbefore, {2, 3, 1});
    run(context, g);
    CHECK(dx == Floats{110, 225, 341, 404});
    CHECK(dbefore == Floats{0, 0, 3, 0, 2, 6});
  }
}

TEST_CASE(
    "a part of a sequence with its neighbours' frames gives the whole's frames, bit for bit") {
  const ConvDims d = over_time(24, 17, conv_axis(5, 1, 1));
  const int64_t columns = d.in;
  Floats x(static_cast<size_t>(40 * columns)), w(static_cast<size_t>(d.out * d.weight_cols()));
  const Values random = uniform_values(static_cast<int64_t>(x.size() + w.size()), 1);
  std::copy_n(random.begin(), x.size(), x.begin());
  std::copy(random.begin() + static_cast<ptrdiff_t>(x.size()), random.end(), w.begin());
  const auto convolve = [&](int32_t begin, int32_t end, bool halo) {
    const PackedHost layout = build_packed(Lengths{end - begin});
    Floats y(static_cast<size_t>((end - begin) * d.out));
    float* part = x.data() + begin * columns;
    ConvArgs a;
    a.dims = d;
    a.from = a.to = layout.view();
    a.x = {part, DType::f32, {end - begin, columns}};
    if (halo && begin > 0) a.before = {part - 2 * columns, DType::f32, {2, 1, columns}};
    if (halo && end < 40) a.after = {x.data() + end * columns, DType::f32, {2, 1, columns}};
    a.w = array(w, {d.out, d.weight_cols()});
    a.y = array(y, {end - begin, d.out});
    run_conv(Backend::cpu, a, ConvPhase::forward, DType::f32);
    return y;
  };
  const auto joined = [&](bool halo) {
    Floats y = convolve(0, 13, halo);
    for (auto [begin, end] : {std::pair{13, 15}, {15, 40}}) {
      const Floats part = convolve(begin, end, halo);
      y.insert(y.end(), part.begin(), part.end());
    }
    return y;
  };
  const Floats whole = convolve(0, 40, false);
  CHECK(joined(true) == whole);
  CHECK(joined(false) != whole);
}

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
  ConvArgs a;
  a.dims = {1, 1, 2, 2, conv_axis(3, 1, 1), conv_axis(3, 1, 1)};
  a.from = a.to = layout.view();
  a.x = view(x, 2), a.w = view(w, 9), a.y = view(y, 2);
  run_conv(Backend::ref, a, ConvPhase::forward, DType::f64);
  CHECK(y == Values{420310000, 420310, 642531000, 642531, 64053000, 64053});
  a.before = {before.data(), DType::f64, {1, 1, 2}};
  a.after = {after.data(), DType::f64, {1, 1, 2}};
  run_conv(Backend::ref, a, ConvPhase::forward, DType::f64);
  CHECK(y == Values{428317000, 428317, 642531000, 642531, 64953000, 64953});
}
