// Work that is the same every time, as one launch where the device can record (a CUDA graph).
//
// The first run() does the work as it is: kernels are loaded then, which a recording must not see.
// The second records it, and from then on the record is launched. What the work names (memory,
// arguments) must stay as long as the Recording does. On devices that cannot record, and while a
// Trace looks at each piece of it (engine/graph/trace.h), run() does the work. One thread at a
// time.
#pragma once

#include "engine/graph/trace.h"
#include "kernels/base/device.h"
#include "kernels/base/op.h"

namespace rondo {

class Recording {
 public:
  // `work()` enqueues on context.stream, and nothing but that may differ from call to call.
  template <class Work>
  void run(const Context& context, const Work& work) {
    const bool traced = Trace::current() != nullptr;
    if (recorded_ && !traced) return recorded_.launch(*context.stream);
    if (!has_run_ || traced || !context.device->can_capture()) {
      work();
      has_run_ = true;
      return;
    }
    context.device->begin_capture(*context.stream);
    try {
      work();
    } catch (...) {
      abandon(context);
      throw;
    }
    recorded_ = context.device->end_capture(*context.stream);
    recorded_.launch(*context.stream);
  }

 private:
  // The stream must leave the recording; the first error is the one to tell.
  static void abandon(const Context& context) noexcept {
    try {
      (void)context.device->end_capture(*context.stream);
    } catch (const Error&) {
    }
  }
  bool has_run_ = false;
  CapturedWork recorded_;
};

}  // namespace rondo
