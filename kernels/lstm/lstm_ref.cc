#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/lstm/lstm_impl.h"

namespace rondo {
namespace {

template <class T>
double get(const T* p, int64_t i) {
  return static_cast<double>(p[i]);
}

template <class T>
std::vector<double> read_state(const TensorView& v, int d, int64_t sequences, int64_t stride,
                               int64_t width) {
  std::vector<double> out(static_cast<size_t>(sequences * width), 0.0);
  if (!v) return out;
  const T* p = v.as<T>() + d * stride * width;
  for (int64_t i = 0; i < sequences * width; ++i) out[static_cast<size_t>(i)] = get(p, i);
  return out;
}

template <class T>
void write_state(const TensorView& v, int d, int64_t stride, int64_t width,
                 const std::vector<double>& values) {
  if (!v) return;
  T* p = v.as<T>() + d * stride * width;
  for (size_t i = 0; i < values.size(); ++i) p[i] = static_cast<T>(values[i]);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
std::vector<double> doubles(const TensorView& v) {
  std::vector<double> out(static_cast<size_t>(v.numel()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(v.as<T>()[i]);
  return out;
}

// Rounded to the type it is stored in.
template <class T>
double as_stored(double x) {
  return static_cast<double>(static_cast<T>(x));
}

template <class T, class S>
struct Forward {
  const LstmForwardArgs& a;
  const int d;
  const int64_t I = a.dims.input, H = a.dims.hidden, P = a.dims.output();
  const int64_t D = a.dims.directions, N = a.layout.capacity.sequences;
  const int64_t capacity_rows = a.layout.capacity.rows;
  const std::vector<double> w = doubles<T>(a.weights[d].w), r = doubles<T>(a.weights[d].r);
  const std::vector<double> p =
      a.dims.projection ? doubles<T>(a.weights[d].p) : std::vector<double>{};
  std::vector<double> h = {}, c = {};

  // One row: sequence n at packed row `row`.
  void cell(int64_t n, int64_t row, std::vector<double>& x, std::vector<double>& h_cell) {
    for (int64_t i = 0; i < I; ++i) x[static_cast<size_t>(i)] = get(a.x.as<T>(), row * I + i);
    const S* b = a.weights[d].b.template as<S>();
    for (int64_t u = 0; u < H; ++u) {
      double z[4];
      for (int64_t g = 0; g < 4; ++g) {
        const int64_t j = g * H + u;
        z[g] = (b ? get(b, j) : 0) + dot(x.data(), w.data() + j * I, I) +
               dot(h.data() + n * P, r.data() + j * P, P);
      }
      const double i = sigmoid(z[0]), f = sigmoid(z[1]), g = std::tanh(z[2]), o = sigmoid(z[3]);
      double& cn = c[static_cast<size_t>(n * H + u)];
      cn = as_stored<S>(f * cn + i * g);
      h_cell[static_cast<size_t>(u)] = as_stored<T>(o * std::tanh(cn));
      const int64_t at = d * capacity_rows + row;
      if (a.gates) {
        const double gates[4] = {i, f, g, o};
        for (int64_t k = 0; k < 4; ++k) {
          a.gates.as<T>()[at * 4 * H + k * H + u] = static_cast<T>(gates[k]);
        }
      }
      if (a.cells) a.cells.as<S>()[at * H + u] = static_cast<S>(cn);
      if (a.hidden) a.hidden.as<T>()[at * H + u] = static_cast<T>(h_cell[static_cast<size_t>(u)]);
    }
    for (int64_t k = 0; k < P; ++k) {
      const double v = a.dims.projection ? dot(h_cell.data(), p.data() + k * H, H)
                                         : h_cell[static_cast<size_t>(k)];
      h[static_cast<size_t>(n * P + k)] = as_stored<T>(v);
      a.y.as<T>()[row * D * P + d * P + k] = static_cast<T>(v);
    }
  }

  void run() {
    const PackedView& l = a.layout;
    const int64_t sequences = l.extent->sequences, frames = l.extent->frames;
    h = read_state<T>(a.h0, d, sequences, N, P);
    c = read_state<S>(a.c0, d, sequences, N, H);
    std::vector<double> x(static_cast<size_t>(I)), h_cell(static_cast<size_t>(H));
    for (int64_t step = 0; step < frames; ++step) {
      const int64_t t = lstm_frame(d, step, frames);
      for (int64_t n = 0; n < l.batch_sizes[t]; ++n) cell(n, l.row_offsets[t] + n, x, h_cell);
    }
    write_state<T>(a.hn, d, N, P, h);
    write_state<S>(a.cn, d, N, H, c);
  }
};

template <class T, class S>
struct Backward {
  const LstmBackwardArgs& a;
  const int d;
  const int64_t H = a.dims.hidden, P = a.dims.output(), D = a.dims.directions;
  const int64_t N = a.layout.capacity.sequences, capacity_rows = a.layout.capacity.rows;
  const std::vector<double> r = doubles<T>(a.weights[d].r);
  const std::vector<double> p =
      a.dims.projection ? doubles<T>(a.weights[d].p) : std::vector<double>{};
  const std::vector<double> c0 = read_state<S>(a.c0, d, a.layout.extent->sequences, N, H);
  std::vector<double> dh = {}, dc = {};

  // c_{t-1} of sequence n, u-th cell, at frame t.
  double previous_cell(int64_t n, int64_t t, int64_t u) const {
    const int64_t before = d == 0 ? t - 1 : t + 1;
    if (before < 0 || before >= a.layout.lengths[n]) return c0[static_cast<size_t>(n * H + u)];
    const int64_t row = a.layout.row_offsets[before] + n;
    return get(a.cells.as<S>(), (d * capacity_rows + row) * H + u);
  }

  void cell(int64_t n, int64_t t, std::vector<double>& dh_cell, std::vector<double>& dgates) {
    const int64_t row = a.layout.row_offsets[t] + n, at = d * capacity_rows + row;
    double* dh_n = dh.data() + n * P;
    for (int64_t k = 0; k < P; ++k) {
      dh_n[k] += get(a.dy.as<T>(), row * D * P + d * P + k);
      if (a.dims.projection) {
        dh_n[k] = as_stored<T>(dh_n[k]);
        a.dprojected.as<T>()[at * P + k] = static_cast<T>(dh_n[k]);
      }
    }
    for (int64_t u = 0; u < H; ++u) {
      double v = a.dims.projection ? 0 : dh_n[u];
      if (a.dims.projection) {
        for (int64_t k = 0; k < P; ++k) v += dh_n[k] * p[static_cast<size_t>(k * H + u)];
      }
      dh_cell[static_cast<size_t>(u)] = v;
    }
    for (int64_t u = 0; u < H; ++u) {
      const T* gates = a.gates.as<T>() + at * 4 * H;
      const double i = get(gates, u), f = get(gates, H + u), g = get(gates, 2 * H + u),
                   o = get(gates, 3 * H + u);
      const double tanh_c = std::tanh(get(a.cells.as<S>(), at * H + u));
      double& dc_n = dc[static_cast<size_t>(n * H + u)];
      const double dh_u = dh_cell[static_cast<size_t>(u)];
      dc_n += dh_u * o * (1 - tanh_c * tanh_c);
      const double dz[4] = {dc_n * g * i * (1 - i), dc_n * previous_cell(n, t, u) * f * (1 - f),
                            dc_n * i * (1 - g * g), dh_u * tanh_c * o * (1 - o)};
      dc_n *= f;
      for (int64_t k = 0; k < 4; ++k) {
        dgates[static_cast<size_t>(k * H + u)] = as_stored<T>(dz[k]);
        a.dgates.as<T>()[at * 4 * H + k * H + u] = static_cast<T>(dz[k]);
      }
    }
    for (int64_t k = 0; k < P; ++k) {
      dh_n[k] = 0;
      for (int64_t j = 0; j < 4 * H; ++j) {
        dh_n[k] += dgates[static_cast<size_t>(j)] * r[static_cast<size_t>(j * P + k)];
      }
    }
  }

  void run() {
    const PackedView& l = a.layout;
    const int64_t sequences = l.extent->sequences, frames = l.extent->frames;
    dh = read_state<T>(a.dhn, d, sequences, N, P);
    dc = read_state<S>(a.dcn, d, sequences, N, H);
    std::vector<double> dh_cell(static_cast<size_t>(H)), dgates(static_cast<size_t>(4 * H));
    for (int64_t step = frames - 1; step >= 0; --step) {
      const int64_t t = lstm_frame(d, step, frames);
      for (int64_t n = 0; n < l.batch_sizes[t]; ++n) cell(n, t, dh_cell, dgates);
    }
    write_state<T>(a.dh0, d, N, P, dh);
    write_state<S>(a.dc0, d, N, H, dc);
  }
};

template <class T>
void input_gradient(const LstmBackwardArgs& a) {
  const int64_t I = a.dims.input, G = 4 * a.dims.hidden;
  std::vector<double> dx(static_cast<size_t>(I));
  for (int64_t row = 0; row < a.layout.extent->rows; ++row) {
    std::fill(dx.begin(), dx.end(), 0.0);
    for (int d = 0; d < a.dims.directions; ++d) {
      const T* dgates = a.dgates.as<T>() + (d * a.layout.capacity.rows + row) * G;
      const T* w = a.weights[d].w.template as<T>();
      for (int64_t j = 0; j < G; ++j) {
        const double dz = get(dgates, j);
        for (int64_t i = 0; i < I; ++i) dx[static_cast<size_t>(i)] += dz * get(w, j * I + i);
      }
    }
    for (int64_t i = 0; i < I; ++i) {
      a.dx.as<T>()[row * I + i] = static_cast<T>(dx[static_cast<size_t>(i)]);
    }
  }
}

// out[j, k] (+)= sum over rows of left(row, j) * right(row, k).
template <class S, class Left, class Right>
void outer_sum(const TensorView& out, int64_t rows, bool accumulate, Left left, Right right) {
  if (!out) return;
  const int64_t width = out.rank == 2 ? out.dim(1) : 1;
  for (int64_t j = 0; j < out.dim(0); ++j) {
    std::vector<double> sums(static_cast<size_t>(width), 0.0);
    for (int64_t row = 0; row < rows; ++row) {
      const double l = left(row, j);
      for (int64_t k = 0; k < width; ++k) sums[static_cast<size_t>(k)] += l * right(row, k);
    }
    for (int64_t k = 0; k < width; ++k) {
      S& v = out.as<S>()[j * width + k];
      v = static_cast<S>((accumulate ? static_cast<double>(v) : 0.0) +
                         sums[static_cast<size_t>(k)]);
    }
  }
}

template <class T, class S>
void weight_gradient(const LstmWeightGradArgs& a, int d) {
  const int64_t I = a.dims.input, H = a.dims.hidden, P = a.dims.output(), D = a.dims.directions;
  const PackedView& l = a.layout;
  const int64_t rows = l.extent->rows, plane = d * l.capacity.rows;
  const auto dgates = [&](int64_t row, int64_t j) {
    return get(a.dgates.as<T>(), (plane + row) * 4 * H + j);
  };
  const auto x = [&](int64_t row, int64_t i) { return get(a.x.as<T>(), row * I + i); };
  const auto h_before = [&](int64_t row, int64_t k) {
    const int64_t t = l.row_frame[row], n = row - l.row_offsets[t];
    const int64_t before = d == 0 ? t - 1 : t + 1;
    if (before >= 0 && before < l.lengths[n]) {
      return get(a.y.as<T>(), (l.row_offsets[before] + n) * D * P + d * P + k);
    }
    return a.h0 ? get(a.h0.as<T>(), (d * l.capacity.sequences + n) * P + k) : 0.0;
  };
  const LstmWeights& g = a.grads[d];
  outer_sum<S>(g.w, rows, a.accumulate, dgates, x);
  outer_sum<S>(g.r, rows, a.accumulate, dgates, h_before);
  outer_sum<S>(g.b, rows, a.accumulate, dgates, [](int64_t, int64_t) { return 1.0; });
  if (a.dims.projection) {
    outer_sum<S>(
        g.p, rows, a.accumulate,
        [&](int64_t row, int64_t k) { return get(a.dprojected.as<T>(), (plane + row) * P + k); },
        [&](int64_t row, int64_t u) { return get(a.hidden.as<T>(), (plane + row) * H + u); });
  }
}

// Calls f(T{}, S{}) with the compute and state types.
template <class F>
void visit_types(DType compute, F f) {
  switch (compute) {
    case DType::f32:
      return f(float{}, float{});
    case DType::bf16:
      return f(bf16{}, float{});
    case DType::f64:
      return f(double{}, double{});
    default:
      RONDO_CHECK(false, "lstm in ", name_of(compute));
  }
}

}  // namespace

void lstm_forward_ref(const Context&, const LstmForwardArgs& a) {
  check_lstm(a);
  if (a.dims.int8) return lstm_int8_ref(a);
  visit_types(a.x.dtype, [&]<class T, class S>(T, S) {
    for (int d = lstm_first_direction(a.run); d < lstm_end_direction(a.dims, a.run); ++d) {
      Forward<T, S>{a, d}.run();
    }
  });
}

void lstm_backward_ref(const Context&, const LstmBackwardArgs& a) {
  check_lstm(a);
  visit_types(a.dy.dtype, [&]<class T, class S>(T, S) {
    for (int d = lstm_first_direction(a.run); d < lstm_end_direction(a.dims, a.run); ++d) {
      Backward<T, S>{a, d}.run();
    }
    if (a.dx) input_gradient<T>(a);
  });
}

void lstm_weight_grad_ref(const Context&, const LstmWeightGradArgs& a) {
  check_lstm(a);
  visit_types(a.x.dtype, [&]<class T, class S>(T, S) {
    for (int d = 0; d < a.dims.directions; ++d) weight_gradient<T, S>(a, d);
  });
}

}  // namespace rondo
