#include "tools/evaluation/media.h"

#include <algorithm>

#include "engine/data/audio/audio.h"
#include "engine/data/image/image.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr double most_seconds = 15;
constexpr int32_t most_rate = 16000;

// At most so many pixels high, as the mean of squares of them: pages are looked at, not measured.
GreyImage shrunk(const GreyImage& image) {
  constexpr int32_t most_height = 96;
  const int32_t factor = (image.height + most_height - 1) / most_height;
  if (factor <= 1) return image;
  GreyImage small(std::max(image.width / factor, 1), image.height / factor);
  for (int32_t y = 0; y < small.height; ++y) {
    for (int32_t x = 0; x < small.width; ++x) {
      int32_t sum = 0, n = 0;
      for (int32_t dy = 0; dy < factor; ++dy) {
        for (int32_t at = x * factor; at < std::min((x + 1) * factor, image.width); ++at, ++n) {
          sum += image.row(y * factor + dy)[at];
        }
      }
      small.row(y)[x] = static_cast<uint8_t>(sum / n);
    }
  }
  return small;
}

std::string beginning_of(const ManifestEntry& e, const AudioReader& audio, int32_t rate,
                         double seconds) {
  AudioSegment segment = e.segment();
  if (seconds > most_seconds) segment.duration = most_seconds;
  return make_wav(audio.read(e.file(), std::min(rate, most_rate), segment));
}

}  // namespace

std::vector<WorstMedia> media_of(std::span<const int64_t> utterances, const ManifestDataset& data,
                                 const MediaReaders& readers, int32_t rate) {
  std::vector<WorstMedia> all;
  for (const int64_t index : utterances) {
    const ManifestEntry& e = data.entry(index);
    WorstMedia media;
    if (e.kind == InputKind::image)
      media.png = make_png(shrunk(read_region(*readers.images, e.file(), e.region)));
    if (e.kind == InputKind::recording) {
      media.wav = beginning_of(e, *readers.audio, rate, data.seconds(index));
      if (data.seconds(index) > most_seconds)
        media.note = str("the first ", most_seconds, " s can be heard");
    }
    all.push_back(std::move(media));
  }
  return all;
}

void add_media(const WorstMedia& media, report::AlignedUtterance& utterance) {
  utterance.png = media.png;
  utterance.wav = media.wav;
  if (!media.note.empty()) utterance.note += "; " + media.note;
}

}  // namespace rondo
