// cuDNN 9, against which kernels of ours are compared and timed; nothing links it. Only in builds
// whose toolkit has its header.
#pragma once

#include <cudnn.h>

#include <string>

#include "kernels/base/device.h"
#include "kernels/base/error.h"

namespace rondo {

// The functions that are used. Tests put their own here.
struct Cudnn {
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnCreateTensorDescriptor) create_tensor = nullptr;
  decltype(&cudnnSetTensorNdDescriptor) set_tensor = nullptr;
  decltype(&cudnnGetTensorNdDescriptor) get_tensor = nullptr;
  decltype(&cudnnDestroyTensorDescriptor) destroy_tensor = nullptr;

  decltype(&cudnnCreateCTCLossDescriptor) create_ctc = nullptr;
  decltype(&cudnnSetCTCLossDescriptor_v9) set_ctc = nullptr;
  decltype(&cudnnDestroyCTCLossDescriptor) destroy_ctc = nullptr;
  decltype(&cudnnGetCTCLossWorkspaceSize_v8) ctc_workspace_size = nullptr;
  decltype(&cudnnCTCLoss_v8) ctc_loss = nullptr;

  decltype(&cudnnCreateDropoutDescriptor) create_dropout = nullptr;
  decltype(&cudnnSetDropoutDescriptor) set_dropout = nullptr;
  decltype(&cudnnDestroyDropoutDescriptor) destroy_dropout = nullptr;
  decltype(&cudnnCreateRNNDescriptor) create_rnn = nullptr;
  decltype(&cudnnSetRNNDescriptor_v8) set_rnn = nullptr;
  decltype(&cudnnDestroyRNNDescriptor) destroy_rnn = nullptr;
  decltype(&cudnnBuildRNNDynamic) build_rnn = nullptr;
  decltype(&cudnnCreateRNNDataDescriptor) create_rnn_data = nullptr;
  decltype(&cudnnSetRNNDataDescriptor) set_rnn_data = nullptr;
  decltype(&cudnnDestroyRNNDataDescriptor) destroy_rnn_data = nullptr;
  decltype(&cudnnGetRNNTempSpaceSizes) rnn_space_sizes = nullptr;
  decltype(&cudnnGetRNNWeightSpaceSize) rnn_weight_size = nullptr;
  decltype(&cudnnGetRNNWeightParams) rnn_weight_params = nullptr;
  decltype(&cudnnRNNForward) rnn_forward = nullptr;
  decltype(&cudnnRNNBackwardData_v8) rnn_backward_data = nullptr;
  decltype(&cudnnRNNBackwardWeights_v8) rnn_backward_weights = nullptr;

  void check(cudnnStatus_t status) const {
    RONDO_CHECK(status == CUDNN_STATUS_SUCCESS, "cuDNN: ", error_string(status));
  }
};

// nullptr when there is none, with what was looked for in *why; CudaLibrary says where,
// once per process, with RONDO_CUDNN for a file of one's own.
const Cudnn* find_cudnn(std::string* why = nullptr);

// A handle of the library for a stream; made when first asked for, and never destroyed, because the
// driver may go first. Thread-safe.
cudnnHandle_t cudnn_handle(const Cudnn& library, Stream& stream);

}  // namespace rondo
