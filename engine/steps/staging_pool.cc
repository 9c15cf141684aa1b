#include "engine/steps/staging_pool.h"

#include <algorithm>

namespace rondo {

void StagingPool::Piece::record(Stream& stream) {
  event_.record(stream);
  recorded_ = true;
}

void StagingPool::Piece::wait() {
  if (recorded_) event_.synchronize();
}

StagingPool::~StagingPool() {
  for (const auto& piece : pieces_) {
    try {
      piece->wait();
    } catch (...) {  // the stream has failed: it does not copy any more
    }
  }
}

// The smallest that is large enough. Pieces are never made smaller than the largest one, so that
// messages of all sizes soon find room in any.
StagingPool::Piece& StagingPool::take(size_t bytes) {
  Piece* best = nullptr;
  size_t largest = bytes;
  for (const auto& piece : pieces_) {
    const size_t size = piece->memory_.bytes();
    largest = std::max(largest, size);
    const bool better = size >= bytes && (!best || size < best->memory_.bytes());
    if (better && !piece->taken_ && piece->passed()) best = piece.get();
  }
  if (!best) {
    best = pieces_.emplace_back(std::make_unique<Piece>()).get();
    best->memory_ = StagingBuffer(*device_, std::max<size_t>(largest, 1), purpose_);
    best->event_ = device_->make_event();
  }
  best->taken_ = true;
  best->recorded_ = false;
  return *best;
}

}  // namespace rondo
