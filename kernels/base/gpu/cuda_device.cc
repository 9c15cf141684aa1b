#include "kernels/base/gpu/cuda_device.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/base/gpu/cuda_check.h"
#include "kernels/base/gpu/gpu_identity.h"
#include "kernels/base/gpu/recent_launches.h"

namespace rondo {
namespace detail {

std::string describe_cuda_error(cudaError_t error) {
  return str(cudaGetErrorName(error), ": ", cudaGetErrorString(error));
}

namespace {

// A launch as the runtime wants it, and the attributes it points to.
struct CudaLaunch {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};

  explicit CudaLaunch(const LaunchConfig& c) {
    config.gridDim = dim3(c.grid.x, c.grid.y, c.grid.z);
    config.blockDim = dim3(c.block.x, c.block.y, c.block.z);
    config.dynamicSmemBytes = c.shared_bytes;
    config.attrs = attributes;
    if (c.cooperative) {
      attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
      attributes[config.numAttrs++].val.cooperative = 1;
    }
    if (c.cluster > 1) {
      attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
      attributes[config.numAttrs++].val.clusterDim = {c.cluster, 1, 1};
    }
  }
  CudaLaunch(const CudaLaunch&) = delete;
  CudaLaunch& operator=(const CudaLaunch&) = delete;
};

cudaError_t raise_limits(const LaunchConfig& c, const void* kernel) {
  constexpr size_t shared_without_asking = 48 * 1024;
  if (c.shared_bytes > shared_without_asking) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(c.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  if (c.cluster > 8) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  return cudaSuccess;
}

// Whether the kernel that this GPU was given has what clusters need. PTX for an architecture before
// sm_90 runs on later ones too, and there the bodies that RONDO_SM90 guards are empty.
cudaError_t find_cluster_code(const void* kernel, bool* has) {
  cudaFuncAttributes attributes = {};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  *has = error == cudaSuccess && attributes.ptxVersion >= 90;
  return error;
}

// Whether the error says that this machine cannot run this launch, whatever else happens.
bool says_unsupported(cudaError_t error) {
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorInvalidClusterSize:
    case cudaErrorNotSupported:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary:
      return true;
    default:
      return false;
  }
}

// `count` where the device can run the launch, else 0.
int supported_count(cudaError_t error, int count) {
  if (!says_unsupported(error)) {
    CUDA_CHECK(error);
    return count;
  }
  (void)cudaGetLastError();  // not sticky: answered here
  return 0;
}

}  // namespace

void launch_cuda(const Context& context, const LaunchConfig& c, const void* kernel,
                 void** arguments) {
  CUDA_CHECK(cudaSetDevice(context.device->index()));  // the kernel is loaded there
  CUDA_CHECK(raise_limits(c, kernel));
  if (c.cluster > 1) {
    bool has_code = false;
    CUDA_CHECK(find_cluster_code(kernel, &has_code));
    RONDO_CHECK(has_code, describe(c), ": compiled for an architecture without clusters");
  }
  CudaLaunch launch(c);
  launch.config.stream = static_cast<cudaStream_t>(context.stream->native());
  note_launch(c);
  const cudaError_t error = cudaLaunchKernelExC(&launch.config, kernel, arguments);
  RONDO_CHECK(error == cudaSuccess, describe(c), ": ", describe_cuda_error(error));
}

int resident_clusters(const LaunchConfig& c, const void* kernel) {
  LaunchConfig shape = c;
  shape.cooperative = false;  // nothing says that the question may be put with more than a shape
  const CudaLaunch launch(shape);
  int device = 0, clusters = 0, count = 0;
  bool has_code = false;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device);
  }
  if (error == cudaSuccess && clusters == 0) return 0;
  if (error == cudaSuccess) error = find_cluster_code(kernel, &has_code);
  if (error == cudaSuccess && !has_code) return 0;
  if (error == cudaSuccess) error = raise_limits(c, kernel);
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config);
  return supported_count(error, count);
}

int resident_blocks(const LaunchConfig& c, const void* kernel) {
  int device = 0, processors = 0, per_processor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) error = raise_limits(c, kernel);
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &per_processor, kernel, static_cast<int>(c.block.count()), c.shared_bytes);
  }
  return supported_count(error, processors * per_processor);
}

}  // namespace detail

namespace {

// For calls that wait: what they report is mostly the failure of an earlier kernel.
void check_work(cudaError_t error) {
  RONDO_CHECK(error == cudaSuccess, "work on a GPU failed: ", detail::describe_cuda_error(error),
              "; enqueued last, newest first: ", recent_launches());
}

class CudaStream final : public detail::StreamImpl {
 public:
  explicit CudaStream(int device) : device_(device) {
    CUDA_CHECK(cudaSetDevice(device_));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  // Work in flight goes on; callbacks refer to this object, so they are waited for.
  ~CudaStream() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void enqueue(std::function<void()> work) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CUDA_CHECK(cudaStreamIsCapturing(stream_, &status));
    RONDO_CHECK(status == cudaStreamCaptureStatusNone, "host work cannot be recorded");
    auto task = std::make_unique<Task>(Task{this, std::move(work)});
    CUDA_CHECK(cudaLaunchHostFunc(stream_, run_task, task.get()));
    (void)task.release();  // run_task owns it now
  }
  // Host functions of all streams may share one thread, and what it waits for may be behind it.
  void enqueue_until(std::function<bool()>) override {
    RONDO_CHECK(false, "a GPU's stream cannot wait for the host");
  }
  void synchronize() override {
    check_work(cudaStreamSynchronize(stream_));
    std::exception_ptr failure;
    {
      const std::lock_guard lock(mutex_);
      failure = std::exchange(failure_, nullptr);
    }
    if (failure) std::rethrow_exception(failure);
  }
  void* native() override { return stream_; }

 private:
  struct Task {
    CudaStream* stream;
    std::function<void()> work;
  };
  static void CUDART_CB run_task(void* argument) {
    const std::unique_ptr<Task> task(static_cast<Task*>(argument));
    try {
      task->work();
    } catch (...) {  // rethrown by synchronize()
      const std::lock_guard lock(task->stream->mutex_);
      if (!task->stream->failure_) task->stream->failure_ = std::current_exception();
    }
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

cudaStream_t native(detail::StreamImpl& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

class CudaEvent final : public detail::EventImpl {
 public:
  CudaEvent(int device, unsigned flags) {
    CUDA_CHECK(cudaSetDevice(device));
    CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(detail::StreamImpl& stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CUDA_CHECK(cudaStreamIsCapturing(native(stream), &status));
    // In a graph it becomes a node that marks the event at every launch, for those outside; without
    // the flag it would be a dependency inside the graph.
    const unsigned flags =
        status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
    CUDA_CHECK(cudaEventRecordWithFlags(event_, native(stream), flags));
  }
  void wait(detail::StreamImpl& stream) override {
    CUDA_CHECK(cudaStreamWaitEvent(native(stream), event_, 0));
  }
  void synchronize() override { check_work(cudaEventSynchronize(event_)); }
  bool done() override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    check_work(state);
    return true;
  }
  double seconds_since(detail::EventImpl& earlier) override {
    float milliseconds = 0;
    CUDA_CHECK(
        cudaEventElapsedTime(&milliseconds, static_cast<CudaEvent&>(earlier).event_, event_));
    return 1e-3 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public detail::CapturedImpl {
 public:
  CudaGraph(int device, cudaGraph_t graph) : device_(device) {
    const cudaError_t error = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    CUDA_CHECK(error);
  }
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(detail::StreamImpl& stream) override {
    note_recorded_launch();
    CUDA_CHECK(cudaSetDevice(device_));
    CUDA_CHECK(cudaGraphLaunch(graph_, native(stream)));
  }

 private:
  int device_;
  cudaGraphExec_t graph_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    CUDA_CHECK(cudaGetDeviceProperties(&properties_, index));
  }
  DeviceKind kind() const override { return DeviceKind::cuda; }
  int index() const override { return index_; }
  std::string describe() const override {
    return str(properties_.name, " (cuda:", index_, ", sm_", properties_.major, properties_.minor,
               ", ", properties_.totalGlobalMem >> 20, " MiB, CUDA ", CUDART_VERSION / 1000, ".",
               CUDART_VERSION % 1000 / 10, ")");
  }

  std::string identity() const {
    CUDA_CHECK(cudaSetDevice(index_));
    int driver = 0;
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    return str(properties_.name, ", sm_", properties_.major, properties_.minor, ", ",
               properties_.multiProcessorCount,
               " multiprocessors, clusters of 8: ", detail::resident_probe_clusters(8),
               ", of 16: ", detail::resident_probe_clusters(16), ", driver ", driver);
  }

  void* allocate(size_t bytes, const char* purpose) override {
    CUDA_CHECK(cudaSetDevice(index_));
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // not sticky: reported here
      throw OutOfMemory(out_of_memory(describe(), bytes, purpose, free_memory()));
    }
    CUDA_CHECK(error);
    return memory;
  }
  void deallocate(void* memory, size_t) noexcept override { cudaFree(memory); }
  size_t free_memory() const override {
    size_t free = 0, total = 0;
    CUDA_CHECK(cudaSetDevice(index_));
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }
  void* allocate_staging(size_t bytes, const char* purpose) override {
    CUDA_CHECK(cudaSetDevice(index_));
    void* memory = nullptr;
    const cudaError_t error = cudaMallocHost(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw OutOfMemory(out_of_memory("the host (page-locked)", bytes, purpose, 0));
    }
    CUDA_CHECK(error);
    return memory;
  }
  void deallocate_staging(void* memory) noexcept override { cudaFreeHost(memory); }

  bool can_capture() const override { return true; }
  // Other threads' work (loading data) is none of the recording's business.
  void begin_capture(Stream& stream) override {
    CUDA_CHECK(cudaSetDevice(index_));
    CUDA_CHECK(cudaStreamBeginCapture(native(stream.impl()), cudaStreamCaptureModeThreadLocal));
  }
  CapturedWork end_capture(Stream& stream) override {
    cudaGraph_t graph = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(native(stream.impl()), &graph));
    return CapturedWork(std::make_unique<CudaGraph>(index_, graph));
  }

  Stream make_stream() override { return Stream(std::make_unique<CudaStream>(index_)); }
  Event make_event() override {
    return Event(std::make_unique<CudaEvent>(index_, cudaEventDisableTiming));
  }
  Event make_timed_event() override {
    return Event(std::make_unique<CudaEvent>(index_, cudaEventDefault));
  }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    CUDA_CHECK(cudaSetDevice(index_));
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream.impl())));
  }
  void fill_bytes(Stream& stream, void* to, int byte, size_t bytes) override {
    if (bytes == 0) return;
    CUDA_CHECK(cudaSetDevice(index_));
    CUDA_CHECK(cudaMemsetAsync(to, byte, bytes, native(stream.impl())));
  }
  void copy_rows(Stream& stream, const Rows& r) override {
    if (r.bytes == 0 || r.rows == 0) return;
    CUDA_CHECK(cudaSetDevice(index_));
    CUDA_CHECK(cudaMemcpy2DAsync(r.to, r.to_stride, r.from, r.from_stride, r.bytes, r.rows,
                                 cudaMemcpyDefault, native(stream.impl())));
  }

 private:
  int index_;
  cudaDeviceProp properties_{};
};

// The context is made here, which fails on a GPU that is full, broken or another process's alone.
std::unique_ptr<CudaDevice> open_device(int index, std::string* why) {
  try {
    CUDA_CHECK(cudaSetDevice(index));
    auto device = std::make_unique<CudaDevice>(index);
    if (detail::has_code_for_current_gpu()) return device;
    *why = str(device->describe(), " is none of the GPUs this program was built for");
  } catch (const Error& e) {
    (void)cudaGetLastError();
    *why = str("GPU ", index, " cannot be used: ", e.what());
  }
  return nullptr;
}

}  // namespace

int cuda_device_count(std::string* why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  *why = error == cudaSuccess ? std::string("there is none")
         : error == cudaErrorInsufficientDriver
             ? std::string("no CUDA driver, or one too old for this program")
             : detail::describe_cuda_error(error);
  return 0;
}

Device* cuda_device(int index, std::string* why) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<CudaDevice>> devices;
  const std::lock_guard lock(mutex);
  const int count = cuda_device_count(why);
  if (count == 0) return nullptr;
  if (index < 0 || index >= count) {
    *why = str("no GPU of index ", index, ": there are ", count);
    return nullptr;
  }
  devices.resize(std::max(devices.size(), static_cast<size_t>(count)));
  auto& device = devices[static_cast<size_t>(index)];
  if (!device) device = open_device(index, why);
  return device.get();
}

std::string gpu_identity(const Device& device) {
  RONDO_CHECK(device.kind() == DeviceKind::cuda, "the identity of a GPU asked of another device");
  return static_cast<const CudaDevice&>(device).identity();
}

}  // namespace rondo
