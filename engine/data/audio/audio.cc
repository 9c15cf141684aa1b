#include "engine/data/audio/audio.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/audio/resample.h"
#include "engine/data/audio/sound_source.h"
#include "engine/data/audio/sound_stream.h"
#include "engine/data/features/files.h"
#include "engine/io/file.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr int32_t lowest_rate = 100;
constexpr int32_t highest_rate = 768'000;
constexpr int64_t block = 16384;  // frames

// One channel of frames that interleave `channels`, or their mean.
void mix_down(const float* interleaved, size_t channels, int32_t channel, std::span<float> mono) {
  if (channel >= 0) {
    interleaved += channel;
    for (float& x : mono) {
      x = *interleaved;
      interleaved += channels;
    }
    return;
  }
  const float share = 1.0f / static_cast<float>(channels);
  for (float& x : mono) {
    float sum = 0;
    for (size_t c = 0; c < channels; ++c) sum += interleaved[c];
    x = sum * share;
    interleaved += channels;
  }
}

[[noreturn]] void fail_sample(const std::string& name, int64_t at, int32_t rate, float value) {
  throw SoundError(SoundFault::no_number,
                   str(name, ": sample ", at, " (", static_cast<double>(at) / rate, " s) is ",
                       std::isfinite(value) ? str(value, ", expected one of about -1 to 1")
                                            : std::string("not a finite number")));
}

Waveform read_whole(SoundStream& sound) {
  Waveform audio;
  audio.sample_rate = sound.sample_rate();
  // The header may lie about the length: memory grows with what is really there.
  audio.samples.reserve(static_cast<size_t>(std::min<int64_t>(sound.samples(), int64_t{1} << 24)));
  while (sound.append(audio.samples)) {
  }
  return audio;
}

}  // namespace

struct SoundStream::State {
  State(const FilePart& file, SoundReading reading) : source(file, reading) {}
  State(std::span<const std::byte> bytes, std::string_view name, SoundReading reading)
      : source(bytes, name, reading) {}

  void open(int32_t wanted_rate, const AudioSegment& segment);
  bool read_block(std::vector<float>& mono);

  data::SoundSource source;
  AudioInfo info;
  int32_t rate = 0, channel = -1;
  SampleRange range;  // of the file
  int64_t read = 0;   // of it
  std::vector<float> interleaved;

  std::optional<ResamplerStream> resampler;  // none: the rate is the file's
  std::vector<float> mono;                   // at the file's rate, a block
  bool is_over = false;

  std::vector<float> pending;
  size_t given = 0;  // of them
};

void SoundStream::State::open(int32_t wanted_rate, const AudioSegment& segment) {
  RONDO_CHECK(wanted_rate == 0 || (wanted_rate >= lowest_rate && wanted_rate <= highest_rate),
              "sample rate is ", wanted_rate);
  info = source.open();
  require_channel(info, segment, source.name());
  channel = segment.channel;
  range = sample_range(info, segment);
  const bool whole = segment.offset == 0 && segment.duration < 0;
  if (range.count == 0 && !whole)
    fail_input(source.name(), ": the part from ", segment.offset, " s",
               segment.duration >= 0 ? str(" of ", segment.duration, " s") : "",
               " holds no samples (the recording has ", info.seconds(), " s)");
  rate = wanted_rate == 0 ? info.sample_rate : wanted_rate;
  if (rate != info.sample_rate) resampler.emplace(*shared_resampler(info.sample_rate, rate));
  // FLAC and Ogg seek slowly and, when damaged, not at all: only where needed.
  if (range.first > 0 && !source.seek(range.first))
    fail_input(source.name(), ": cannot be read from sample ", range.first, " of ", info.frames,
               " (damaged or truncated)");
  const auto channels = static_cast<size_t>(info.channels);
  if (channels > 1)
    interleaved.resize(static_cast<size_t>(std::min(block, range.count)) * channels);
}

// Appends; false at the end. The header may lie about the length, so nothing is made ready for what
// it announces.
bool SoundStream::State::read_block(std::vector<float>& to) {
  if (read == range.count) return false;
  const auto channels = static_cast<size_t>(info.channels);
  const size_t before = to.size();
  const int64_t want = std::min(block, range.count - read);
  to.resize(before + static_cast<size_t>(want));
  const int64_t got = source.read(channels > 1 ? interleaved.data() : to.data() + before, want);
  if (got <= 0 && !source.salvages())
    throw SoundError(SoundFault::truncated, str(source.name(), ": ends after ", range.first + read,
                                                " samples, its header announces ", info.frames,
                                                " (damaged or truncated)"));
  const auto there = static_cast<size_t>(std::max<int64_t>(got, 0));
  to.resize(before + there);
  if (there == 0) return false;
  const std::span<float> found = std::span(to).subspan(before);
  if (channels > 1) mix_down(interleaved.data(), channels, channel, found);
  if (const int64_t at = find_no_sample(found); at >= 0)
    fail_sample(source.name(), range.first + read + at, info.sample_rate,
                found[static_cast<size_t>(at)]);
  read += got;
  return true;
}

SoundStream::SoundStream(const FilePart& file, int32_t sample_rate, AudioSegment segment,
                         SoundReading reading)
    : state_(std::make_unique<State>(file, reading)) {
  state_->open(sample_rate, segment);
}
SoundStream::SoundStream(std::span<const std::byte> bytes, std::string_view name,
                         int32_t sample_rate, AudioSegment segment, SoundReading reading)
    : state_(std::make_unique<State>(bytes, name, reading)) {
  state_->open(sample_rate, segment);
}
SoundStream::~SoundStream() = default;

int32_t SoundStream::sample_rate() const { return state_->rate; }

int64_t SoundStream::samples() const {
  const State& s = *state_;
  return s.resampler ? shared_resampler(s.info.sample_rate, s.rate)->output_size(s.range.count)
                     : s.range.count;
}

bool SoundStream::append(std::vector<float>& to) {
  State& s = *state_;
  if (s.is_over) return false;
  if (!s.resampler) return s.read_block(to);
  s.mono.clear();
  s.is_over = !s.read_block(s.mono);
  s.is_over ? s.resampler->finish(to) : s.resampler->accept(s.mono, to);
  return true;
}

std::span<const float> SoundStream::next(size_t most) {
  State& s = *state_;
  s.pending.erase(s.pending.begin(), s.pending.begin() + std::exchange(s.given, 0));
  while (s.pending.size() < most && append(s.pending)) {
  }
  s.given = std::min(most, s.pending.size());
  return {s.pending.data(), s.given};
}

AudioInfo SndfileReader::info(const FilePart& file) const {
  data::SoundSource source(file, reading_);
  return source.open();
}

Waveform SndfileReader::read(const FilePart& file, int32_t sample_rate,
                             AudioSegment segment) const {
  SoundStream sound(file, sample_rate, segment, reading_);
  return read_whole(sound);
}

Waveform decode_audio(std::span<const std::byte> bytes, std::string_view name, int32_t sample_rate,
                      AudioSegment segment) {
  SoundStream sound(bytes, name, sample_rate, segment);
  return read_whole(sound);
}

std::string make_wav(const Waveform& audio) {
  const auto bytes = static_cast<uint32_t>(2 * audio.samples.size());
  const auto rate = static_cast<uint32_t>(audio.sample_rate);
  std::string wav;
  const auto put = [&wav](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) wav += static_cast<char>(value >> 8 * i & 0xff);
  };
  wav.reserve(44 + bytes);
  wav += "RIFF";
  put(36 + bytes, 4);
  wav += "WAVEfmt ";
  put(16, 4);        // bytes that follow of this part
  put(1, 2);         // PCM
  put(1, 2);         // one channel
  put(rate, 4);      // samples a second
  put(2 * rate, 4);  // bytes a second
  put(2, 2);         // bytes a sample
  put(16, 2);        // bits a sample
  wav += "data";
  put(bytes, 4);
  for (const float sample : audio.samples) {
    constexpr float full_scale = 0x1p31f, highest = 0x1.fffffep30f;
    const float value = std::clamp(sample * full_scale, -full_scale, highest);
    put(static_cast<uint32_t>(std::lrint(value) >> 16), 2);
  }
  return wav;
}

void write_wav(const std::string& path, const Waveform& audio) {
  RONDO_CHECK(audio.sample_rate >= 1, "sample rate ", audio.sample_rate);
  const std::string wav = make_wav(audio);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail_input(path, ": cannot be written: ", std::strerror(errno));
  struct stat status {};
  const bool is_regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  try {
    write_all(file, std::as_bytes(std::span(wav)), path);
  } catch (const InputError&) {
    ::close(file);
    if (is_regular) std::remove(path.c_str());  // never a device (/dev/full, a named pipe)
    throw;
  }
  // NFS and quotas may report a failed write only here.
  if (::close(file) == 0 || errno == EINTR) return;
  const int why = errno;
  if (is_regular) std::remove(path.c_str());
  fail_input(path, ": cannot be written: ", std::strerror(why));
}

}  // namespace rondo
