// What a few updates of a run do, as a trace that browsers show (rondo train --profile).
//
// The file is JSON in the Trace Event Format of Chrome: complete events ("ph": "X") in
// microseconds, a process per rank, and in it the host, the device and the messages as threads.
// Perfetto (ui.perfetto.dev) and chrome://tracing open it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/graph/trace.h"
#include "engine/reduce/ranks.h"

namespace rondo {

// One thread, which trains.
class Profile {
 public:
  // The first updates of a process differ from those that follow: memory is laid out in them.
  static constexpr int64_t skipped = 5, most = 3;
  // Borrows what the context points to.
  Profile(std::string path, const Context& context, const Ranks& ranks)
      : path_(std::move(path)), ranks_(ranks), trace_(*context.device, *context.stream) {}

  // In front of the update of this number. Ranks come together where the trace begins.
  void before_update(int64_t step);
  // Whether the trace is complete once this update's results are there.
  bool complete(int64_t step) const { return records_ && step >= first_ + most - 1; }
  // Ends the trace behind the update of this number, whose results have been read, and writes the
  // file, all ranks together. What it shows, in a sentence; of a run that has come to its end
  // before, that it shows nothing. Throws InputError if the disk refuses.
  std::string finish(int64_t step);

 private:
  std::string path_;
  const Ranks ranks_;
  Trace trace_;
  int64_t seen_ = 0, first_ = 0;
  bool records_ = false;
};

}  // namespace rondo
