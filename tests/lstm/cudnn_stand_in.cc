#include "tests/lstm/cudnn_stand_in.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/packed_host.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::test {
namespace {

struct Rnn {
  cudnnRNNAlgo_t algorithm;
  cudnnDataType_t type;
  LstmDims dims;
  bool padded;
  int built_for = -1;
};
struct Data {
  cudnnDataType_t type;
  bool padded;
  int frames, columns;
  std::vector<int32_t> lengths;
};
struct Tensor {
  cudnnDataType_t type = {};
  std::vector<int> dims;
};
struct Handle {
  detail::StreamImpl* stream = nullptr;
};

template <class Fake, class Pointer>
Fake& fake(Pointer p) {
  return *reinterpret_cast<Fake*>(p);
}
template <class Fake, class Pointer>
cudnnStatus_t create(Pointer* p) {
  *p = reinterpret_cast<Pointer>(new Fake);
  ++stand_in_counts().descriptors;
  return CUDNN_STATUS_SUCCESS;
}
template <class Fake, class Pointer>
cudnnStatus_t destroy(Pointer p) {
  delete reinterpret_cast<Fake*>(p);
  --stand_in_counts().descriptors;
  return CUDNN_STATUS_SUCCESS;
}

DType dtype_of(cudnnDataType_t t) { return t == CUDNN_DATA_FLOAT ? DType::f32 : DType::bf16; }

// Where a linear layer's matrix and bias lie: in an order of this library's own, with gaps.
struct Place {
  int direction, layer;
  int64_t rows, cols;
  size_t matrix = 0, bias = 0;
  bool has_bias = false;
};
std::vector<Place> places(const Rnn& rnn, size_t* bytes) {
  const int64_t H = rnn.dims.hidden, P = rnn.dims.output();
  const size_t element = size_of(dtype_of(rnn.type));
  std::vector<Place> all;
  size_t at = 64;
  const auto take = [&](int64_t n) {
    const size_t here = at;
    at += (static_cast<size_t>(n) * element + 63) / 64 * 64 + 64;
    return here;
  };
  for (int d = rnn.dims.directions - 1; d >= 0; --d) {
    for (int layer : {6, 0, 8, 3, 4, 1, 7, 2, 5}) {
      if (layer == 8 && rnn.dims.projection == 0) continue;
      Place p = {d, layer, layer == 8 ? P : H, layer == 8 ? H : layer < 4 ? rnn.dims.input : P};
      p.has_bias = layer < 4;
      if (p.has_bias) p.bias = take(H);
      p.matrix = take(p.rows * p.cols);
      all.push_back(p);
    }
  }
  if (bytes) *bytes = at;
  return all;
}

float get(const void* memory, DType t, int64_t i) {
  return t == DType::f32 ? static_cast<const float*>(memory)[i]
                         : static_cast<float>(static_cast<const bf16*>(memory)[i]);
}
void put(void* memory, DType t, int64_t i, float x) {
  if (t == DType::f32) {
    static_cast<float*>(memory)[i] = x;
  } else {
    static_cast<bf16*>(memory)[i] = bf16(x);
  }
}

// Memory of one type with a view.
struct Array {
  std::vector<std::byte> bytes;
  TensorView view;
  void make(DType dtype, std::initializer_list<int64_t> dims) {
    const TensorView shape(nullptr, dtype, dims);
    bytes.assign(shape.bytes(), std::byte{0});
    view = TensorView(bytes.data(), dtype, dims);
  }
};

struct Weights {
  Array w[2], r[2], b[2], p[2];
  void make(const LstmDims& dims, DType matrices) {
    for (int d = 0; d < dims.directions; ++d) {
      w[d].make(matrices, {4 * dims.hidden, dims.input});
      r[d].make(matrices, {4 * dims.hidden, dims.output()});
      b[d].make(DType::f32, {4 * dims.hidden});
      if (dims.projection) p[d].make(matrices, {dims.projection, dims.hidden});
    }
  }
  LstmWeights of(int d) const { return {w[d].view, r[d].view, b[d].view, p[d].view}; }
  TensorView matrix(const Place& p_) const {
    const int d = p_.direction;
    const TensorView& all = p_.layer == 8 ? p[d].view : p_.layer < 4 ? w[d].view : r[d].view;
    const int64_t first = p_.layer == 8 ? 0 : p_.layer % 4 * p_.rows * p_.cols;
    auto* from = static_cast<std::byte*>(all.data);
    return {from + static_cast<size_t>(first) * size_of(all.dtype), all.dtype, {p_.rows * p_.cols}};
  }
};

// Between a space in the library's layout and matrices in ours; added to what is there going out.
void read_weights(const Rnn& rnn, const void* space, Weights& weights) {
  const DType t = dtype_of(rnn.type);
  for (const Place& p : places(rnn, nullptr)) {
    const auto* from = static_cast<const std::byte*>(space);
    const TensorView to = weights.matrix(p);
    for (int64_t i = 0; i < p.rows * p.cols; ++i) put(to.data, t, i, get(from + p.matrix, t, i));
    for (int64_t i = 0; p.has_bias && i < p.rows; ++i) {
      weights.b[p.direction].view.as<float>()[p.layer * p.rows + i] = get(from + p.bias, t, i);
    }
  }
}
void add_gradients(const Rnn& rnn, const Weights& gradients, void* space) {
  const DType t = dtype_of(rnn.type);
  for (const Place& p : places(rnn, nullptr)) {
    auto* to = static_cast<std::byte*>(space);
    const auto* from = gradients.matrix(p).as<float>();
    for (int64_t i = 0; i < p.rows * p.cols; ++i) {
      put(to + p.matrix, t, i, get(to + p.matrix, t, i) + from[i]);
    }
    for (int64_t i = 0; p.has_bias && i < p.rows; ++i) {
      put(to + p.bias, t, i,
          get(to + p.bias, t, i) + gradients.b[p.direction].view.as<float>()[p.layer * p.rows + i]);
    }
  }
}

// Rows of sequences, between the descriptor's layout and packed ones.
void move_rows(const Data& data, const PackedHost& packed, void* theirs, Array& ours, bool in) {
  const auto row = static_cast<size_t>(data.columns) * size_of(dtype_of(data.type));
  const auto sequences = static_cast<int32_t>(data.lengths.size());
  for (int32_t n = 0; n < sequences; ++n) {
    for (int32_t t = 0; t < data.frames; ++t) {
      auto* their_row = static_cast<std::byte*>(theirs) +
                        row * static_cast<size_t>(data.padded ? t * sequences + n : 0);
      if (t >= data.lengths[static_cast<size_t>(n)]) {
        if (data.padded && !in) std::memset(their_row, 0, row);
        continue;
      }
      const auto at = static_cast<size_t>(packed.row(t, n)) * row;
      if (!data.padded) their_row += at;
      std::memcpy(in ? ours.bytes.data() + at : their_row, in ? their_row : ours.bytes.data() + at,
                  row);
    }
  }
}

// What a forward pass leaves in the reserve.
struct Saved {
  PackedHost packed;
  Weights weights;
  Array x, y, gates, cells, hidden, dgates, dprojected;
};
std::map<void*, std::shared_ptr<Saved>>& reserves() {
  static std::map<void*, std::shared_ptr<Saved>> all;
  return all;
}

Context host() {
  static Stream stream = cpu_device().make_stream();
  static ThreadPool pool(1);
  return {Backend::ref, &cpu_device(), &stream, &pool};
}

struct States {
  const void *h0, *c0;
};
TensorView state(const void* p, const Rnn& rnn, const PackedHost& packed, int64_t columns,
                 DType t) {
  if (!p) return {};
  return {const_cast<void*>(p), t, {rnn.dims.directions, packed.extent.sequences, columns}};
}

std::shared_ptr<Saved> prepare(const Rnn& rnn, const Data& x_data, const void* x,
                               const void* weights) {
  auto s = std::make_shared<Saved>();
  const DType t = dtype_of(rnn.type);
  const int64_t D = rnn.dims.directions, H = rnn.dims.hidden;
  s->packed = build_packed(x_data.lengths);
  const int64_t rows = s->packed.extent.rows;
  s->weights.make(rnn.dims, t);
  read_weights(rnn, weights, s->weights);
  s->x.make(t, {rows, rnn.dims.input});
  s->y.make(t, {rows, D * rnn.dims.output()});
  s->gates.make(t, {D, rows, 4 * H});
  s->dgates.make(t, {D, rows, 4 * H});
  s->cells.make(DType::f32, {D, rows, H});
  if (rnn.dims.projection) {
    s->hidden.make(t, {D, rows, H});
    s->dprojected.make(t, {D, rows, rnn.dims.output()});
  }
  move_rows(x_data, s->packed, const_cast<void*>(x), s->x, true);
  return s;
}

bool same_batch(const Rnn& rnn, const Data& x, const Data& y, const Tensor& h, const Tensor& c,
                const int32_t* lengths) {
  const int n = static_cast<int>(x.lengths.size()), D = rnn.dims.directions;
  const auto cols = [](int64_t k) { return static_cast<int>(k); };
  return x.type == rnn.type && y.type == rnn.type && h.type == rnn.type && c.type == rnn.type &&
         x.padded == rnn.padded && y.padded == rnn.padded && x.lengths == y.lengths &&
         x.frames == x.lengths.front() && y.frames == x.frames && x.columns == rnn.dims.input &&
         y.columns == D * rnn.dims.output() &&
         h.dims == std::vector<int>{D, n, cols(rnn.dims.output())} &&
         c.dims == std::vector<int>{D, n, cols(rnn.dims.hidden)} &&
         std::equal(x.lengths.begin(), x.lengths.end(), lengths) &&
         (rnn.algorithm != CUDNN_RNN_ALGO_PERSIST_DYNAMIC || rnn.built_for == n);
}

cudnnStatus_t set_rnn(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t mode,
                      cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction,
                      cudnnRNNInputMode_t input, cudnnDataType_t type, cudnnDataType_t precision,
                      cudnnMathType_t math, int32_t inputs, int32_t hidden, int32_t projection,
                      int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  const bool good = mode == CUDNN_LSTM && bias == CUDNN_RNN_SINGLE_INP_BIAS &&
                    input == CUDNN_LINEAR_INPUT && precision == CUDNN_DATA_FLOAT && layers == 1 &&
                    dropout;
  if (!good) return CUDNN_STATUS_BAD_PARAM;
  StandInCounts& c = stand_in_counts();
  c.algorithm = algorithm, c.math = math, c.type = type;
  fake<Rnn>(rnn) = {algorithm,
                    type,
                    {direction == CUDNN_BIDIRECTIONAL ? 2 : 1, inputs, hidden,
                     projection == hidden ? 0 : projection},
                    (flags & CUDNN_RNN_PADDED_IO_ENABLED) != 0};
  return c.status_of_set;
}

cudnnStatus_t set_rnn_data(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
                           cudnnRNNDataLayout_t layout, int frames, int sequences, int columns,
                           const int* lengths, void* fill) {
  const bool padded = layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  if ((!padded && layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) || !fill) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  const std::vector<int32_t> all(lengths, lengths + sequences);
  const bool good = !all.empty() && std::is_sorted(all.rbegin(), all.rend()) && all.back() > 0;
  if (!good) return CUDNN_STATUS_BAD_PARAM;
  fake<Data>(data) = {type, padded, frames, columns, all};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t weight_params(cudnnHandle_t, cudnnRNNDescriptor_t rnn, int32_t direction,
                            size_t bytes, const void* space, int32_t layer,
                            cudnnTensorDescriptor_t matrix, void** matrix_at,
                            cudnnTensorDescriptor_t bias, void** bias_at) {
  size_t needed = 0;
  const Rnn& r = fake<Rnn>(rnn);
  for (const Place& p : places(r, &needed)) {
    if (p.direction != direction || p.layer != layer) continue;
    auto* base = static_cast<std::byte*>(const_cast<void*>(space));
    fake<Tensor>(matrix) = {r.type, {1, static_cast<int>(p.rows), static_cast<int>(p.cols)}};
    *matrix_at = base + p.matrix;
    fake<Tensor>(bias) = {r.type, {}};
    *bias_at = nullptr;
    if (p.has_bias) {
      fake<Tensor>(bias).dims = {1, static_cast<int>(p.rows), 1};
      *bias_at = base + p.bias;
    }
    return bytes == needed ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t forward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn_, cudnnForwardMode_t mode,
                      const int32_t* lengths, cudnnRNNDataDescriptor_t xd, const void* x,
                      cudnnRNNDataDescriptor_t yd, void* y, cudnnTensorDescriptor_t hd,
                      const void* hx, void* hy, cudnnTensorDescriptor_t cd, const void* cx,
                      void* cy, size_t, const void* weights, size_t, void*, size_t reserve_bytes,
                      void* reserve) {
  StandInCounts& counts = stand_in_counts();
  const Rnn rnn = fake<Rnn>(rnn_);
  const Data x_data = fake<Data>(xd), y_data = fake<Data>(yd);
  const bool training = mode == CUDNN_FWD_MODE_TRAINING;
  if (!same_batch(rnn, x_data, y_data, fake<Tensor>(hd), fake<Tensor>(cd), lengths) ||
      training != (reserve_bytes > 0)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (counts.status_of_forward != CUDNN_STATUS_SUCCESS) return counts.status_of_forward;
  ++counts.forwards;
  fake<Handle>(handle).stream->enqueue([=] {
    const auto s = prepare(rnn, x_data, x, weights);
    const DType t = dtype_of(rnn.type);
    LstmForwardArgs a;
    a.dims = rnn.dims;
    a.layout = s->packed.view();
    a.x = s->x.view, a.y = s->y.view;
    for (int d = 0; d < rnn.dims.directions; ++d) a.weights[d] = s->weights.of(d);
    a.gates = s->gates.view, a.cells = s->cells.view, a.hidden = s->hidden.view;
    a.h0 = state(hx, rnn, s->packed, rnn.dims.output(), t);
    a.hn = state(hy, rnn, s->packed, rnn.dims.output(), t);
    a.c0 = state(cx, rnn, s->packed, rnn.dims.hidden, DType::f32);
    a.cn = state(cy, rnn, s->packed, rnn.dims.hidden, DType::f32);
    lstm_forward_ref(host(), a);
    move_rows(y_data, s->packed, y, s->y, false);
    if (training) reserves()[reserve] = s;
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t backward_data(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn_, const int32_t* lengths,
                            cudnnRNNDataDescriptor_t yd, const void*, const void* dy,
                            cudnnRNNDataDescriptor_t xd, void* dx, cudnnTensorDescriptor_t hd,
                            const void*, const void* dhy, void* dhx, cudnnTensorDescriptor_t cd,
                            const void* cx, const void* dcy, void* dcx, size_t, const void*, size_t,
                            void*, size_t, void* reserve) {
  const Rnn rnn = fake<Rnn>(rnn_);
  const Data x_data = fake<Data>(xd), y_data = fake<Data>(yd);
  if (!same_batch(rnn, x_data, y_data, fake<Tensor>(hd), fake<Tensor>(cd), lengths)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  ++stand_in_counts().backwards;
  fake<Handle>(handle).stream->enqueue([=] {
    Saved& s = *reserves().at(reserve);
    const DType t = dtype_of(rnn.type);
    Array dy_rows, dx_rows;
    dy_rows.make(t, {s.packed.extent.rows, y_data.columns});
    dx_rows.make(t, {s.packed.extent.rows, x_data.columns});
    move_rows(y_data, s.packed, const_cast<void*>(dy), dy_rows, true);
    LstmBackwardArgs a;
    a.dims = rnn.dims;
    a.layout = s.packed.view();
    for (int d = 0; d < rnn.dims.directions; ++d) a.weights[d] = s.weights.of(d);
    a.gates = s.gates.view, a.cells = s.cells.view;
    a.dgates = s.dgates.view, a.dprojected = s.dprojected.view;
    a.dy = dy_rows.view, a.dx = dx_rows.view;
    a.c0 = state(cx, rnn, s.packed, rnn.dims.hidden, DType::f32);
    a.dhn = state(dhy, rnn, s.packed, rnn.dims.output(), t);
    a.dh0 = state(dhx, rnn, s.packed, rnn.dims.output(), t);
    a.dcn = state(dcy, rnn, s.packed, rnn.dims.hidden, DType::f32);
    a.dc0 = state(dcx, rnn, s.packed, rnn.dims.hidden, DType::f32);
    lstm_backward_ref(host(), a);
    if (dx) move_rows(x_data, s.packed, dx, dx_rows, false);
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t backward_weights(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn_,
                               cudnnWgradMode_t mode, const int32_t* lengths,
                               cudnnRNNDataDescriptor_t xd, const void* x, cudnnTensorDescriptor_t,
                               const void* hx, cudnnRNNDataDescriptor_t yd, const void* y, size_t,
                               void* gradients, size_t, void*, size_t, void* reserve) {
  const Rnn rnn = fake<Rnn>(rnn_);
  const Data x_data = fake<Data>(xd), y_data = fake<Data>(yd);
  if (mode != CUDNN_WGRAD_MODE_ADD ||
      !std::equal(x_data.lengths.begin(), x_data.lengths.end(), lengths)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  fake<Handle>(handle).stream->enqueue([=] {
    Saved& s = *reserves().at(reserve);
    Weights of;
    of.make(rnn.dims, DType::f32);
    move_rows(x_data, s.packed, const_cast<void*>(x), s.x, true);
    move_rows(y_data, s.packed, const_cast<void*>(y), s.y, true);
    LstmWeightGradArgs a;
    a.dims = rnn.dims;
    a.layout = s.packed.view();
    a.x = s.x.view, a.y = s.y.view, a.hidden = s.hidden.view;
    a.dgates = s.dgates.view, a.dprojected = s.dprojected.view;
    a.h0 = state(hx, rnn, s.packed, rnn.dims.output(), dtype_of(rnn.type));
    for (int d = 0; d < rnn.dims.directions; ++d) a.grads[d] = of.of(d);
    lstm_weight_grad_ref(host(), a);
    add_gradients(rnn, of, gradients);
  });
  return CUDNN_STATUS_SUCCESS;
}

void add_tensors(Cudnn& l) {
  l.create = [](cudnnHandle_t* h) {
    *h = reinterpret_cast<cudnnHandle_t>(new Handle);
    return CUDNN_STATUS_SUCCESS;
  };
  l.set_stream = [](cudnnHandle_t h, cudaStream_t stream) {
    fake<Handle>(h).stream = reinterpret_cast<detail::StreamImpl*>(stream);
    return CUDNN_STATUS_SUCCESS;
  };
  l.error_string = [](cudnnStatus_t) { return "refused by the test"; };
  l.create_tensor = [](cudnnTensorDescriptor_t* d) { return create<Tensor>(d); };
  l.destroy_tensor = [](cudnnTensorDescriptor_t d) { return destroy<Tensor>(d); };
  l.set_tensor = [](cudnnTensorDescriptor_t d, cudnnDataType_t type, int rank, const int* dims,
                    const int* strides) {
    for (int i = 0, dense = 1; i < rank; ++i) {
      if (strides[rank - 1 - i] != dense) return CUDNN_STATUS_BAD_PARAM;
      dense *= dims[rank - 1 - i];
    }
    fake<Tensor>(d) = {type, std::vector<int>(dims, dims + rank)};
    return CUDNN_STATUS_SUCCESS;
  };
  l.get_tensor = [](cudnnTensorDescriptor_t d, int wanted, cudnnDataType_t* type, int* rank,
                    int* dims, int*) {
    const Tensor& t = fake<Tensor>(d);
    *type = t.type;
    *rank = static_cast<int>(t.dims.size());
    std::copy_n(t.dims.begin(), std::min<size_t>(t.dims.size(), static_cast<size_t>(wanted)), dims);
    return CUDNN_STATUS_SUCCESS;
  };
}

void add_descriptors(Cudnn& l) {
  l.create_dropout = [](cudnnDropoutDescriptor_t* d) { return create<int>(d); };
  l.destroy_dropout = [](cudnnDropoutDescriptor_t d) { return destroy<int>(d); };
  l.set_dropout = [](cudnnDropoutDescriptor_t, cudnnHandle_t, float rate, void*, size_t,
                     unsigned long long) {
    return rate == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  };
  l.create_rnn = [](cudnnRNNDescriptor_t* d) { return create<Rnn>(d); };
  l.destroy_rnn = [](cudnnRNNDescriptor_t d) { return destroy<Rnn>(d); };
  l.set_rnn = set_rnn;
  l.build_rnn = [](cudnnHandle_t, cudnnRNNDescriptor_t rnn, int sequences) {
    fake<Rnn>(rnn).built_for = sequences;
    ++stand_in_counts().dynamic_builds;
    return CUDNN_STATUS_SUCCESS;
  };
  l.create_rnn_data = [](cudnnRNNDataDescriptor_t* d) { return create<Data>(d); };
  l.destroy_rnn_data = [](cudnnRNNDataDescriptor_t d) { return destroy<Data>(d); };
  l.set_rnn_data = set_rnn_data;
}

}  // namespace

StandInCounts& stand_in_counts() {
  static StandInCounts counts;
  return counts;
}

Cudnn stand_in_cudnn() {
  Cudnn l;
  add_tensors(l);
  add_descriptors(l);
  l.rnn_space_sizes = [](cudnnHandle_t, cudnnRNNDescriptor_t, cudnnForwardMode_t mode,
                         cudnnRNNDataDescriptor_t, size_t* workspace, size_t* reserve) {
    *workspace = 0;
    *reserve = mode == CUDNN_FWD_MODE_TRAINING ? 100 : 0;
    return CUDNN_STATUS_SUCCESS;
  };
  l.rnn_weight_size = [](cudnnHandle_t, cudnnRNNDescriptor_t rnn, size_t* bytes) {
    places(fake<Rnn>(rnn), bytes);
    return CUDNN_STATUS_SUCCESS;
  };
  l.rnn_weight_params = weight_params;
  l.rnn_forward = forward;
  l.rnn_backward_data = backward_data;
  l.rnn_backward_weights = backward_weights;
  return l;
}

}  // namespace rondo::test
