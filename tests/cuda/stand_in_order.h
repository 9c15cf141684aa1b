// Whether kernels that a thread puts into several streams are ordered. The stand-in does all work
// at once, so a wait that was forgotten changes no result there; here it shows.
//
// The rule is the project's, not CUDA's: a thread that goes on in another stream of a device has
// let it wait for an event of the one that it leaves, of a kernel since it came there, or has
// waited itself. Who puts independent work into two streams would break it, and nobody does.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>

namespace stand_in {

// How many kernels of each stream come before something.
struct Before {
  std::map<uint64_t, uint64_t> kernels;  // by number of the stream

  void take(const Before& other) {
    for (const auto& [stream, count] : other.kernels) {
      uint64_t& known = kernels[stream];
      known = std::max(known, count);
    }
  }
  uint64_t of(uint64_t stream) const {
    const auto it = kernels.find(stream);
    return it == kernels.end() ? 0 : it->second;
  }
};

// Of a stream. Not thread-safe.
struct StreamOrder {
  static uint64_t next() {
    static std::atomic<uint64_t> last = 0;
    return ++last;
  }
  uint64_t number = next();
  Before before;  // what comes after this moment; its own kernels are in it
};

// Of a thread on one device.
class ThreadOrder {
 public:
  // False: nothing orders it after what the thread has put into the stream before.
  bool kernel(StreamOrder& stream) {
    uint64_t& count = stream.before.kernels[stream.number];
    bool ordered = true;
    if (stream.number != last_) {
      ordered = last_ == 0 || std::max(stream.before.of(last_), waited_.of(last_)) > came_;
      last_ = stream.number;
      came_ = count;
    }
    ++count;
    return ordered;
  }
  void waited(const Before& before) { waited_.take(before); }

 private:
  Before waited_;
  uint64_t last_ = 0, came_ = 0;  // the stream of its latest kernels; how many were there before
};

}  // namespace stand_in
