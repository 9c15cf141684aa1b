#include "engine/data/image/kept_images.h"

namespace rondo::image {

std::shared_ptr<const GreyImage> KeptImages::get(const std::string& name,
                                                 const std::function<GreyImage()>& decode) {
  std::shared_ptr<Slot> slot;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Slot>& there = slots_[name];
    if (there) {
      order_.splice(order_.begin(), order_, there->place);
    } else {
      there = std::make_shared<Slot>();
      order_.push_front(name);
      there->place = order_.begin();
    }
    slot = there;
  }
  const std::lock_guard decoding(slot->decoding);
  if (!slot->image) {
    slot->image = std::make_shared<const GreyImage>(decode());
    const std::lock_guard lock(mutex_);
    const auto there = slots_.find(name);
    // Others may have pushed it out meanwhile; then it is for those who have it.
    if (there != slots_.end() && there->second == slot) {
      slot->bytes = slot->image->pixels.size();
      bytes_ += slot->bytes;
      forget_old(slot.get());
    }
  }
  return slot->image;
}

void KeptImages::forget_old(const Slot* newest) {
  while (bytes_ > most_bytes_) {
    const auto oldest = slots_.find(order_.back());
    if (oldest->second.get() == newest) return;
    bytes_ -= oldest->second->bytes;
    slots_.erase(oldest);
    order_.pop_back();
  }
}

}  // namespace rondo::image
