#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/base/cpu.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/error.h"
#include "kernels/ctc/c_api/ctc.h"
#include "kernels/ctc/ctc_gpu.h"
#include "kernels/ctc/ctc_impl.h"
#include "kernels/ctc/ctc_padded.h"

#ifdef RONDO_WITH_CUDA
#include <cuda_runtime.h>

#include "kernels/base/gpu/cuda_check.h"
#include "kernels/base/gpu/cuda_device.h"
#endif

namespace rondo {
namespace {

using Kernel = void (*)(const Context&, const CtcArgs&);

Kernel cpu_kernel() {
  const CpuFeatures& cpu = cpu_features();
  return cpu.avx512 ? ctc_avx512 : cpu.avx2 ? ctc_avx2 : ctc_generic;
}

// Pools of threads that no call uses at the moment, by size. A call takes one or makes one.
class Pools {
 public:
  std::unique_ptr<ThreadPool> take(int threads) {
    {
      const std::lock_guard lock(mutex_);
      auto& idle = idle_[threads];
      if (!idle.empty()) {
        auto pool = std::move(idle.back());
        idle.pop_back();
        return pool;
      }
    }
    return std::make_unique<ThreadPool>(threads);
  }
  void give_back(std::unique_ptr<ThreadPool> pool) {
    const std::lock_guard lock(mutex_);
    idle_[pool->size()].push_back(std::move(pool));
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<std::unique_ptr<ThreadPool>>> idle_;
};

class BorrowedPool {
 public:
  explicit BorrowedPool(int threads) : pool_(pools().take(threads)) {}
  BorrowedPool(const BorrowedPool&) = delete;
  BorrowedPool& operator=(const BorrowedPool&) = delete;
  ~BorrowedPool() { pools().give_back(std::move(pool_)); }
  ThreadPool* get() const { return pool_.get(); }

 private:
  static Pools& pools() {
    static Pools p;
    return p;
  }
  std::unique_ptr<ThreadPool> pool_;
};

int threads_of(const ctcOptions& options) {
  const int cpus = usable_cpus();
  if (options.loc != CTC_CPU || options.num_threads == 0) return cpus;
  return options.num_threads < static_cast<unsigned>(cpus) ? static_cast<int>(options.num_threads)
                                                           : cpus;
}

#ifdef RONDO_WITH_CUDA
// The caller's stream.
class ForeignStream final : public detail::StreamImpl {
 public:
  explicit ForeignStream(CUstream stream) : stream_(stream) {}
  void enqueue(std::function<void()>) override {
    RONDO_CHECK(false, "host work in a caller's stream");
  }
  void synchronize() override { CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  void* native() override { return stream_; }

 private:
  cudaStream_t stream_;
};

Device& current_gpu() {
  int index = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  std::string why;
  Device* device = cuda_device(index, &why);
  RONDO_CHECK(device != nullptr, why);
  return *device;
}

// In double: on the host.
void compute_on_host(CtcPadded batch, CUstream stream, ThreadPool* pool) {
  const Context context{Backend::cpu, &cpu_device(), nullptr, pool};
  // First, because it asks whether the batch's sizes can be at all.
  std::vector<std::byte> workspace(ctc_padded_workspace_bytes(context, batch));
  int64_t frames = 0;
  for (int32_t n = 0; n < batch.sequences; ++n) {
    frames = frames < batch.input_lengths[n] ? batch.input_lengths[n] : frames;
  }
  const auto count = static_cast<size_t>(frames * batch.sequences * batch.classes);
  std::vector<double> activations(count), gradients(batch.gradients ? count : 0);
  const size_t bytes = count * sizeof(double);
  CUDA_CHECK(
      cudaMemcpyAsync(activations.data(), batch.activations, bytes, cudaMemcpyDefault, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  void* const device_gradients = batch.gradients;
  batch.activations = activations.data();
  if (device_gradients) batch.gradients = gradients.data();
  ctc_padded(context, cpu_kernel(), batch, workspace.data());
  if (!device_gradients) return;
  CUDA_CHECK(cudaMemcpyAsync(device_gradients, gradients.data(), bytes, cudaMemcpyDefault, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

void compute_on_gpu(const CtcPadded& batch, void* workspace, CUstream stream) {
  if (batch.dtype == DType::f64) {
    const BorrowedPool pool(usable_cpus());
    return compute_on_host(batch, stream, pool.get());
  }
  Stream foreign(std::make_unique<ForeignStream>(stream));
  const Context context{Backend::cuda, &current_gpu(), &foreign, nullptr};
  ctc_padded(context, cuda::ctc_fast, batch, workspace);
}
#endif

void compute(const CtcPadded& batch, void* workspace, const ctcOptions& options) {
  if (options.loc == CTC_GPU) {
#ifdef RONDO_WITH_CUDA
    return compute_on_gpu(batch, workspace, options.stream);
#else
    RONDO_CHECK(false, "built without CUDA");
#endif
  }
  const BorrowedPool pool(threads_of(options));
  const Context context{Backend::cpu, &cpu_device(), nullptr, pool.get()};
  ctc_padded(context, cpu_kernel(), batch, workspace);
}

// The status that stands for what `f` throws.
template <class F>
ctcStatus_t status_of(F&& f) noexcept {
  try {
    f();
    return CTC_STATUS_SUCCESS;
  } catch (const OutOfMemory&) {
    return CTC_STATUS_MEMOPS_FAILED;
  } catch (const NoThread&) {
    return CTC_STATUS_EXECUTION_FAILED;
  } catch (const InputError&) {
    return CTC_STATUS_INVALID_VALUE;
  } catch (const std::bad_alloc&) {
    return CTC_STATUS_MEMOPS_FAILED;
  } catch (const std::length_error&) {  // of a vector that no memory could hold
    return CTC_STATUS_MEMOPS_FAILED;
  } catch (const Error&) {
    return CTC_STATUS_EXECUTION_FAILED;
  } catch (...) {
    return CTC_STATUS_UNKNOWN_ERROR;
  }
}

bool known_location(const ctcOptions& options) {
  return options.loc == CTC_CPU || options.loc == CTC_GPU;
}

template <class T>
ctcStatus_t compute_as(const T* activations, T* gradients, const int* flat_labels,
                       const int* label_lengths, const int* input_lengths, int alphabet_size,
                       int minibatch, T* costs, void* workspace, const ctcOptions& options) {
  if (!activations || !flat_labels || !label_lengths || !input_lengths || !costs || !workspace ||
      !known_location(options)) {
    return CTC_STATUS_INVALID_VALUE;
  }
  return status_of([&] {
    const CtcPadded batch{
        activations,         gradients,   DTypeOf<T>::value, alphabet_size, minibatch,
        options.blank_label, flat_labels, label_lengths,     input_lengths, costs};
    compute(batch, workspace, options);
  });
}

ctcStatus_t size_as(DType dtype, const int* label_lengths, const int* input_lengths,
                    int alphabet_size, int minibatch, const ctcOptions& options,
                    size_t* size_bytes) {
  if (!label_lengths || !input_lengths || !size_bytes || !known_location(options)) {
    return CTC_STATUS_INVALID_VALUE;
  }
  return status_of([&] {
    CtcPadded batch;
    batch.dtype = dtype;
    batch.classes = alphabet_size;
    batch.sequences = minibatch;
    batch.label_lengths = label_lengths;
    batch.input_lengths = input_lengths;
    if (options.loc == CTC_GPU) {
      const Context context{Backend::cuda, nullptr, nullptr, nullptr};
      *size_bytes = ctc_padded_workspace_bytes(context, batch);
      return;
    }
    const BorrowedPool pool(threads_of(options));
    *size_bytes =
        ctc_padded_workspace_bytes({Backend::cpu, &cpu_device(), nullptr, pool.get()}, batch);
  });
}

}  // namespace
}  // namespace rondo

extern "C" {

int get_warpctc_version(void) { return 2; }

const char* ctcGetStatusString(ctcStatus_t status) {
  int value;  // C programs may give any, which the type does not hold here
  std::memcpy(&value, &status, sizeof value);
  switch (value) {
    case CTC_STATUS_SUCCESS:
      return "no error";
    case CTC_STATUS_MEMOPS_FAILED:
      return "out of memory or copying memory failed";
    case CTC_STATUS_INVALID_VALUE:
      return "invalid value";
    case CTC_STATUS_EXECUTION_FAILED:
      return "execution failed";
    case CTC_STATUS_UNKNOWN_ERROR:
      break;
  }
  return "unknown error";
}

ctcStatus_t compute_ctc_loss(const float* activations, float* gradients, const int* flat_labels,
                             const int* label_lengths, const int* input_lengths, int alphabet_size,
                             int minibatch, float* costs, void* workspace, ctcOptions options) {
  return rondo::compute_as(activations, gradients, flat_labels, label_lengths, input_lengths,
                           alphabet_size, minibatch, costs, workspace, options);
}

ctcStatus_t compute_ctc_loss_double(const double* activations, double* gradients,
                                    const int* flat_labels, const int* label_lengths,
                                    const int* input_lengths, int alphabet_size, int minibatch,
                                    double* costs, void* workspace, ctcOptions options) {
  return rondo::compute_as(activations, gradients, flat_labels, label_lengths, input_lengths,
                           alphabet_size, minibatch, costs, workspace, options);
}

ctcStatus_t get_workspace_size(const int* label_lengths, const int* input_lengths,
                               int alphabet_size, int minibatch, ctcOptions options,
                               size_t* size_bytes) {
  return rondo::size_as(rondo::DType::f32, label_lengths, input_lengths, alphabet_size, minibatch,
                        options, size_bytes);
}

ctcStatus_t get_workspace_size_double(const int* label_lengths, const int* input_lengths,
                                      int alphabet_size, int minibatch, ctcOptions options,
                                      size_t* size_bytes) {
  return rondo::size_as(rondo::DType::f64, label_lengths, input_lengths, alphabet_size, minibatch,
                        options, size_bytes);
}

}  // extern "C"
