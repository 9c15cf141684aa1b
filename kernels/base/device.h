// Devices, memory, streams and events.
//
// A Device hands out memory and streams. Kinds:
//   cpu   host memory; a stream runs each piece of work at once, in the calling thread.
//   sim   the CUDA kernel sources on the host (kernels/simt): work waits in stream queues and is
//         interleaved between independent streams, so that a missing event wait shows.
//   cuda  a GPU.
// All work is enqueued on a named stream; there is no default stream and nothing synchronises
// behind the caller's back.
//
// Thread safety: a Device may be shared; a Stream, Event or Buffer is used by one thread at a time.
// Errors: allocation failures throw OutOfMemory, device faults Error; destructors never throw.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/error.h"

namespace rondo {

enum class DeviceKind { cpu, sim, cuda };
const char* name_of(DeviceKind kind);

class Device;

// The device has not as much memory as was asked for. The message says how much, and for what.
class OutOfMemory : public InputError {
 public:
  using InputError::InputError;
};

// "out of memory on the GPU: 9000 bytes asked for weights, 4000 free"; free 0: not known.
std::string out_of_memory(const std::string& where, size_t bytes, const char* purpose, size_t free);

namespace detail {
struct StreamImpl {
  virtual ~StreamImpl() = default;
  // Host work in stream order (cpu, sim); on cuda a host callback.
  virtual void enqueue(std::function<void()> work) = 0;
  virtual void enqueue_until(std::function<bool()> done);
  virtual void synchronize() = 0;
  virtual void* native() { return nullptr; }  // cudaStream_t
};
struct EventImpl {
  virtual ~EventImpl() = default;
  virtual void record(StreamImpl& stream) = 0;
  virtual void wait(StreamImpl& stream) = 0;  // the stream waits, not the host
  virtual void synchronize() = 0;             // the host waits
  virtual bool done() = 0;
  virtual double seconds_since(EventImpl& earlier) = 0;
};
struct CapturedImpl {
  virtual ~CapturedImpl() = default;
  virtual void launch(StreamImpl& stream) = 0;
};
}  // namespace detail

// Move-only owner of an in-order queue of work.
class Stream {
 public:
  Stream() = default;
  explicit Stream(std::unique_ptr<detail::StreamImpl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return impl_ != nullptr; }
  void enqueue(std::function<void()> work) { impl_->enqueue(std::move(work)); }
  // Holds up what is enqueued later until `done`, called again and again, is true: for what other
  // ranks do. It must return at once, and call no device. Not on cuda.
  void enqueue_until(std::function<bool()> done) { impl_->enqueue_until(std::move(done)); }
  void synchronize() { impl_->synchronize(); }
  void* native() { return impl_->native(); }
  detail::StreamImpl& impl() { return *impl_; }

 private:
  std::unique_ptr<detail::StreamImpl> impl_;
};

// Move-only owner of a marker in a stream.
class Event {
 public:
  Event() = default;
  explicit Event(std::unique_ptr<detail::EventImpl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return impl_ != nullptr; }
  void record(Stream& stream) { impl_->record(stream.impl()); }
  void wait(Stream& stream) { impl_->wait(stream.impl()); }
  void synchronize() { impl_->synchronize(); }
  bool done() { return impl_->done(); }
  // From when the device passed `earlier` to when it passed this one, negative if that was later.
  // Both are timed events of one device, recorded and done.
  double seconds_since(Event& earlier) { return impl_->seconds_since(*earlier.impl_); }

 private:
  std::unique_ptr<detail::EventImpl> impl_;
};

// Move-only owner of recorded work (a CUDA graph). What the work was bound to must outlive it.
class CapturedWork {
 public:
  CapturedWork() = default;
  explicit CapturedWork(std::unique_ptr<detail::CapturedImpl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return impl_ != nullptr; }
  // Enqueues all of it again, with the arguments it was recorded with.
  void launch(Stream& stream) { impl_->launch(stream.impl()); }

 private:
  std::unique_ptr<detail::CapturedImpl> impl_;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual int index() const { return 0; }  // among the devices of its kind
  virtual std::string describe() const = 0;

  // 64-byte aligned (256 on cuda). `purpose` appears in the out-of-memory message.
  virtual void* allocate(size_t bytes, const char* purpose) = 0;
  virtual void deallocate(void* memory, size_t bytes) noexcept = 0;
  // Bytes that allocate() could still hand out, about; 0: not known.
  virtual size_t free_memory() const { return 0; }
  // Host memory that copies reach without the host's help (page-locked on cuda), 64-byte aligned.
  virtual void* allocate_staging(size_t bytes, const char* purpose);
  virtual void deallocate_staging(void* memory) noexcept;

  virtual Stream make_stream() = 0;
  virtual Event make_event() = 0;
  // One that knows when it was passed (Event::seconds_since), which costs a little.
  virtual Event make_timed_event() = 0;

  // Asynchronous in stream order; either side may be host memory. Host memory must stay alive and
  // unchanged until the stream has passed this point.
  virtual void copy(Stream& stream, void* to, const void* from, size_t bytes) = 0;
  virtual void fill_bytes(Stream& stream, void* to, int byte, size_t bytes) = 0;
  // The same for `rows` pieces of `bytes` each, which begin `to_stride` and `from_stride` bytes
  // after one another.
  struct Rows {
    void* to;
    size_t to_stride;
    const void* from;
    size_t from_stride;
    size_t bytes, rows;
  };
  virtual void copy_rows(Stream& stream, const Rows& rows);

  // Between the two, what this thread enqueues on `stream` is recorded instead of run: kernels,
  // copies, fills, and marks of events, for streams that wait after a launch. Not on cpu.
  virtual bool can_capture() const { return false; }
  virtual void begin_capture(Stream& stream);
  virtual CapturedWork end_capture(Stream& stream);

  bool host_memory() const { return kind() != DeviceKind::cuda; }
};

// The process-wide CPU device; always there.
Device& cpu_device();

// Move-only owner of device memory.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, size_t bytes, const char* purpose);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device* device() const { return device_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Move-only owner of staging memory.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  StagingBuffer(Device& device, size_t bytes, const char* purpose);
  StagingBuffer(StagingBuffer&& other) noexcept;
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;
  ~StagingBuffer();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace rondo
