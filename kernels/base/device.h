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
// Errors: allocation failures and device faults throw Error; destructors never throw.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace rondo {

enum class DeviceKind { cpu, sim, cuda };
const char* name_of(DeviceKind kind);

class Device;

namespace detail {
struct StreamImpl {
  virtual ~StreamImpl() = default;
  // Host work in stream order (cpu, sim); on cuda a host callback.
  virtual void enqueue(std::function<void()> work) = 0;
  virtual void synchronize() = 0;
  virtual void* native() { return nullptr; }  // cudaStream_t
};
struct EventImpl {
  virtual ~EventImpl() = default;
  virtual void record(StreamImpl& stream) = 0;
  virtual void wait(StreamImpl& stream) = 0;  // the stream waits, not the host
  virtual void synchronize() = 0;             // the host waits
  virtual bool done() = 0;
};
}  // namespace detail

// Move-only owner of an in-order queue of work.
class Stream {
 public:
  Stream() = default;
  explicit Stream(std::unique_ptr<detail::StreamImpl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return impl_ != nullptr; }
  void enqueue(std::function<void()> work) { impl_->enqueue(std::move(work)); }
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

 private:
  std::unique_ptr<detail::EventImpl> impl_;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string describe() const = 0;

  // 64-byte aligned (256 on cuda). `purpose` appears in the out-of-memory message.
  virtual void* allocate(size_t bytes, const char* purpose) = 0;
  virtual void deallocate(void* memory, size_t bytes) noexcept = 0;

  virtual Stream make_stream() = 0;
  virtual Event make_event() = 0;

  // Asynchronous in stream order; either side may be host memory. Host memory must stay alive and
  // unchanged until the stream has passed this point.
  virtual void copy(Stream& stream, void* to, const void* from, size_t bytes) = 0;
  virtual void fill_bytes(Stream& stream, void* to, int byte, size_t bytes) = 0;

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
  T* as() const { return static_cast<T*>(data_); }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace rondo
