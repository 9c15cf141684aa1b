#include "bench/cases/peers/cudnn_library.h"

#include <map>
#include <mutex>
#include <utility>

#include "kernels/base/gpu/cuda_library.h"

namespace rondo {
namespace {

struct Search {
  Cudnn functions;
  CudaLibrary library{str("cuDNN ", CUDNN_MAJOR), str("libcudnn.so.", CUDNN_MAJOR), "RONDO_CUDNN"};

  Search() {
    find_common();
    find_ctc();
    find_rnn();
  }

  void find_common() {
    library.find("cudnnCreate", functions.create);
    library.find("cudnnSetStream", functions.set_stream);
    library.find("cudnnGetErrorString", functions.error_string);
    library.find("cudnnCreateTensorDescriptor", functions.create_tensor);
    library.find("cudnnSetTensorNdDescriptor", functions.set_tensor);
    library.find("cudnnGetTensorNdDescriptor", functions.get_tensor);
    library.find("cudnnDestroyTensorDescriptor", functions.destroy_tensor);
  }

  void find_ctc() {
    library.find("cudnnCreateCTCLossDescriptor", functions.create_ctc);
    library.find("cudnnSetCTCLossDescriptor_v9", functions.set_ctc);
    library.find("cudnnDestroyCTCLossDescriptor", functions.destroy_ctc);
    library.find("cudnnGetCTCLossWorkspaceSize_v8", functions.ctc_workspace_size);
    library.find("cudnnCTCLoss_v8", functions.ctc_loss);
  }

  void find_rnn() {
    library.find("cudnnCreateDropoutDescriptor", functions.create_dropout);
    library.find("cudnnSetDropoutDescriptor", functions.set_dropout);
    library.find("cudnnDestroyDropoutDescriptor", functions.destroy_dropout);
    library.find("cudnnCreateRNNDescriptor", functions.create_rnn);
    library.find("cudnnSetRNNDescriptor_v8", functions.set_rnn);
    library.find("cudnnDestroyRNNDescriptor", functions.destroy_rnn);
    library.find("cudnnBuildRNNDynamic", functions.build_rnn);
    library.find("cudnnCreateRNNDataDescriptor", functions.create_rnn_data);
    library.find("cudnnSetRNNDataDescriptor", functions.set_rnn_data);
    library.find("cudnnDestroyRNNDataDescriptor", functions.destroy_rnn_data);
    library.find("cudnnGetRNNTempSpaceSizes", functions.rnn_space_sizes);
    library.find("cudnnGetRNNWeightSpaceSize", functions.rnn_weight_size);
    library.find("cudnnGetRNNWeightParams", functions.rnn_weight_params);
    library.find("cudnnRNNForward", functions.rnn_forward);
    library.find("cudnnRNNBackwardData_v8", functions.rnn_backward_data);
    library.find("cudnnRNNBackwardWeights_v8", functions.rnn_backward_weights);
  }
};

}  // namespace

const Cudnn* find_cudnn(std::string* why) {
  static const Search search;
  return search.library.usable(why) ? &search.functions : nullptr;
}

cudnnHandle_t cudnn_handle(const Cudnn& library, Stream& stream) {
  static std::mutex mutex;
  static auto& handles = *new std::map<std::pair<const Cudnn*, void*>, cudnnHandle_t>;
  const std::lock_guard lock(mutex);
  cudnnHandle_t& handle = handles[{&library, stream.native()}];
  if (handle == nullptr) {
    library.check(library.create(&handle));
    library.check(library.set_stream(handle, static_cast<cudaStream_t>(stream.native())));
  }
  return handle;
}

}  // namespace rondo
