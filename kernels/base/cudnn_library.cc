#include "kernels/base/cudnn_library.h"

#include <map>
#include <mutex>
#include <utility>

#include "kernels/base/cuda_library.h"

namespace rondo {
namespace {

bool bind_common(void* l, Cudnn& f) {
  return find_function(l, "cudnnCreate", f.create) &&
         find_function(l, "cudnnSetStream", f.set_stream) &&
         find_function(l, "cudnnGetErrorString", f.error_string) &&
         find_function(l, "cudnnCreateTensorDescriptor", f.create_tensor) &&
         find_function(l, "cudnnSetTensorNdDescriptor", f.set_tensor) &&
         find_function(l, "cudnnGetTensorNdDescriptor", f.get_tensor) &&
         find_function(l, "cudnnDestroyTensorDescriptor", f.destroy_tensor);
}

bool bind_ctc(void* l, Cudnn& f) {
  return find_function(l, "cudnnCreateCTCLossDescriptor", f.create_ctc) &&
         find_function(l, "cudnnSetCTCLossDescriptor_v9", f.set_ctc) &&
         find_function(l, "cudnnDestroyCTCLossDescriptor", f.destroy_ctc) &&
         find_function(l, "cudnnGetCTCLossWorkspaceSize_v8", f.ctc_workspace_size) &&
         find_function(l, "cudnnCTCLoss_v8", f.ctc_loss);
}

bool bind_rnn(void* l, Cudnn& f) {
  return find_function(l, "cudnnCreateDropoutDescriptor", f.create_dropout) &&
         find_function(l, "cudnnSetDropoutDescriptor", f.set_dropout) &&
         find_function(l, "cudnnDestroyDropoutDescriptor", f.destroy_dropout) &&
         find_function(l, "cudnnCreateRNNDescriptor", f.create_rnn) &&
         find_function(l, "cudnnSetRNNDescriptor_v8", f.set_rnn) &&
         find_function(l, "cudnnDestroyRNNDescriptor", f.destroy_rnn) &&
         find_function(l, "cudnnBuildRNNDynamic", f.build_rnn) &&
         find_function(l, "cudnnCreateRNNDataDescriptor", f.create_rnn_data) &&
         find_function(l, "cudnnSetRNNDataDescriptor", f.set_rnn_data) &&
         find_function(l, "cudnnDestroyRNNDataDescriptor", f.destroy_rnn_data) &&
         find_function(l, "cudnnGetRNNTempSpaceSizes", f.rnn_space_sizes) &&
         find_function(l, "cudnnGetRNNWeightSpaceSize", f.rnn_weight_size) &&
         find_function(l, "cudnnGetRNNWeightParams", f.rnn_weight_params) &&
         find_function(l, "cudnnRNNForward", f.rnn_forward) &&
         find_function(l, "cudnnRNNBackwardData_v8", f.rnn_backward_data) &&
         find_function(l, "cudnnRNNBackwardWeights_v8", f.rnn_backward_weights);
}

struct Search {
  Cudnn library;
  bool found = false;
  std::string why;

  Search() {
    const std::string file = str("libcudnn.so.", CUDNN_MAJOR);
    std::string which;
    void* l = open_cuda_library(file, "RONDO_CUDNN", &which);
    found = l && bind_common(l, library) && bind_ctc(l, library) && bind_rnn(l, library);
    if (found) return;
    why = l ? str(which, " lacks functions of cuDNN ", CUDNN_MAJOR)
            : str("cuDNN ", CUDNN_MAJOR, " was not found (tried ", which,
                  "); install it or set RONDO_CUDNN to its file");
  }
};

}  // namespace

const Cudnn* find_cudnn(std::string* why) {
  static const Search search;
  if (!search.found && why) *why = search.why;
  return search.found ? &search.library : nullptr;
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
