#include "engine/data/audio/sound_source.h"

#include <sndfile.h>

#include <algorithm>
#include <cstring>

#include "engine/data/audio/container_check.h"
#include "engine/data/audio/foreign_sound.h"
#include "engine/data/audio/sound_format.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo::data {
namespace {

constexpr int32_t lowest_rate = 100;
constexpr int32_t highest_rate = 768'000;
constexpr int32_t most_channels = 256;

}  // namespace

SoundSource::SoundSource(const FilePart& part, SoundReading reading)
    : name_(part.name()),
      reading_(reading),
      part_(part),
      file_(std::in_place, part.path),
      first_(part.first),
      size_(part.size_in(file_->size())) {}

SoundSource::SoundSource(std::span<const std::byte> bytes, std::string_view name,
                         SoundReading reading)
    : name_(name), reading_(reading), bytes_(bytes), size_(bytes.size()) {}

size_t SoundSource::read_at(uint64_t offset, std::span<std::byte> to) {
  if (offset >= size_) return 0;
  const auto n = static_cast<size_t>(std::min<uint64_t>(to.size(), size_ - offset));
  if (!file_) {
    copy_bytes(to.data(), bytes_.data() + offset, n);
    return n;
  }
  constexpr size_t most_of_a_header = 512;
  if (n > most_of_a_header) return file_->read_at(first_ + offset, to.first(n));
  if (offset < window_first_ || offset + n > window_first_ + window_size_) {
    const auto whole = static_cast<size_t>(std::min<uint64_t>(window_.size(), size_ - offset));
    window_first_ = offset;
    window_size_ = file_->read_at(first_ + offset, std::span(window_).first(whole));
  }
  const size_t got = std::min(n, window_size_ - static_cast<size_t>(offset - window_first_));
  copy_bytes(to.data(), window_.data() + (offset - window_first_), got);
  return got;
}

AudioInfo SoundSource::open() {
  if (size_ == 0) fail_input(name_, ": is empty, expected audio");
  AudioInfo info;
  look_for_the_end();
  if (!open_here(info)) {
    decode_elsewhere(sf_strerror(nullptr));
    look_for_the_end();
    if (!open_here(info))
      fail_input(name_, ": what ffmpeg made of it cannot be read: ", sf_strerror(nullptr));
  }
  check(info);
  return info;
}

bool SoundSource::seek(int64_t frame) {
  return sf_seek(static_cast<SNDFILE*>(opened_.get()), frame, SEEK_SET) == frame;
}

int64_t SoundSource::read(float* to, int64_t frames) {
  return sf_readf_float(static_cast<SNDFILE*>(opened_.get()), to, frames);
}

void SoundSource::Close::operator()(void* file) const { sf_close(static_cast<SNDFILE*>(file)); }

void SoundSource::look_for_the_end() {
  truncation_ = find_truncation(
      size_, [this](uint64_t offset, std::span<std::byte> to) { return read_at(offset, to); });
  if (!truncation_.empty() && !reading_.salvage)
    throw SoundError(SoundFault::truncated, str(name_, ": is truncated: ", truncation_));
}

struct SoundSource::Callbacks {
  static sf_count_t length(void* self) {
    return static_cast<sf_count_t>(static_cast<SoundSource*>(self)->size_);
  }
  static sf_count_t seek(sf_count_t offset, int whence, void* self) {
    auto* source = static_cast<SoundSource*>(self);
    sf_count_t base = 0;
    if (whence == SEEK_CUR) base = static_cast<sf_count_t>(source->at_);
    if (whence == SEEK_END) base = static_cast<sf_count_t>(source->size_);
    if (base + offset < 0) return -1;
    source->at_ = static_cast<uint64_t>(base + offset);
    return base + offset;
  }
  static sf_count_t read(void* to, sf_count_t count, void* self) {
    auto* source = static_cast<SoundSource*>(self);
    if (count <= 0) return 0;
    const size_t n =
        source->read_at(source->at_, {static_cast<std::byte*>(to), static_cast<size_t>(count)});
    source->at_ += n;
    return static_cast<sf_count_t>(n);
  }
  static sf_count_t tell(void* self) {
    return static_cast<sf_count_t>(static_cast<SoundSource*>(self)->at_);
  }
};

bool SoundSource::open_here(AudioInfo& info) {
  static SF_VIRTUAL_IO callbacks = {&Callbacks::length, &Callbacks::seek, &Callbacks::read, nullptr,
                                    &Callbacks::tell};
  at_ = 0;
  SF_INFO found{};
  opened_.reset(sf_open_virtual(&callbacks, SFM_READ, &found, this));
  info = {found.samplerate, found.channels, found.frames};
  return opened_ != nullptr;
}

void SoundSource::decode_elsewhere(const std::string& why) {
  std::string start(sound_format_bytes, '\0');
  start.resize(read_at(0, std::as_writable_bytes(std::span(start))));
  const SoundFormat format = sound_format(start);
  if (format.name.empty())
    fail_input(name_, ": is not audio that can be decoded (WAV, FLAC or Ogg expected): ", why);
  decoded_ = file_ ? decode_foreign_sound(part_, format.name)
                   : decode_foreign_sound(bytes_, name_, format.name);
  file_.reset();
  bytes_ = std::as_bytes(std::span(decoded_));
  size_ = bytes_.size();
}

void SoundSource::check(const AudioInfo& info) const {
  if (info.sample_rate < lowest_rate || info.sample_rate > highest_rate)
    fail_input(name_, ": has a sample rate of ", info.sample_rate, " Hz, expected ", lowest_rate,
               " to ", highest_rate);
  if (info.channels < 1 || info.channels > most_channels)
    fail_input(name_, ": has ", info.channels, " channels, expected 1 to ", most_channels);
  if (info.frames < 0 || info.frames == SF_COUNT_MAX)
    fail_input(name_, ": does not tell its length (damaged or truncated)");
}

}  // namespace rondo::data
