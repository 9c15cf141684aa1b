// Decoded images that are asked for again and again: pages, of which one line is read at a time
// (internal to engine/data/image).
//
// Thread safety: several threads may ask at once; who asks for an image that another one decodes
// waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "engine/data/image/grey_image.h"

namespace rondo::image {

class KeptImages {
 public:
  // As many as fit into so many bytes of pixels, those that were asked for last; the last one in
  // any case.
  explicit KeptImages(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  // The image of that name, which `decode` makes where it is not kept. What that throws is passed
  // on, and nothing kept.
  std::shared_ptr<const GreyImage> get(const std::string& name,
                                       const std::function<GreyImage()>& decode);

 private:
  struct Slot {
    std::mutex decoding;
    std::shared_ptr<const GreyImage> image;  // by `decoding`
    uint64_t bytes = 0;                      // by mutex_; 0: not counted yet
    std::list<std::string>::iterator place;  // by mutex_
  };

  void forget_old(const Slot* newest);

  const uint64_t most_bytes_;
  std::mutex mutex_;
  uint64_t bytes_ = 0;
  std::list<std::string> order_;  // the last asked for in front
  std::map<std::string, std::shared_ptr<Slot>> slots_;
};

}  // namespace rondo::image
