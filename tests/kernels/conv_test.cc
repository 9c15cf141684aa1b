// Convolutions: known values, gradients against finite differences, and parts of sequences.
#include "kernels/conv/conv.h"

#include <algorithm>
#include <utility>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"

#include "kernels/base/packed_host.h"
#include "kernels/conv/edge_frames.h"
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

Lengths convolved(const ConvDims& d, const Lengths& lengths, int32_t right) {
  Lengths result;
  for (int32_t length : lengths) result.push_back(conv_length(d, length, right));
  return result;
}

constexpr Backend backends[] = {Backend::ref, Backend::cpu};

}  // namespace

TEST_CASE("a convolution's frames: of both sides, of the past, of the future, with strides") {
  const PackedHost from = build_packed(Lengths{3, 2});
  Floats x = {1, 10, 2, 20, 3};  // frames 1 2 3 of one sequence, 10 20 of the other
  Floats w = {1, 100, 10000}, bias = {0.5f};
  for (Backend backend : backends) {
    const auto convolve = [&](const ConvDims& d, int32_t right) {
      const PackedHost to = build_packed(convolved(d, from.lengths, right));
      Floats y(static_cast<size_t>(to.extent.rows), NAN);
      ConvArgs a;
      a.dims = d;
      a.from = from.view(), a.to = to.view();
      a.x = array(x, {5, 1});
      a.w = array(w, {1, 3});
      a.bias = array(bias, {1});
      a.y = array(y, {to.extent.rows, 1});
      run_conv(backend, a, ConvPhase::forward, DType::f32);
      return y;
    };
    CHECK(convolve({1, 1, 3, 1, 1, 1}, 1) ==
          Floats{20100.5f, 201000.5f, 30201.5f, 2010.5f, 302.5f});
    CHECK(convolve({1, 1, 3, 1, 1, 2}, 0) ==
          Floats{10000.5f, 100000.5f, 20100.5f, 201000.5f, 30201.5f});
    CHECK(convolve({1, 1, 3, 1, 1, 0}, 2) == Floats{30201.5f, 2010.5f, 302.5f, 20.5f, 3.5f});
    CHECK(convolve({1, 1, 3, 2, 1, 1}, 1) == Floats{20100.5f, 201000.5f, 302.5f});
    CHECK(convolve({1, 1, 3, 1, 2, 2}, 2) == Floats{30100.5f, 1000.5f, 200.5f, 2000.5f, 301.5f});
    // Without padding the shorter sequence has no frame left.
    CHECK(convolve({1, 1, 3, 1, 1, 0}, 0) == Floats{30201.5f});
  }
}

TEST_CASE("lengths after a convolution") {
  CHECK(conv_length({1, 1, 3, 1, 1, 1}, 7, 1) == 7);
  CHECK(conv_length({1, 1, 3, 2, 1, 1}, 7, 1) == 4);
  CHECK(conv_length({1, 1, 4, 2, 1, 2}, 7, 1) == 4);
  CHECK(conv_length({1, 1, 3, 1, 1, 0}, 2, 0) == 0);
  CHECK(conv_length({1, 1, 3, 1, 1, 1}, 0, 1) == 0);
  CHECK(conv_length({1, 1, 3, 1, 4, 0}, 9, 0) == 1);
  CHECK(conv_length({1, 1, 1, 5, 1, 0}, 6, 0) == 2);
}

TEST_CASE("gradients of convolutions, with frames before and behind a part") {
  const Lengths lengths = {7, 4, 3, 1, 0};
  const ConvDims all[] = {{3, 2, 3, 1, 1, 1}, {2, 3, 4, 2, 1, 2}, {2, 2, 2, 3, 1, 0},
                          {3, 2, 3, 1, 2, 4}, {2, 2, 1, 1, 1, 0}, {2, 1, 3, 2, 2, 2}};
  for (const ConvDims& d : all) {
    const auto right = static_cast<int32_t>(d.span() - 1 - d.left);
    const PackedHost from = build_packed(lengths), to = build_packed(convolved(d, lengths, right));
    const int64_t rows = from.extent.rows, out = to.extent.rows, n = from.extent.sequences;
    const int64_t before = d.left, after = std::max<int64_t>(right, 1);
    Values x = uniform_values(rows * d.in, 1), left = uniform_values(before * n * d.in, 2);
    Values behind = uniform_values(after * n * d.in, 3), bias = uniform_values(d.out, 4);
    Values w = uniform_values(d.out * d.in * d.kernel, 5), y(static_cast<size_t>(out * d.out));
    Values dy = uniform_values(out * d.out, 6);
    ConvArgs a;
    a.dims = d;
    a.from = from.view(), a.to = to.view();
    a.x = array(x, {rows, d.in});
    if (before > 0) a.before = array(left, {before, n, d.in});
    a.after = array(behind, {after, n, d.in});
    a.w = array(w, {d.out, d.in * d.kernel});
    a.bias = array(bias, {d.out});
    a.y = array(y, {out, d.out});
    const auto loss = [&] {
      run_conv(Backend::ref, a, ConvPhase::forward, DType::f64);
      return dot(y, dy);
    };
    Values dx(x.size(), NAN), dleft(left.size(), NAN), dbehind(behind.size(), NAN);
    ConvGradInputArgs g;
    g.dims = d;
    g.from = a.from, g.to = a.to;
    g.dy = array(dy, {out, d.out});
    g.w = a.w;
    g.dx = array(dx, {rows, d.in});
    if (before > 0) g.dbefore = array(dleft, {before, n, d.in});
    g.dafter = array(dbehind, {after, n, d.in});
    run_conv(Backend::ref, g, ConvPhase::grad_input, DType::f64);
    check_gradient(x, dx, loss);
    check_gradient(left, dleft, loss);
    check_gradient(behind, dbehind, loss);
    Values dw(w.size(), 10);
    ConvGradWeightArgs h;
    h.dims = d;
    h.from = a.from, h.to = a.to;
    h.x = a.x, h.before = a.before, h.after = a.after;
    h.dy = g.dy;
    h.dw = array(dw, {d.out, d.in * d.kernel});
    h.accumulate = true;
    run_conv(Backend::ref, h, ConvPhase::grad_weight, DType::f64);
    for (double& v : dw) v -= 10;
    check_gradient(w, dw, loss);
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
  const ConvDims d{24, 17, 5, 1, 1, 2};
  const int64_t columns = d.in;
  Floats x(static_cast<size_t>(40 * columns)), w(static_cast<size_t>(d.out * d.in * d.kernel));
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
    a.w = array(w, {d.out, d.in * d.kernel});
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
