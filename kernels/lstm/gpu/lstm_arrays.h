// The arguments that the kernels of all GPU variants of the LSTM ops take: the arrays of the op and
// of its workspace, of compute dtype T, which lstm_run_typed() chooses. For *.cu files of
// kernels/lstm.
#pragma once

#include "kernels/lstm/gpu/lstm_gpu_device.h"
#include "kernels/lstm/lstm_gpu.h"

namespace rondo::RONDO_GPU {

template <class T>
struct LstmForwardArrays {
  LstmShape shape;
  const T* r[2];
  const T *h0, *pre;
  const float *c0, *b[2];
  T *y, *hn, *gates, *hidden, *h_cell;
  float *cn, *cells, *c;

  LstmForwardArrays(const LstmForwardArgs& a, const LstmGpuForwardSpace& space)
      : shape(a.dims, a.layout, a.run),
        r{a.weights[0].r.as<T>(), a.weights[1].r.as<T>()},
        h0(a.h0.as<T>()),
        pre(static_cast<const T*>(space.pre)),
        c0(a.c0.as<float>()),
        b{a.weights[0].b.as<float>(), a.weights[1].b.as<float>()},
        y(a.y.as<T>()),
        hn(a.hn.as<T>()),
        gates(a.gates.as<T>()),
        hidden(a.hidden.as<T>()),
        h_cell(static_cast<T*>(space.h_cell)),
        cn(a.cn.as<float>()),
        cells(a.cells.as<float>()),
        c(space.c) {}
};

// pre + b of one cell's gates. In f32 pre has b already. In bf16 b would be rounded with x W^T, or
// the product made in f32 first, as cuBLASLt has no f32 bias for bf16 results; so the loops add it.
template <class T>
class LstmCellBias {
 public:
  __device__ LstmCellBias(const LstmForwardArrays<T>& f, int64_t d, int64_t unit) {
    const int64_t H = f.shape.hidden;
    const float* b = unit < H ? f.b[d] : nullptr;
    RONDO_UNROLL_ALL
    for (int g = 0; g < 4; ++g) bias_[g] = b ? b[g * H + unit] : 0.0f;
  }
  __device__ float added_to(T pre, int gate) const { return to_float(pre) + bias_[gate]; }

 private:
  float bias_[4];
};
template <>
class LstmCellBias<float> {
 public:
  __device__ LstmCellBias(const LstmForwardArrays<float>&, int64_t, int64_t) {}
  __device__ float added_to(float pre, int) const { return pre; }
};

template <class T>
struct LstmBackwardArrays {
  LstmShape shape;
  const T* r[2];
  const float *c0, *cells, *dcn;
  const T *gates, *dy, *dhn;
  T *dgates, *dprojected, *dh0;
  float *dc0, *dc;
  // [D, N, H] unrounded, where the time loop is a part of a longer one: read instead of dhn, and
  // written at the end.
  float* dh = nullptr;

  LstmBackwardArrays(const LstmBackwardArgs& a, const LstmGpuBackwardSpace& space)
      : shape(a.dims, a.layout, a.run),
        r{a.weights[0].r.as<T>(), a.weights[1].r.as<T>()},
        c0(a.c0.as<float>()),
        cells(a.cells.as<float>()),
        dcn(a.dcn.as<float>()),
        gates(a.gates.as<T>()),
        dy(a.dy.as<T>()),
        dhn(a.dhn.as<T>()),
        dgates(a.dgates.as<T>()),
        dprojected(a.dims.projection ? a.dprojected.as<T>() : nullptr),
        dh0(a.dh0.as<T>()),
        dc0(a.dc0.as<float>()),
        dc(space.dc) {}
};

// Calls the one of a variant's two functions that is for the compute dtype, once the arguments are
// checked.
template <class Args>
void lstm_run_typed(const Context& context, const Args& a, void (*f32)(const Context&, const Args&),
                    void (*narrow)(const Context&, const Args&)) {
  check_lstm(a);
  (lstm_compute_dtype(a) == DType::f32 ? f32 : narrow)(context, a);
}

}  // namespace rondo::RONDO_GPU
