#include "engine/data/audio/sound_source.h"

#include <algorithm>
#include <limits>

#include "engine/data/audio/container_check.h"
#include "engine/data/audio/foreign_sound.h"
#include "engine/data/audio/sound_decoder.h"
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

SoundSource::~SoundSource() = default;

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
  if (const std::string problem = open_here(info); !problem.empty()) {
    decode_elsewhere(problem);
    look_for_the_end();
    if (const std::string again = open_here(info); !again.empty())
      fail_input(name_, ": what ffmpeg made of it cannot be read: ", again);
  }
  check(info);
  return info;
}

bool SoundSource::seek(int64_t frame) { return decoder_->seek(frame); }

int64_t SoundSource::read(float* to, int64_t frames) { return decoder_->read(to, frames); }

void SoundSource::look_for_the_end() {
  truncation_ = find_truncation(
      size_, [this](uint64_t offset, std::span<std::byte> to) { return read_at(offset, to); });
  if (!truncation_.empty() && !reading_.salvage)
    throw SoundError(SoundFault::truncated, str(name_, ": is truncated: ", truncation_));
}

std::string SoundSource::open_here(AudioInfo& info) {
  const SoundBytes bytes{
      size_, [this](uint64_t offset, std::span<std::byte> to) { return read_at(offset, to); }};
#ifdef RONDO_HAVE_SNDFILE
  OpenedSound opened = open_with_sndfile(bytes);
#else
  OpenedSound opened = open_wav(bytes);
#endif
  info = opened.info;
  decoder_ = std::move(opened.decoder);
  return opened.problem;
}

void SoundSource::decode_elsewhere(const std::string& why) {
  std::string start(sound_format_bytes, '\0');
  start.resize(read_at(0, std::as_writable_bytes(std::span(start))));
  const SoundFormat format = sound_format(start);
  if (format.name.empty())
    fail_input(name_, ": is not audio that can be decoded (WAV, FLAC or Ogg expected): ", why);
  decoder_.reset();
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
  if (info.frames < 0 || info.frames == std::numeric_limits<int64_t>::max())
    fail_input(name_, ": does not tell its length (damaged or truncated)");
}

}  // namespace rondo::data
