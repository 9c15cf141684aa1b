// Lines that were read to learn their sizes, kept until they are used for the first time: they are
// not read once more then. Where a line is level and centred by its ink, its header does not tell
// its size.
//
// Those that come first, as far as there is room. Once a line is wanted for the second time all
// have had their turn, and what is left is let go. Thread safety: several threads may ask at once.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/data/image/image.h"

namespace rondo::data {

class MeasuredLines {
 public:
  // The number to ask for it by; 0: there is no room.
  int64_t keep(const GreyImage& line) {
    const std::lock_guard lock(mutex_);
    if (bytes_ + line.pixels.size() > most_kept_page_bytes) return 0;
    bytes_ += line.pixels.size();
    lines_.emplace(++last_, line);
    return last_;
  }

  // Empty for what is not kept, or no more. `take`: it is used; otherwise it stays.
  std::optional<GreyImage> get(int64_t number, bool take) {
    if (number == 0) return {};
    const std::lock_guard lock(mutex_);
    const auto at = lines_.find(number);
    if (at == lines_.end()) {
      lines_.clear();
      return {};
    }
    if (!take) return at->second;
    std::optional<GreyImage> line = std::move(at->second);
    lines_.erase(at);
    return line;
  }

 private:
  std::mutex mutex_;
  int64_t last_ = 0;
  uint64_t bytes_ = 0;  // of all that were kept: used ones make no room
  std::map<int64_t, GreyImage> lines_;
};

}  // namespace rondo::data
