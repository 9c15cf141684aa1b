// One LSTM layer by cuDNN: for comparison and timing.
//
// What is its own: gates in our order (i, f, g, o), as eight matrices and four biases at places
// that it tells (cudnnGetRNNWeightParams), all of one type, where our biases are f32. Its packed
// sequences are ours; padded ones are (T, N, C). The lengths must be known to the host.
#pragma once

#include <memory>
#include <vector>

#include "bench/cases/peers/cudnn_library.h"
#include "bench/cases/peers/lstm_step.h"

namespace rondo {

enum class CudnnMath : uint8_t {
  exact,  // f32 without tensor cores; bf16
  tf32,   // f32 rounded to TF32
  f16,    // our bf16 numbers read as f16, whose results mean nothing: for the time alone
};

struct CudnnLstmKind {
  cudnnRNNAlgo_t algorithm = CUDNN_RNN_ALGO_STANDARD;
  bool padded = false;
  CudnnMath math = CudnnMath::exact;
  bool operator==(const CudnnLstmKind&) const = default;
};

// A layer bound to a batch. One thread at a time.
class CudnnLstm {
 public:
  // nullptr when these arguments are not for this kind, or cuDNN says that it does not do them.
  // Waits for the stream: it reads the lengths. `library` must outlive the layer.
  static std::unique_ptr<CudnnLstm> make(const Cudnn& library, const Context& context,
                                         const CudnnLstmKind& kind, const LstmForwardArgs& args,
                                         bool training);
  ~CudnnLstm();
  CudnnLstm(const CudnnLstm&) = delete;
  CudnnLstm& operator=(const CudnnLstm&) = delete;

  // Enqueued. Between our layouts and its own only the first time, so that later calls with the
  // same arguments are cuDNN's work alone. Throw Declined when cuDNN refuses.
  void run(const Context& context, const LstmForwardArgs& args);
  void run(const Context& context, const LstmStepArgs& args);

 private:
  // A matrix or bias in the weights' memory: rows [first_row, first_row + rows) of one of ours.
  struct Piece {
    int direction = 0;
    TensorView LstmWeights::*of = nullptr;
    int64_t first_row = 0, rows = 0, cols = 0;
    size_t offset = 0;
  };
  CudnnLstm(const Cudnn& library, const Context& context, const CudnnLstmKind& kind,
            const LstmForwardArgs& args);
  bool describe(const LstmForwardArgs& args, bool training);
  bool describe_data(cudnnRNNDataDescriptor_t& data, int64_t columns);
  void describe_states(cudnnTensorDescriptor_t& tensor, int64_t columns);
  void find_pieces();
  Piece find_piece(int direction, int linear_layer, bool bias);
  bool refused(cudnnStatus_t status) const;
  void require(cudnnStatus_t status) const;
  size_t bytes_of(int64_t columns) const;

  void load_weights(const Context& context, const LstmWeights (&weights)[2]);
  void store_gradients(const Context& context, const LstmWeightGradArgs& args);
  void move_piece(const Context& context, const TensorView& of, const Piece& piece,
                  const Buffer& memory, bool into);
  void forward(const LstmForwardArgs& args);
  void backward(const Context& context, const LstmStepArgs& args);
  // Where cuDNN reads or writes a value: the padded copy, or our own memory.
  void* place(const Buffer& padded, const TensorView& ours) const;
  void pad(const Context& context, const TensorView& ours, const Buffer& padded);
  void unpad(const Context& context, const Buffer& padded, const TensorView& ours);

  const Cudnn& library_;
  CudnnLstmKind kind_;
  LstmDims dims_;
  DType dtype_;
  PackedView layout_;
  std::vector<int32_t> lengths_;
  cudnnHandle_t handle_ = nullptr;
  cudnnDropoutDescriptor_t dropout_ = nullptr;
  cudnnRNNDescriptor_t rnn_ = nullptr;
  cudnnRNNDataDescriptor_t x_data_ = nullptr, y_data_ = nullptr;
  cudnnTensorDescriptor_t h_ = nullptr, c_ = nullptr;
  bool training_ = false, converted_ = false;
  std::vector<Piece> pieces_;
  Buffer weights_, gradients_, workspace_, reserve_;
  Buffer x_, y_, dx_, dy_;  // padded
};

}  // namespace rondo
