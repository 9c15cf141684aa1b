// Staging memory for copies between a device and its host, used again and again: nothing is
// allocated once there are as many pieces as are in use at a time.
//
// One thread at a time. To destroy it waits for the copies that still use its memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/base/device.h"

namespace rondo {

class StagingPool {
 public:
  // A stream copies from or to `data()`, which has at least the bytes that were asked for.
  class Piece {
   public:
    std::byte* data() const { return memory_.data(); }
    // What `stream` has been given so far uses this memory.
    void record(Stream& stream);
    // Whether the stream has come to what was recorded; to wait for that.
    bool passed() { return !recorded_ || event_.done(); }
    void wait();

   private:
    friend class StagingPool;
    StagingBuffer memory_;
    Event event_;
    bool recorded_ = false, taken_ = false;
  };

  // `purpose` appears when memory is short.
  StagingPool(Device& device, const char* purpose) : device_(&device), purpose_(purpose) {}
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // A piece that nobody uses; it is the caller's until it is given back.
  Piece& take(size_t bytes);
  // From now on for others, as soon as what was recorded has passed.
  void give_back(Piece& piece) { piece.taken_ = false; }

 private:
  Device* device_;
  const char* purpose_;
  std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace rondo
