#include "kernels/base/device.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/op.h"

namespace rondo {

const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::sim:
      return "sim";
    case DeviceKind::cuda:
      return "cuda";
  }
  return "?";
}

void fill_bytes(const Context& context, void* to, int byte, size_t bytes) {
  context.device->fill_bytes(*context.stream, to, byte, bytes);
}

// In one piece of work, which blocks the stream's thread.
void detail::StreamImpl::enqueue_until(std::function<bool()> done) {
  enqueue([done = std::move(done)] {
    while (!done()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  });
}

Buffer::Buffer(Device& device, size_t bytes, const char* purpose)
    : device_(&device), data_(bytes ? device.allocate(bytes, purpose) : nullptr), bytes_(bytes) {}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (data_) device_->deallocate(data_, bytes_);
    device_ = other.device_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Buffer::~Buffer() {
  if (data_) device_->deallocate(data_, bytes_);
}

void* Device::allocate_staging(size_t bytes, const char* purpose) {
  // Large buffers in large pages: a hint, which cuts the misses of address translation.
  constexpr size_t page = 2 << 20;
  const size_t alignment = bytes >= 2 * page ? page : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw OutOfMemory(out_of_memory("the host", bytes, purpose, 0));
  if (alignment == page) madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

void Device::deallocate_staging(void* memory) noexcept { std::free(memory); }

void Device::copy_rows(Stream& stream, const Rows& r) {
  for (size_t i = 0; i < r.rows; ++i) {
    copy(stream, static_cast<std::byte*>(r.to) + i * r.to_stride,
         static_cast<const std::byte*>(r.from) + i * r.from_stride, r.bytes);
  }
}

void Device::begin_capture(Stream&) {
  RONDO_CHECK(false, "work on ", describe(), " cannot be recorded");
}

CapturedWork Device::end_capture(Stream&) {
  RONDO_CHECK(false, "work on ", describe(), " cannot be recorded");
}

StagingBuffer::StagingBuffer(Device& device, size_t bytes, const char* purpose)
    : device_(&device),
      data_(bytes ? static_cast<std::byte*>(device.allocate_staging(bytes, purpose)) : nullptr),
      bytes_(bytes) {}

StagingBuffer::StagingBuffer(StagingBuffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  if (this != &other) {
    if (data_) device_->deallocate_staging(data_);
    device_ = other.device_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

StagingBuffer::~StagingBuffer() {
  if (data_) device_->deallocate_staging(data_);
}

std::string out_of_memory(const std::string& where, size_t bytes, const char* purpose,
                          size_t free) {
  return str("out of memory on ", where, ": ", bytes, " bytes asked for ", purpose,
             free ? str(", ", free, " free") : "");
}

namespace {

struct CpuStream final : detail::StreamImpl {
  void enqueue(std::function<void()> work) override { work(); }
  void synchronize() override {}
};

struct CpuEvent final : detail::EventImpl {
  using Clock = std::chrono::steady_clock;
  void record(detail::StreamImpl&) override { at = Clock::now(); }
  void wait(detail::StreamImpl&) override {}
  void synchronize() override {}
  bool done() override { return true; }
  double seconds_since(detail::EventImpl& earlier) override {
    return std::chrono::duration<double>(at - static_cast<CpuEvent&>(earlier).at).count();
  }
  Clock::time_point at{};
};

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string describe() const override { return "cpu"; }

  void* allocate(size_t bytes, const char* purpose) override {
    return allocate_staging(bytes, purpose);
  }
  void deallocate(void* memory, size_t) noexcept override { std::free(memory); }

  Stream make_stream() override { return Stream(std::make_unique<CpuStream>()); }
  Event make_event() override { return Event(std::make_unique<CpuEvent>()); }
  Event make_timed_event() override { return make_event(); }
  void copy(Stream&, void* to, const void* from, size_t bytes) override {
    if (bytes) std::memmove(to, from, bytes);
  }
  void fill_bytes(Stream&, void* to, int byte, size_t bytes) override {
    if (bytes) std::memset(to, byte, bytes);
  }
};

}  // namespace

Device& cpu_device() {
  static CpuDevice device;
  return device;
}

}  // namespace rondo
