// cuDNN's CTC, to be compared with and timed beside ours. The library is loaded when this first
// runs, so nothing links it. What it computes: padded batches in f32, blank 0, at most 255 labels,
// gradients with respect to the logits; the deterministic algorithm.
#include <map>
#include <mutex>

#include "bench/cases/check/check.h"
#include "bench/cases/peers/cudnn_library.h"
#include "kernels/ctc/ctc_gpu.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo::check {
namespace {

const Cudnn& cudnn() { return *find_cudnn(); }

// Lives as long as the process: memory for each stream.
struct StreamState {
  Buffer workspace, lengths;
};
StreamState& state_of(Stream* stream) {
  static std::mutex mutex;
  static auto& states = *new std::map<void*, StreamState>;
  const std::lock_guard lock(mutex);
  return states[stream->native()];
}

class Descriptors {
 public:
  Descriptors(const int (&dims)[3], int max_labels) {
    const Cudnn& c = cudnn();
    const int strides[3] = {dims[1] * dims[2], dims[2], 1};
    c.check(c.create_tensor(&tensor));
    c.check(c.set_tensor(tensor, CUDNN_DATA_FLOAT, 3, dims, strides));
    c.check(c.create_ctc(&ctc));
    c.check(c.set_ctc(ctc, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX,
                      CUDNN_CTC_ZERO_OOB_GRADIENTS, max_labels));
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    if (ctc) cudnn().destroy_ctc(ctc);
    if (tensor) cudnn().destroy_tensor(tensor);
  }
  cudnnTensorDescriptor_t tensor = nullptr;
  cudnnCTCLossDescriptor_t ctc = nullptr;
};

void grow(Buffer& buffer, const Context& context, size_t bytes) {
  if (buffer.bytes() < bytes) buffer = Buffer(*context.device, bytes, "cuDNN's ctc");
}

// A packed batch whose capacity has no gaps is a padded one, if it fills it.
bool accepts(const Context&, const void* args) {
  if (!find_cudnn()) return false;
  if (!args) return true;
  const CtcArgs& a = *static_cast<const CtcArgs*>(args);
  const PackedCapacity& c = a.layout.capacity;
  return a.logits.dtype == DType::f32 && a.input == CtcInput::logits && a.blank == 0 &&
         a.max_label_length > 0 && a.max_label_length <= 255 && a.grad && !a.grad_scale &&
         a.grad.data != a.logits.data && c.rows > 0 && c.rows == int64_t{c.frames} * c.sequences;
}

void ctc_cudnn(const Context& context, const CtcArgs& a) {
  check_ctc(a);
  const Cudnn& c = cudnn();
  const cudnnHandle_t handle = cudnn_handle(c, *context.stream);
  StreamState& s = state_of(context.stream);
  const PackedCapacity& capacity = a.layout.capacity;
  const Descriptors d({capacity.frames, capacity.sequences, static_cast<int>(a.logits.dim(1))},
                      a.max_label_length);
  constexpr cudnnCTCLossAlgo_t algorithm = CUDNN_CTC_LOSS_ALGO_DETERMINISTIC;
  size_t bytes = 0;
  c.check(c.ctc_workspace_size(handle, algorithm, d.ctc, d.tensor, d.tensor, &bytes));
  grow(s.workspace, context, bytes);
  grow(s.lengths, context, static_cast<size_t>(capacity.sequences) * sizeof(int32_t));
  cuda::ctc_label_lengths(context, a.label_offsets, capacity.sequences, s.lengths.as<int32_t>());
  c.check(c.ctc_loss(handle, algorithm, d.ctc, d.tensor, a.logits.data, a.labels,
                     s.lengths.as<int32_t>(), a.layout.lengths, a.loss.data, d.tensor, a.grad.data,
                     s.workspace.bytes(), s.workspace.data()));
}

constexpr Variant peers[] = {
    variant<CtcArgs, ctc_cudnn>("cudnn", Backend::cuda, Role::peer, accepts)};

}  // namespace

void ctc_cudnn_peers(Suite& suite) { suite.add_variants(peers); }

}  // namespace rondo::check
