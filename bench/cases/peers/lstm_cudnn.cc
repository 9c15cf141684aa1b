#include "bench/cases/peers/lstm_cudnn.h"

#include <algorithm>

#include "kernels/base/dispatch.h"
#include "kernels/cast/cast.h"
#include "kernels/pack/pack.h"

namespace rondo {
namespace {

constexpr int gates = 4;  // linear layers 0 to 3 are of the input, 4 to 7 of h, 8 the projection

cudnnDataType_t type_of(DType dtype, CudnnMath math) {
  if (dtype == DType::f32) return CUDNN_DATA_FLOAT;
  return math == CudnnMath::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

cudnnMathType_t math_of(DType dtype, CudnnMath math) {
  if (dtype != DType::f32) return CUDNN_TENSOR_OP_MATH;
  return math == CudnnMath::tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

bool suits(DType dtype, CudnnMath math) {
  return (dtype == DType::f32 && math != CudnnMath::f16) ||
         (dtype == DType::bf16 && math != CudnnMath::tf32);
}

// The lengths of a batch that fills its capacity of sequences, each of a frame or more; else empty.
std::vector<int32_t> read_lengths(const Context& context, const PackedView& layout) {
  PackedExtent extent;
  std::vector<int32_t> lengths(static_cast<size_t>(layout.capacity.sequences));
  context.device->copy(*context.stream, &extent, layout.extent, sizeof extent);
  context.device->copy(*context.stream, lengths.data(), layout.lengths,
                       lengths.size() * sizeof(int32_t));
  context.stream->synchronize();
  const bool full =
      extent.sequences == layout.capacity.sequences && extent.sequences > 0 && lengths.back() >= 1;
  if (!full) lengths.clear();
  return lengths;
}

int narrow(int64_t n) { return static_cast<int>(n); }

// A workspace of no bytes has no address.
Buffer memory(const Context& context, size_t bytes) {
  return Buffer(*context.device, std::max<size_t>(bytes, 64), "cuDNN's lstm");
}

}  // namespace

std::unique_ptr<CudnnLstm> CudnnLstm::make(const Cudnn& library, const Context& context,
                                           const CudnnLstmKind& kind, const LstmForwardArgs& args,
                                           bool training) {
  if (!training && args.gates) return nullptr;  // what a backward pass needs, cuDNN keeps itself
  // It keeps cell states in the type of x.
  const bool narrow_states = args.x.dtype != DType::f32 && (args.c0 || args.cn);
  if (!suits(args.x.dtype, kind.math) || narrow_states || args.dims.int8) return nullptr;
  std::unique_ptr<CudnnLstm> layer(new CudnnLstm(library, context, kind, args));
  if (layer->lengths_.empty() || !layer->describe(args, training)) return nullptr;
  size_t workspace = 0, reserve = 0, weights = 0;
  const auto mode = training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE;
  if (layer->refused(library.rnn_space_sizes(layer->handle_, layer->rnn_, mode, layer->x_data_,
                                             &workspace, &reserve)) ||
      layer->refused(library.rnn_weight_size(layer->handle_, layer->rnn_, &weights))) {
    return nullptr;
  }
  layer->workspace_ = memory(context, workspace);
  layer->reserve_ = memory(context, reserve);
  layer->weights_ = Buffer(*context.device, weights, "cuDNN's lstm");
  layer->find_pieces();
  const int64_t outputs = args.dims.directions * args.dims.output();
  if (kind.padded) {
    layer->x_ = memory(context, layer->bytes_of(args.dims.input));
    layer->y_ = memory(context, layer->bytes_of(outputs));
  }
  if (training) {
    layer->gradients_ = Buffer(*context.device, weights, "cuDNN's lstm");
    if (kind.padded) {
      layer->dx_ = memory(context, layer->bytes_of(args.dims.input));
      layer->dy_ = memory(context, layer->bytes_of(outputs));
    }
  }
  return layer;
}

CudnnLstm::CudnnLstm(const Cudnn& library, const Context& context, const CudnnLstmKind& kind,
                     const LstmForwardArgs& args)
    : library_(library),
      kind_(kind),
      dims_(args.dims),
      dtype_(args.x.dtype),
      layout_(args.layout),
      lengths_(read_lengths(context, args.layout)),
      handle_(cudnn_handle(library, *context.stream)) {}

CudnnLstm::~CudnnLstm() {
  if (h_) library_.destroy_tensor(h_);
  if (c_) library_.destroy_tensor(c_);
  if (x_data_) library_.destroy_rnn_data(x_data_);
  if (y_data_) library_.destroy_rnn_data(y_data_);
  if (rnn_) library_.destroy_rnn(rnn_);
  if (dropout_) library_.destroy_dropout(dropout_);
}

// Algorithms other than the standard one also call parameters bad that they do not take.
bool CudnnLstm::refused(cudnnStatus_t status) const {
  const int category = static_cast<int>(status) / 1000 * 1000;
  if (category == CUDNN_STATUS_NOT_SUPPORTED) return true;
  if (category == CUDNN_STATUS_BAD_PARAM && kind_.algorithm != CUDNN_RNN_ALGO_STANDARD) return true;
  library_.check(status);
  return false;
}

void CudnnLstm::require(cudnnStatus_t status) const {
  if (refused(status)) throw Declined(str("cuDNN: ", library_.error_string(status)));
}

bool CudnnLstm::describe(const LstmForwardArgs& args, bool training) {
  training_ = training;
  const Cudnn& l = library_;
  l.check(l.create_dropout(&dropout_));
  l.check(l.set_dropout(dropout_, handle_, 0, nullptr, 0, 0));
  l.check(l.create_rnn(&rnn_));
  const cudnnStatus_t set = l.set_rnn(
      rnn_, kind_.algorithm, CUDNN_LSTM, CUDNN_RNN_SINGLE_INP_BIAS,
      dims_.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
      type_of(dtype_, kind_.math), CUDNN_DATA_FLOAT, math_of(dtype_, kind_.math),
      narrow(dims_.input), narrow(dims_.hidden), narrow(dims_.output()), 1, dropout_,
      kind_.padded ? CUDNN_RNN_PADDED_IO_ENABLED : CUDNN_RNN_PADDED_IO_DISABLED);
  if (refused(set)) return false;
  if (kind_.algorithm == CUDNN_RNN_ALGO_PERSIST_DYNAMIC &&
      refused(l.build_rnn(handle_, rnn_, narrow(args.layout.capacity.sequences)))) {
    return false;
  }
  describe_states(h_, dims_.output());
  describe_states(c_, dims_.hidden);
  return describe_data(x_data_, dims_.input) &&
         describe_data(y_data_, dims_.directions * dims_.output());
}

bool CudnnLstm::describe_data(cudnnRNNDataDescriptor_t& data, int64_t columns) {
  uint64_t zero = 0;  // in any type
  library_.check(library_.create_rnn_data(&data));
  return !refused(library_.set_rnn_data(data, type_of(dtype_, kind_.math),
                                        kind_.padded ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
                                                     : CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                                        lengths_.front(), narrow(layout_.capacity.sequences),
                                        narrow(columns), lengths_.data(), &zero));
}

void CudnnLstm::describe_states(cudnnTensorDescriptor_t& tensor, int64_t columns) {
  const int sequences = layout_.capacity.sequences, cols = narrow(columns);
  const int dims[3] = {dims_.directions, sequences, cols};
  const int strides[3] = {sequences * cols, cols, 1};
  library_.check(library_.create_tensor(&tensor));
  library_.check(library_.set_tensor(tensor, type_of(dtype_, kind_.math), 3, dims, strides));
}

CudnnLstm::Piece CudnnLstm::find_piece(int direction, int linear_layer, bool bias) {
  const Cudnn& l = library_;
  cudnnTensorDescriptor_t described[2] = {};
  void* addresses[2] = {};
  for (cudnnTensorDescriptor_t& d : described) l.check(l.create_tensor(&d));
  const cudnnStatus_t status =
      l.rnn_weight_params(handle_, rnn_, direction, weights_.bytes(), weights_.data(), linear_layer,
                          described[0], &addresses[0], described[1], &addresses[1]);
  cudnnDataType_t type = {};
  int rank = 0, dims[3] = {}, strides[3] = {};
  if (status == CUDNN_STATUS_SUCCESS) {
    l.check(l.get_tensor(described[bias], 3, &type, &rank, dims, strides));
  }
  for (cudnnTensorDescriptor_t d : described) l.destroy_tensor(d);
  l.check(status);
  RONDO_CHECK(rank == 3 && dims[0] == 1 && addresses[bias], "cuDNN's lstm has no ",
              bias ? "bias" : "matrix", " of linear layer ", linear_layer);
  Piece piece;
  piece.direction = direction;
  piece.rows = dims[1];
  piece.cols = dims[2];
  piece.offset = static_cast<size_t>(static_cast<std::byte*>(addresses[bias]) -
                                     static_cast<std::byte*>(weights_.data()));
  return piece;
}

void CudnnLstm::find_pieces() {
  const auto add = [this](int d, int layer, TensorView LstmWeights::*of, int64_t first_row,
                          int64_t rows, int64_t cols) {
    Piece piece = find_piece(d, layer, of == &LstmWeights::b);
    piece.of = of;
    piece.first_row = first_row;
    RONDO_CHECK(piece.rows == rows && piece.cols == cols, "cuDNN's linear layer ", layer, " is ",
                piece.rows, " x ", piece.cols, ", expected ", rows, " x ", cols);
    pieces_.push_back(piece);
  };
  const int64_t H = dims_.hidden, P = dims_.output();
  for (int d = 0; d < dims_.directions; ++d) {
    for (int gate = 0; gate < gates; ++gate) {
      add(d, gate, &LstmWeights::w, gate * H, H, dims_.input);
      add(d, gate, &LstmWeights::b, gate * H, H, 1);
      add(d, gates + gate, &LstmWeights::r, gate * H, H, P);
    }
    if (dims_.projection) add(d, 2 * gates, &LstmWeights::p, 0, P, H);
  }
}

size_t CudnnLstm::bytes_of(int64_t columns) const {
  return lengths_.size() * static_cast<size_t>(lengths_.front()) * static_cast<size_t>(columns) *
         size_of(dtype_);
}

// Between rows of one of our matrices and a piece; biases and gradients are f32 on our side.
void CudnnLstm::move_piece(const Context& context, const TensorView& of, const Piece& piece,
                           const Buffer& memory, bool into) {
  const int64_t n = piece.rows * piece.cols;
  const TensorView theirs(memory.as<uint8_t>() + piece.offset, dtype_, {n});
  const size_t first = static_cast<size_t>(piece.first_row * piece.cols) * size_of(of.dtype);
  const TensorView ours(static_cast<uint8_t*>(of.data) + first, of.dtype, {n});
  const TensorView &from = into ? ours : theirs, &to = into ? theirs : ours;
  if (from.dtype == to.dtype) {
    context.device->copy(*context.stream, to.data, from.data, to.bytes());
  } else {
    rondo::run(context, CastArgs{from, to});
  }
}

void CudnnLstm::load_weights(const Context& context, const LstmWeights (&weights)[2]) {
  context.device->fill_bytes(*context.stream, weights_.data(), 0, weights_.bytes());
  for (const Piece& piece : pieces_) {
    const TensorView& of = weights[piece.direction].*piece.of;
    if (of) move_piece(context, of, piece, weights_, true);
  }
}

void CudnnLstm::store_gradients(const Context& context, const LstmWeightGradArgs& args) {
  RONDO_CHECK(!args.accumulate, "cuDNN's lstm_step does not accumulate");
  for (const Piece& piece : pieces_) {
    const TensorView& of = args.grads[piece.direction].*piece.of;
    if (of) move_piece(context, of, piece, gradients_, false);
  }
}

void* CudnnLstm::place(const Buffer& padded, const TensorView& ours) const {
  if (!ours) return nullptr;
  return kind_.padded ? padded.data() : ours.data;
}

void CudnnLstm::pad(const Context& context, const TensorView& ours, const Buffer& padded) {
  UnpackArgs a;
  a.layout = layout_;
  a.packed = ours;
  a.padded = TensorView(padded.data(), ours.dtype,
                        {lengths_.front(), layout_.capacity.sequences, ours.dim(1)});
  rondo::run(context, a);
}

void CudnnLstm::unpad(const Context& context, const Buffer& padded, const TensorView& ours) {
  if (!ours) return;
  PackArgs a;
  a.layout = layout_;
  a.packed = ours;
  a.padded = TensorView(padded.data(), ours.dtype,
                        {lengths_.front(), layout_.capacity.sequences, ours.dim(1)});
  rondo::run(context, a);
}

void CudnnLstm::forward(const LstmForwardArgs& a) {
  require(library_.rnn_forward(
      handle_, rnn_, training_ ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
      layout_.lengths, x_data_, place(x_, a.x), y_data_, place(y_, a.y), h_, a.h0.data, a.hn.data,
      c_, a.c0.data, a.cn.data, weights_.bytes(), weights_.data(), workspace_.bytes(),
      workspace_.data(), training_ ? reserve_.bytes() : 0, training_ ? reserve_.data() : nullptr));
}

void CudnnLstm::backward(const Context& context, const LstmStepArgs& a) {
  const LstmForwardArgs& f = a.forward;
  const LstmBackwardArgs& b = a.backward;
  require(library_.rnn_backward_data(handle_, rnn_, layout_.lengths, y_data_, place(y_, f.y),
                                     place(dy_, b.dy), x_data_, place(dx_, b.dx), h_, f.h0.data,
                                     b.dhn.data, b.dh0.data, c_, f.c0.data, b.dcn.data, b.dc0.data,
                                     weights_.bytes(), weights_.data(), workspace_.bytes(),
                                     workspace_.data(), reserve_.bytes(), reserve_.data()));
  // Gradients are added to what is there; it has no other mode.
  context.device->fill_bytes(*context.stream, gradients_.data(), 0, gradients_.bytes());
  require(library_.rnn_backward_weights(
      handle_, rnn_, CUDNN_WGRAD_MODE_ADD, layout_.lengths, x_data_, place(x_, f.x), h_, f.h0.data,
      y_data_, place(y_, f.y), gradients_.bytes(), gradients_.data(), workspace_.bytes(),
      workspace_.data(), reserve_.bytes(), reserve_.data()));
}

void CudnnLstm::run(const Context& context, const LstmForwardArgs& a) {
  if (converted_) return forward(a);
  load_weights(context, a.weights);
  if (kind_.padded) pad(context, a.x, x_);
  forward(a);
  if (kind_.padded) unpad(context, y_, a.y);
  converted_ = true;
}

void CudnnLstm::run(const Context& context, const LstmStepArgs& a) {
  if (converted_) {
    forward(a.forward);
    return backward(context, a);
  }
  load_weights(context, a.forward.weights);
  if (kind_.padded) {
    pad(context, a.forward.x, x_);
    pad(context, a.backward.dy, dy_);
  }
  forward(a.forward);
  backward(context, a);
  if (kind_.padded) {
    unpad(context, y_, a.forward.y);
    unpad(context, dx_, a.backward.dx);
  }
  store_gradients(context, a.weight_grad);
  converted_ = true;
}

}  // namespace rondo
