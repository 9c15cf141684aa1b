// The part of CUDA's runtime that the project calls, without a GPU: linked before the real one, it
// makes programs believe in one or more GPUs of the H200's shape. Kernels do nothing; copies, fills
// and recordings do what they should, at once. So results are worthless, and what the host does is
// real.
//
// What CUDA forbids, and the simulator cannot see, is written down as misuse:
//   * the host may not touch device memory (the addresses that are handed out are not mapped: it
//     crashes), nor free what is not there;
//   * while a stream records: no allocation, no waiting, no copy of pageable memory, no event from
//     outside the recording, and the stream that began ends it in the same thread;
//   * kernels, copies and events go to streams of the thread's current device;
//   * a launch fits the device, and asks for large shared memory and clusters above 8 first;
//   * what a stream calls on the host may not call CUDA.
// Nor may kernels go to two streams without an event between them (stand_in_order.h).
// The program then says so on standard error, and its exit status is 99.
//
// RONDO_STAND_IN_GPUS: how many GPUs (default 1). RONDO_STAND_IN_LOG: a file that gets a line for
// each recording and each replay. RONDO_STAND_IN_STILL: copies and fills move nothing, for whoever
// counts what the host itself does.
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/stand_in_order.h"

// ---- what is there ----

struct CUgraph_st {
  std::vector<std::function<void()>> work;
  size_t kernels = 0;
};
struct CUgraphExec_st {
  CUgraph_st graph;
  int device;
};
struct CUstream_st {
  int device;
  std::unique_ptr<CUgraph_st> recording;
  std::thread::id recorder;
  stand_in::StreamOrder order = {};
};
struct CUevent_st {
  int device;
  const CUgraph_st* recorded_in = nullptr;  // null: not in a recording
  bool timed = false;
  std::chrono::steady_clock::time_point passed{};  // the epoch: never
  stand_in::Before order = {};
};

namespace {

constexpr int processors = 132, resident_threads = 2048;
constexpr size_t shared_of_processor = 228 * 1024, most_shared = 227 * 1024;
constexpr size_t shared_without_asking = 48 * 1024, page = 4096;

struct Memory {
  size_t bytes;
  std::byte* real;  // what `bytes` at the address hold, mapped elsewhere
  void* address;
  size_t mapped;
  int device;
};
struct Kernel {
  std::string name = "a kernel that was never registered";
  size_t shared = shared_without_asking;
  bool large_clusters = false;
};

struct World {
  std::mutex mutex;
  std::map<uintptr_t, Memory> device_memory;
  std::map<uintptr_t, size_t> pinned;
  std::map<const void*, Kernel> kernels;
  size_t allocated = 0;
  std::atomic<int> misuses = 0;
  FILE* log = nullptr;

  World() {
    if (const char* path = std::getenv("RONDO_STAND_IN_LOG")) log = std::fopen(path, "a");
  }
};
World& world() {
  static World& w = *new World;
  return w;
}

thread_local int current = 0;
thread_local bool in_callback = false;
thread_local int recordings = 0;                           // that this thread has begun
thread_local cudaStream_t running = nullptr;               // whose work is being done
thread_local std::map<int, stand_in::ThreadOrder> orders;  // by device

void leave_with_misuses() {
  if (world().misuses > 0) _exit(99);
}

cudaError_t misuse(const std::string& what, cudaError_t error = cudaErrorInvalidValue) {
  if (world().misuses++ == 0) std::atexit(leave_with_misuses);
  std::fprintf(stderr, "CUDA stand-in: %s\n", what.c_str());
  return error;
}

// Begins every call.
void enter(const char* call) {
  if (in_callback) misuse(std::string(call) + " in a stream's host function");
}
void enter_unrecorded(const char* call) {
  enter(call);
  if (recordings > 0) misuse(std::string(call) + " while recording");
}

int gpus() {
  const char* text = std::getenv("RONDO_STAND_IN_GPUS");
  return text ? std::atoi(text) : 1;
}

// The allocation around an address; none: host memory.
const Memory* find(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  auto it = world().device_memory.upper_bound(at);
  if (it == world().device_memory.begin()) return nullptr;
  --it;
  return at < it->first + it->second.bytes ? &it->second : nullptr;
}
bool is_pinned(const void* p, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  auto it = world().pinned.upper_bound(at);
  if (it == world().pinned.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second;
}
// Where bytes really are; null, with a misuse, when they pass the end of their allocation.
std::byte* real(const void* p, size_t bytes, bool recording, const char* call) {
  const std::lock_guard lock(world().mutex);
  const auto at = reinterpret_cast<uintptr_t>(p);
  if (const Memory* m = find(p)) {
    const size_t offset = at - reinterpret_cast<uintptr_t>(m->address);
    if (offset + bytes <= m->bytes) return m->real + offset;
    misuse(std::string(call) + " beyond an allocation");
    return nullptr;
  }
  if (recording && !is_pinned(p, bytes)) {
    misuse(std::string(call) + " of pageable memory while recording");
  }
  return static_cast<std::byte*>(const_cast<void*>(p));
}

// On a stream: recorded, or done at once.
cudaError_t enqueue(cudaStream_t stream, const char* call, std::function<void()> work) {
  if (stream == nullptr) return misuse(std::string(call) + " on the default stream");
  if (stream->device != current) {
    return misuse(std::string(call) + " on a stream of another device than the current one",
                  cudaErrorInvalidResourceHandle);
  }
  if (stream->recording) {
    stream->recording->work.push_back(std::move(work));
  } else {
    running = stream;
    work();
  }
  return cudaSuccess;
}

// A kernel of `running`.
void kernel_runs() {
  const std::lock_guard lock(world().mutex);
  if (!orders[running->device].kernel(running->order)) {
    misuse("kernels in two streams and no event between them");
  }
}

// The host has waited for what comes before an event, or for a stream.
void host_waited(int device, const stand_in::Before& before) {
  const std::lock_guard lock(world().mutex);
  orders[device].waited(before);
}

int blocks_per_processor(size_t threads, size_t shared) {
  return static_cast<int>(std::min({size_t{32}, resident_threads / std::max<size_t>(threads, 1),
                                    shared_of_processor / (shared + 1024)}));
}

struct Shape {
  uint64_t grid, block;
  unsigned cluster = 1;
  bool cooperative = false;

  explicit Shape(const cudaLaunchConfig_t& c)
      : grid(uint64_t{c.gridDim.x} * c.gridDim.y * c.gridDim.z),
        block(uint64_t{c.blockDim.x} * c.blockDim.y * c.blockDim.z) {
    for (unsigned i = 0; i < c.numAttrs; ++i) {
      const cudaLaunchAttribute& a = c.attrs[i];
      if (a.id == cudaLaunchAttributeClusterDimension) {
        cluster = a.val.clusterDim.x * a.val.clusterDim.y * a.val.clusterDim.z;
      } else if (a.id == cudaLaunchAttributeCooperative) {
        cooperative = a.val.cooperative;
      } else {
        misuse("a launch attribute that this stand-in does not know");
      }
    }
  }
};

cudaError_t check_shape(const cudaLaunchConfig_t& c, const Kernel& k) {
  const Shape s(c);
  const uint64_t resident = uint64_t{processors} * static_cast<uint64_t>(blocks_per_processor(
                                                       s.block, c.dynamicSmemBytes));
  const char* wrong = nullptr;
  if (s.grid == 0 || s.block == 0) wrong = "nothing to launch";
  if (s.block > 1024 || c.blockDim.z > 64) wrong = "too large a block";
  if (c.gridDim.y > 65535 || c.gridDim.z > 65535) wrong = "too large a grid";
  if (c.dynamicSmemBytes > k.shared) wrong = "more shared memory than was asked for";
  if (s.cluster > 16 || c.gridDim.x % s.cluster != 0) wrong = "clusters that do not fit";
  if (s.cluster > 8 && !k.large_clusters) wrong = "clusters above 8 that were not asked for";
  if (s.cooperative && s.grid > resident) wrong = "a cooperative grid that is not resident";
  return wrong ? misuse(k.name + ": " + wrong, cudaErrorInvalidConfiguration) : cudaSuccess;
}

}  // namespace

extern "C" {

// ---- what nvcc's objects call ----

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  world().kernels[host].name = name;
}
unsigned __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaErrorNotSupported; }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return cudaErrorNotSupported;
}

// ---- devices ----

cudaError_t cudaGetDeviceCount(int* count) {
  enter("cudaGetDeviceCount");
  *count = gpus();
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaDriverGetVersion(int* version) {
  enter("cudaDriverGetVersion");
  *version = 1000 * (CUDART_VERSION / 1000);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  enter("cudaSetDevice");
  if (device < 0 || device >= gpus()) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "CUDA stand-in");
  p->major = 9;
  p->totalGlobalMem = size_t{139} << 30;
  p->multiProcessorCount = 132;
  p->sharedMemPerBlockOptin = size_t{227} << 10;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute == cudaDevAttrClusterLaunch)
    *value = 1;
  else if (attribute == cudaDevAttrMultiProcessorCount)
    *value = processors;
  else
    return misuse("an attribute that this stand-in does not know");
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfTheStandIn"; }
const char* cudaGetErrorString(cudaError_t) { return "see above"; }

// ---- memory ----

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  enter_unrecorded("cudaMalloc");
  const size_t mapped = (bytes + page - 1) / page * page;
  const int file = memfd_create("device memory", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(mapped)) != 0)
    return cudaErrorMemoryAllocation;
  void* real = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  // 256 bytes past a page: no stricter alignment may be taken for granted.
  void* shown = mmap(nullptr, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  close(file);
  if (real == MAP_FAILED || shown == MAP_FAILED) return cudaErrorMemoryAllocation;
  *memory = static_cast<std::byte*>(shown) + 256;
  const std::lock_guard lock(world().mutex);
  world().allocated += bytes;
  world().device_memory[reinterpret_cast<uintptr_t>(*memory)] = {
      bytes, static_cast<std::byte*>(real), *memory, mapped, current};
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  enter_unrecorded("cudaFree");
  const std::lock_guard lock(world().mutex);
  const auto it = world().device_memory.find(reinterpret_cast<uintptr_t>(memory));
  if (it == world().device_memory.end()) return misuse("cudaFree of what is not there");
  munmap(it->second.real, it->second.mapped);
  munmap(static_cast<std::byte*>(memory) - 256, it->second.mapped + page);
  world().allocated -= it->second.bytes;
  world().device_memory.erase(it);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  enter_unrecorded("cudaMallocHost");
  *memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  const std::lock_guard lock(world().mutex);
  world().pinned[reinterpret_cast<uintptr_t>(*memory)] = bytes;
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* memory) {
  enter_unrecorded("cudaFreeHost");
  const std::lock_guard lock(world().mutex);
  if (world().pinned.erase(reinterpret_cast<uintptr_t>(memory)) == 0) {
    return misuse("cudaFreeHost of what is not there");
  }
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  enter_unrecorded("cudaMemGetInfo");
  *total = size_t{139} << 30;
  *free = *total - world().allocated;
  return cudaSuccess;
}
// What a GPU's engines would do meanwhile.
static bool still() {
  static const bool asked = std::getenv("RONDO_STAND_IN_STILL") != nullptr;
  return asked;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t rows, cudaMemcpyKind, cudaStream_t stream) {
  enter("cudaMemcpy2DAsync");
  const bool recording = stream && stream->recording;
  if (width > to_pitch || width > from_pitch) return misuse("rows that overlap");
  std::byte* t = real(to, (rows - 1) * to_pitch + width, recording, "a copy");
  const std::byte* f = real(from, (rows - 1) * from_pitch + width, recording, "a copy");
  if (!t || !f) return cudaErrorInvalidValue;
  return enqueue(stream, "a copy", [=] {
    if (still()) return;
    for (size_t r = 0; r < rows; ++r) std::memmove(t + r * to_pitch, f + r * from_pitch, width);
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  enter("cudaMemsetAsync");
  {
    const std::lock_guard lock(world().mutex);
    if (!find(to)) return misuse("a fill of host memory");
  }
  std::byte* t = real(to, bytes, stream && stream->recording, "a fill");
  if (!t) return cudaErrorInvalidValue;
  return enqueue(stream, "a fill", [=] {
    if (!still()) std::memset(t, value, bytes);
  });
}

// ---- streams and events ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  enter_unrecorded("cudaStreamCreateWithFlags");
  *stream = new CUstream_st{current, nullptr, {}};
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  enter("cudaStreamDestroy");
  if (stream->recording) misuse("a stream ends while it records");
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  enter_unrecorded("cudaStreamSynchronize");
  if (stream->recording) return misuse("waiting for a stream that records");
  host_waited(stream->device, stream->order.before);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  enter("cudaLaunchHostFunc");
  return enqueue(stream, "a host function", [=] {
    in_callback = true;
    function(data);
    in_callback = false;
  });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  enter("cudaEventCreateWithFlags");
  *event = new CUevent_st{current};
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  enter("cudaEventDestroy");
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  enter("cudaEventRecordWithFlags");
  if (event->device != stream->device) return misuse("an event on another device's stream");
  const bool external = (flags & cudaEventRecordExternal) != 0;
  if (external && !stream->recording) return misuse("an event of a recording without one");
  event->recorded_in = external ? nullptr : stream->recording.get();
  const auto pass = [=] {
    const std::lock_guard lock(world().mutex);
    event->passed = std::chrono::steady_clock::now();
    event->order = running->order.before;
  };
  if (external) {
    stream->recording->work.push_back(pass);
  } else {
    running = stream;
    pass();
  }
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  enter("cudaStreamWaitEvent");
  if (event->recorded_in == stream->recording.get()) {
    const std::lock_guard lock(world().mutex);
    if (!stream->recording) stream->order.before.take(event->order);
    return cudaSuccess;
  }
  return misuse("a wait that leads into or out of a recording", cudaErrorStreamCaptureIsolation);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  enter_unrecorded("cudaEventSynchronize");
  if (event->recorded_in) return misuse("waiting for an event of a recording");
  host_waited(event->device, event->order);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  enter_unrecorded("cudaEventQuery");
  if (event->recorded_in) return misuse("asking an event of a recording");
  host_waited(event->device, event->order);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  enter_unrecorded("cudaEventElapsedTime");
  for (const cudaEvent_t e : {start, end}) {
    if (!e->timed || e->recorded_in) return misuse("the time of an event that has none");
    if (e->passed == decltype(e->passed)()) return misuse("the time of an event not recorded");
  }
  if (start->device != end->device) return misuse("the time between two devices' events");
  *milliseconds = std::chrono::duration<float, std::milli>(end->passed - start->passed).count();
  return cudaSuccess;
}

// ---- recordings ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  enter("cudaStreamBeginCapture");
  if (stream->recording) return misuse("a stream that records already");
  if (mode == cudaStreamCaptureModeRelaxed) return misuse("a recording that forbids nothing");
  stream->recording = std::make_unique<CUgraph_st>();
  stream->recorder = std::this_thread::get_id();
  ++recordings;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  enter("cudaStreamEndCapture");
  if (!stream->recording) return misuse("a recording ends that never began");
  if (stream->recorder != std::this_thread::get_id()) misuse("another thread ends a recording");
  --recordings;
  *graph = stream->recording.release();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  enter_unrecorded("cudaGraphInstantiate");
  *made = new CUgraphExec_st{*graph, current};
  if (world().log) {
    std::fprintf(world().log, "recorded %zu kernels %zu works\n", graph->kernels,
                 graph->work.size());
    std::fflush(world().log);
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  enter_unrecorded("cudaGraphLaunch");
  if (graph->device != stream->device) return misuse("a recording of another device");
  if (world().log) {
    std::fprintf(world().log, "replayed %zu kernels\n", graph->graph.kernels);
    std::fflush(world().log);
  }
  return enqueue(stream, "a replay", [graph] {
    for (const auto& work : graph->graph.work) work();
  });
}

// ---- kernels ----

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  enter("cudaFuncGetAttributes");
  *attributes = {};
  attributes->ptxVersion = attributes->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  enter("cudaFuncSetAttribute");
  const std::lock_guard lock(world().mutex);
  Kernel& k = world().kernels[kernel];
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || static_cast<size_t>(value) > most_shared) return cudaErrorInvalidValue;
    k.shared = std::max(shared_without_asking, static_cast<size_t>(value));
  } else if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
    k.large_clusters = value != 0;
  } else {
    return misuse("a function attribute that this stand-in does not know");
  }
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          size_t shared) {
  enter("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = blocks_per_processor(static_cast<size_t>(threads), shared);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel,
                                           const cudaLaunchConfig_t* config) {
  enter("cudaOccupancyMaxActiveClusters");
  const std::lock_guard lock(world().mutex);
  if (const cudaError_t error = check_shape(*config, world().kernels[kernel])) return error;
  const Shape s(*config);
  if (s.cooperative) return misuse("occupancy of a cooperative launch");
  // Processors come in groups of 16 or 18, and a cluster lies within one.
  const int per_processor = blocks_per_processor(s.block, config->dynamicSmemBytes);
  *clusters = 8 * (16 * per_processor / static_cast<int>(s.cluster));
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  enter("cudaLaunchKernelExC");
  {
    const std::lock_guard lock(world().mutex);
    const auto it = world().kernels.find(kernel);
    if (it == world().kernels.end()) return cudaErrorInvalidDeviceFunction;
    if (const cudaError_t error = check_shape(*config, it->second)) return error;
  }
  if (config->stream && config->stream->recording) ++config->stream->recording->kernels;
  return enqueue(config->stream, "a kernel", kernel_runs);
}

}  // extern "C"
