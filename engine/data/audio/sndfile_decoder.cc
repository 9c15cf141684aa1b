#include <sndfile.h>

#include <utility>

#include "engine/data/audio/sound_decoder.h"

namespace rondo::data {
namespace {

class SndfileDecoder final : public SoundDecoder {
 public:
  explicit SndfileDecoder(SoundBytes bytes) : bytes_(std::move(bytes)) {}

  bool open(AudioInfo& info) {
    static SF_VIRTUAL_IO callbacks = {&length, &seek_to, &read_on, nullptr, &tell};
    SF_INFO found{};
    file_.reset(sf_open_virtual(&callbacks, SFM_READ, &found, this));
    info = {found.samplerate, found.channels, found.frames};
    return file_ != nullptr;
  }
  bool seek(int64_t frame) override { return sf_seek(file_.get(), frame, SEEK_SET) == frame; }
  int64_t read(float* to, int64_t frames) override {
    return sf_readf_float(file_.get(), to, frames);
  }

 private:
  static SndfileDecoder& of(void* self) { return *static_cast<SndfileDecoder*>(self); }
  static sf_count_t length(void* self) { return static_cast<sf_count_t>(of(self).bytes_.size); }
  static sf_count_t seek_to(sf_count_t offset, int whence, void* self) {
    sf_count_t base = 0;
    if (whence == SEEK_CUR) base = static_cast<sf_count_t>(of(self).at_);
    if (whence == SEEK_END) base = length(self);
    if (base + offset < 0) return -1;
    of(self).at_ = static_cast<uint64_t>(base + offset);
    return base + offset;
  }
  static sf_count_t read_on(void* to, sf_count_t count, void* self) {
    if (count <= 0) return 0;
    const size_t n = of(self).bytes_.read_at(
        of(self).at_, {static_cast<std::byte*>(to), static_cast<size_t>(count)});
    of(self).at_ += n;
    return static_cast<sf_count_t>(n);
  }
  static sf_count_t tell(void* self) { return static_cast<sf_count_t>(of(self).at_); }

  struct Close {
    void operator()(SNDFILE* file) const { sf_close(file); }
  };

  SoundBytes bytes_;
  uint64_t at_ = 0;
  std::unique_ptr<SNDFILE, Close> file_;  // borrows this
};

}  // namespace

OpenedSound open_with_sndfile(SoundBytes bytes) {
  OpenedSound opened;
  auto decoder = std::make_unique<SndfileDecoder>(std::move(bytes));
  if (decoder->open(opened.info)) {
    opened.decoder = std::move(decoder);
  } else {
    opened.problem = sf_strerror(nullptr);
  }
  return opened;
}

}  // namespace rondo::data
